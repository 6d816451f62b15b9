from keras import ops, tree

from keras_vattn import random
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import both


class AlignmentLayer(StochasticLayer):
    """Base class of attention layers with an alignment. It draws noise and returns distributions and statistics.

    A subclass calls `set_alignment` in `__init__` and has an attribute `dropout`. The method `_scored(arguments,
    options)` of the subclass returns the `AlignmentInputs` of a call.
    """

    # `draw_seeds` reads dropout requests. Without this flag, `follow_requests` would also replace `call`.
    reads_dropout_requests = True
    # The error message of `prior_distribution` lists these other ways to define a prior.
    _other_priors = ""

    def set_alignment(self, variational):
        """Set the alignment and its prior from a `VariationalAlignment`."""
        self.variational = variational
        # Without this attribute, Keras would not save the weights of the prior.
        self.alignment_prior = variational.prior

    @property
    def alignment(self):
        return self.variational.alignment

    @property
    def prior(self):
        return self.variational.prior

    @property
    def is_stochastic(self):
        return self.variational.is_stochastic

    @property
    def current_step(self):
        """The number of training calls so far."""
        return 0 if self.training_calls is None else self.training_calls.value

    def draw_alignment(self, shape, seeds):
        """Return a dictionary with the noise and the dropout mask of weights of this shape."""
        noise = {}
        if seeds.noise is not None:
            noise = self.variational.draw_noise(shape, seeds.noise, self.current_step, seeds.training)
        if seeds.dropout is not None and self.dropout:
            mask = random.uniform(shape, random.fold_in(seeds.dropout, 2)) >= self.dropout
            noise["dropout"] = ops.cast(mask, self.compute_dtype) / (1.0 - self.dropout)
        return noise

    def draw_rows(self, shape, seeds, num_keys=None):
        """Return the noise of a chunk, as `draw_alignment` does. `num_keys` is `Chunk.num_keys`."""
        if num_keys is None:
            return self.draw_alignment(shape, seeds)
        # Draw noise for all keys, as calls under XLA do. Otherwise XLA would change the draws.
        noise = self.draw_alignment((*shape[:-1], num_keys), seeds)
        return tree.map_structure(lambda x: x[..., : shape[-1]], noise)

    def divergence_terms(self, scored, noise, keys, query_mask, training, head_axis=None, context=None, chunk=None):
        """Return a dictionary of arguments of `add_divergence`: `divergence`, `valid`, `entries` and `floor`.

        The KL is summed over heads and includes the KL of the context.

        Args:
            scored: The `AlignmentInputs` of the call, or `None` if the weights have no KL.
            noise: The noise of the call.
            keys: The `Keys` of the call.
            query_mask: Boolean mask with one entry per query, or `None`.
            training: The argument `training` of the call.
            head_axis: The axis or axes of the heads; `None` for a layer without heads.
            context: `None`, or a tuple of the KL of the context (one value per query) and the width of the context.
            chunk: The `Chunk` of the queries, or `None`.
        """
        divergence, entries, floor, valid = None, 0.0, None, keys.any_valid()
        if scored is not None:
            seed = lambda: random.fold_in(self.noise_seed(training) if chunk is None else chunk.seeds.noise, 4)  # noqa: E731
            number = None if chunk is None else chunk.number
            divergence = self.variational.divergence(scored, noise, self.current_step, seed, number)
        if divergence is not None:
            floor = self.variational.divergence_floor(scored)
            if self.kl_reduction == "mean":
                entries = keys.count(scored.logits)
            if head_axis is not None:
                shape = ops.shape(divergence)
                if valid is not None and len(valid.shape) == len(shape):
                    # Without `where`, a head without a valid key would add an arbitrary KL.
                    divergence, valid = ops.where(valid, divergence, 0.0), ops.any(valid, axis=head_axis)
                divergence = ops.sum(divergence, axis=head_axis)
                entries, floor = (_sum_over_heads(x, shape, head_axis) for x in (entries, floor))
        if context is not None:
            divergence = context[0] if divergence is None else divergence + context[0]
            entries += context[1]
        return {"divergence": divergence, "valid": both(valid, query_mask), "entries": entries, "floor": floor}

    @property
    def estimates_divergence(self):
        """Whether the last KL of the weights was estimated from samples, or `None` before the first KL.

        The KL is estimated if TensorFlow Probability implements no KL from the posterior to the prior. If the alignment
        has `kl_estimator="sampled"`, the KL is also estimated in every call that draws.
        """
        return self.variational.estimates_divergence

    def posterior_distribution(self, *arguments, **options):
        """Return the posterior q, a TensorFlow Probability distribution. Pass the arguments of `call`.

        q is the distribution of the unnormalised weights. If the alignment has `kl_of="weights"`, q is the distribution
        of the normalised weights. Annealed parameters, such as a temperature, have their current values. The layer must
        be built.
        """
        return self.variational.posterior_distribution(self._scored(arguments, options), self.current_step)

    def prior_distribution(self, *arguments, **options):
        """Return the prior p, a distribution with the same event shape as `posterior_distribution`.

        Raises:
            ValueError: If the layer has no prior and the call has no posterior logits.
        """
        scored = self._scored(arguments, options)
        return self.variational.prior_distribution(scored, self.current_step, self._other_priors)

    def alignment_statistics(self, *arguments, num_samples=32, sample_seed=0, **options):
        """Return entropies, in nats, and the standard deviation of the attention weights. The layer must be built.

        Args:
            *arguments: Positional arguments of `call`.
            num_samples: Number of samples from which `"weights_sd"` is computed.
            sample_seed: Integer seed of these samples.
            **options: Keyword arguments of `call`.

        Returns:
            A dictionary of float32 arrays (B, T), or (B, H, T) with heads (T is 1 for a prior that all queries share):
            - `"posterior_entropy"`: entropy of the weights at the mean of the posterior.
            - `"prior_entropy"`, if the call has `posterior_logits`: entropy of the weights at the mean of the prior.
            - `"prior_entropy"`, if the prior is contextual: entropy of its probabilities for the keys of a query.
            - `"weights_sd"`: standard deviation of a sampled weight, averaged over the valid keys. A value below 1e-3
              means that the weights are almost deterministic. A Gaussian context does not change this value.
        """
        scored = self._scored(arguments, options)
        return self.variational.statistics(scored, self.current_step, num_samples, random.as_seed(sample_seed))

    def _bind(self, arguments, options):
        """Return a dictionary of the call arguments, with float inputs in the compute dtype."""
        self.require_built()
        bound = bind_call(self.call, arguments, options)
        for name in {"query", "value", "key", "posterior_logits", "nodes"} & set(bound):
            bound[name] = None if bound[name] is None else ops.cast(bound[name], self.compute_dtype)
        return bound


def _sum_over_heads(x, shape, axes):
    """Broadcast x to `shape`, and return the sum over the axes of heads, or `None` if x is `None`."""
    if x is None or ops.shape(x):
        return None if x is None else ops.sum(ops.broadcast_to(x, shape), axis=axes)
    # A scalar is the value of each head.
    for axis in [axes] if isinstance(axes, int) else axes:
        x = x * (shape[axis] if isinstance(shape[axis], int) else ops.cast(shape[axis], "float32"))
    return x
