from keras import ops, tree

from keras_vattn import random
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import both


class AlignmentLayer(StochasticLayer):
    """Base class of the attentions with an alignment: its noise, its distributions, and its statistics.

    A subclass calls `set_alignment` once in `__init__`, has a `dropout`, and defines `_scored(arguments, options)`,
    which returns the `AlignmentInputs` of a call from the call's arguments.
    """

    # `draw_seeds` reads the request to drop.
    reads_dropout_requests = True
    # What else a subclass takes for a prior, for an error message.
    _other_priors = ""

    def set_alignment(self, variational):
        """Take the alignment with its prior, a `VariationalAlignment`."""
        self.variational = variational
        # Keras finds the prior's weights under this name, in the layer and in its files.
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
        """Return the noise of the alignment and of the dropout on its weights, of the shape of the logits: a
        dictionary, empty where the `Seeds` are `None`."""
        noise = {}
        if seeds.noise is not None:
            noise = self.variational.draw_noise(shape, seeds.noise, self.current_step, seeds.training)
        if seeds.dropout is not None and self.dropout:
            mask = random.uniform(shape, random.fold_in(seeds.dropout, 2)) >= self.dropout
            noise["dropout"] = ops.cast(mask, self.compute_dtype) / (1.0 - self.dropout)
        return noise

    def draw_rows(self, shape, seeds, num_keys=None):
        """Return the result of `draw_alignment`, for logits that may be the first of `num_keys` in their rows."""
        if num_keys is None:
            return self.draw_alignment(shape, seeds)
        # XLA computes all keys: so that its draws are the same, noise is drawn for all keys here too.
        noise = self.draw_alignment((*shape[:-1], num_keys), seeds)
        return tree.map_structure(lambda x: x[..., : shape[-1]], noise)

    def divergence_terms(self, scored, noise, keys, query_mask, training, head_axis=None, context=None, chunk=None):
        """Return what `add_divergence` takes for a call: the KL of each query, summed over the heads and with the KL of
        a context, the queries that count, the number of entries and the floor.

        Args:
            scored: The `AlignmentInputs` of the call, or `None` for no KL of the weights.
            noise: The noise of the call.
            keys: The `Keys` of the call.
            query_mask: Boolean, one for each query, or `None`.
            training: The call's `training`.
            head_axis: The axis of the heads in a value for each row, `None` for a layer without heads.
            context: KL of the context of each query, and its number of entries, or `None`.
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
                    # A head without a key has no KL, whatever the family says; a query has one where a head has a key.
                    divergence, valid = ops.where(valid, divergence, 0.0), ops.any(valid, axis=head_axis)
                divergence = ops.sum(divergence, axis=head_axis)
                entries, floor = (_sum_over_heads(x, shape, head_axis) for x in (entries, floor))
        if context is not None:
            divergence = context[0] if divergence is None else divergence + context[0]
            entries += context[1]
        return {"divergence": divergence, "valid": both(valid, query_mask), "entries": entries, "floor": floor}

    @property
    def estimates_divergence(self):
        """Whether the last call, or trace, estimated the KL of the weights at draws, as it does for two distributions
        without a registered KL, and with `kl_estimator="sampled"` in training; `None` before a call."""
        return self.variational.estimates_divergence

    def posterior_distribution(self, *arguments, **options):
        """Return q of the loss's KL, a TensorFlow Probability distribution, for the arguments of a call; the layer must
        be built. q is a distribution of the draws before normalisation, or of the weights where the alignment's `kl_of`
        says so. What an alignment anneals, such as tau of `GumbelSoftmax`, has its value after the training calls so
        far, which the next draw has too."""
        return self.variational.posterior_distribution(self._scored(arguments, options), self.current_step)

    def prior_distribution(self, *arguments, **options):
        """Return p, a TensorFlow Probability distribution of the same event as `posterior_distribution`.

        Raises:
            ValueError: If there is neither a prior nor posterior logits, and so no p.
        """
        scored = self._scored(arguments, options)
        return self.variational.prior_distribution(scored, self.current_step, self._other_priors)

    def alignment_statistics(self, *arguments, num_samples=32, sample_seed=0, **options):
        """Return how random the alignment really is, for the arguments of a call; the layer must be built.

        Args:
            *arguments: As in the call.
            num_samples: Number of draws for the standard deviation.
            sample_seed: Integer seed of these draws.
            **options: As in the call.

        Returns:
            A dictionary of float32 arrays, of shape (B, T), or (B, H, T) with heads. `"posterior_entropy"`: entropy in
            nats of the weights at the mean of q. `"prior_entropy"`: entropy of Psi, with 1 in place of T where all
            queries share it, and among the keys of a row where Psi is over more; with posterior logits the entropy of
            the weights at the mean of p; absent for a fixed prior. `"weights_sd"`: standard deviation of a weight over
            draws, averaged over the valid keys; below 1e-3 an alignment is deterministic in effect. It leaves out a
            Gaussian context, whose noise is not in the weights.
        """
        scored = self._scored(arguments, options)
        return self.variational.statistics(scored, self.current_step, num_samples, random.as_seed(sample_seed))

    def _bind(self, arguments, options):
        """Return the arguments of a call by name, its float tensors in the compute dtype, as a call has them."""
        self.require_built()
        bound = bind_call(self.call, arguments, options)
        for name in {"query", "value", "key", "posterior_logits", "nodes"} & set(bound):
            bound[name] = None if bound[name] is None else ops.cast(bound[name], self.compute_dtype)
        return bound


def _sum_over_heads(x, shape, axes):
    """Return the sum over an axis of heads, or several, of x, which broadcasts to the shape; `None` for `None`."""
    if x is None or ops.shape(x):
        return None if x is None else ops.sum(ops.broadcast_to(x, shape), axis=axes)
    # One number for all.
    for axis in [axes] if isinstance(axes, int) else axes:
        x = x * (shape[axis] if isinstance(shape[axis], int) else ops.cast(shape[axis], "float32"))
    return x
