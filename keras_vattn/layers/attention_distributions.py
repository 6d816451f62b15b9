import inspect

from keras import ops

from keras_vattn import random
from keras_vattn.support.masks import combine_masks

# In place of infinity among posterior logits: the largest number of float16.
LARGEST = 65504.0


class AlignmentDistributions:
    """What can be asked of an attention's alignment beside its weights: q, p, and how random it is.

    A layer has an `alignment`, an `alignment_prior`, a method `_weights(logits, noise, keys)`, and a method
    `_at_the_mean(arguments, options)` that returns, for the arguments of a call, a dictionary: `"logits"` of the
    scores, `"posterior_logits"` or `None`, `"keys"`, `"prior"`, the parameters of p, or `None`, and `"log_psi"` or
    `None`.
    """

    def posterior_distribution(self, *arguments, **options):
        """Return q, the TensorFlow Probability distribution of the weights before normalisation, for the arguments of a
        call; the layer must be built. Its batch or event shape, whatever the family has, is that of the weights."""
        return self._posterior(self._at_the_mean(arguments, options))

    def prior_distribution(self, *arguments, **options):
        """Return p, a TensorFlow Probability distribution of what `posterior_distribution` is a distribution of.

        Raises:
            ValueError: If there is no prior and no posterior logits: nothing is held to anything.
        """
        return self._prior(self._at_the_mean(arguments, options))

    def _posterior(self, mean):
        return self.alignment.distribution(logits_of_q(mean), mean["keys"])

    def _prior(self, mean):
        if mean["posterior_logits"] is not None:
            return self.alignment.distribution(mean["logits"], mean["keys"])
        if mean["prior"] is None:
            raise ValueError(
                "This attention has no prior: use a stochastic alignment with a prior or with posterior logits"
                f"{self._other_priors}. Received: alignment={type(self.alignment).__name__}, prior=None"
            )
        return self.alignment.prior_distribution(mean["prior"], mean["logits"], mean["keys"])

    _other_priors = ""

    def alignment_statistics(self, *arguments, num_samples=32, sample_seed=0, **options):
        """Return how random the alignment really is, for the arguments of a call; the layer must be built.

        Args:
            *arguments: As in the call.
            num_samples: Number of draws for the standard deviation.
            sample_seed: Integer seed of these draws.
            **options: As in the call.

        Returns:
            A dictionary of float32 arrays, of shape (B, T), or (B, H, T) with heads. `"posterior_entropy"`: entropy in
            nats of the expected weights of q. `"prior_entropy"`: that of Psi, with 1 in place of T where all queries
            share it, or of the expected weights of p where posterior logits are given; absent for a fixed prior.
            `"weights_sd"`: standard deviation over draws of a weight, averaged over the valid keys; below 1e-3 an
            alignment is deterministic in effect. A Gaussian context, whose noise is not in the weights, is not in it.
        """
        mean = self._at_the_mean(arguments, options)
        keys, logits, drawn_logits = mean["keys"], mean["logits"], logits_of_q(mean)
        statistics = {"posterior_entropy": _entropy(keys.log_softmax(drawn_logits), keys)}
        if mean["posterior_logits"] is not None:
            statistics["prior_entropy"] = _entropy(keys.log_softmax(logits), keys)
        elif mean["log_psi"] is not None:
            statistics["prior_entropy"] = _entropy(mean["log_psi"], keys)
        at_step = self.alignment.at_step(0 if self.training_calls is None else self.training_calls.value)
        draws = []
        for index in range(num_samples):
            noise = self.alignment.noise(ops.shape(logits), random.fold_in(random.as_seed(sample_seed), index))
            noise = {**noise, **at_step} if at_step else noise
            draws.append(ops.cast(self._weights(drawn_logits, noise, keys), "float32"))
        deviation = ops.std(ops.stack(draws), axis=0)
        count = keys.sum(ops.ones_like(logits))[..., 0]
        statistics["weights_sd"] = ops.divide_no_nan(keys.sum(deviation)[..., 0], count)
        return statistics

    def require_place_for_posterior_logits(self, posterior_logits):
        """Raise ValueError if posterior logits are given beside a prior or to a deterministic alignment."""
        if self.alignment_prior is not None:
            raise ValueError(
                "Posterior logits make the scores the prior: there is no other beside them. "
                f"Received: posterior_logits.shape={tuple(posterior_logits.shape)}, "
                f"prior={type(self.alignment_prior).__name__}"
            )
        if not self.alignment.is_stochastic:
            raise ValueError(
                'Posterior logits need a stochastic alignment, for instance "dirichlet", or '
                "keras_vattn.CategoricalAttention. "
                f"Received: alignment={type(self.alignment).__name__}"
            )

    def _bind(self, arguments, options):
        """Return the arguments of a call by name, its float tensors in the compute dtype, as a call has them."""
        self.require_built()
        bound = inspect.signature(self.call).bind(*arguments, **options)
        bound.apply_defaults()
        given = dict(bound.arguments)
        for name in ("query", "value", "key", "posterior_logits"):
            given[name] = None if given[name] is None else ops.cast(given[name], self.compute_dtype)
        return given


class AttentionDistributions(AlignmentDistributions):
    """What can be asked of an attention beside its output: q, p, and how random the alignment is."""

    def posterior_distribution(self, *arguments, **options):
        """Return q, a TensorFlow Probability distribution, for the arguments of a call; the layer must be built.

        Of a Gaussian context it is q(context | query, value), of batch shape (B, T) and event shape (D,), given the
        expected weights; of another stochastic alignment that of the weights before normalisation, (B, T, S) as batch
        or event shape, whatever the family has; and of deterministic attention the point mass at the context.
        """
        return super().posterior_distribution(*arguments, **options)

    def _posterior(self, mean):
        if self.alignment.is_stochastic and not self.context.has_divergence:
            return super()._posterior(mean)
        context = mean["context"]
        return self.context.distribution(context, self.context.posterior_parameters(context))

    def _prior(self, mean):
        if self.context.has_divergence:
            return self.context.prior_distribution(mean["context"], mean["prior_mean"])
        return super()._prior(mean)

    @property
    def _other_priors(self):
        return f', or context="gaussian" (here {type(self.context).__name__})'

    def _at_the_mean(self, arguments, options):
        self.require_stateless_score()
        given = self._bind(arguments, options)
        query, value, key = given["query"], given["value"], given["key"]
        posterior_logits = given["posterior_logits"]
        self.check_posterior_logits(posterior_logits, (query.shape[0], query.shape[1], value.shape[1]))
        masks = (given[name] for name in ("value_mask", "key_mask", "attention_mask", "use_causal_mask"))
        memory = self.prepare_memory(value, key, combine_masks(query, value, *masks))
        attended = self.attend(query, memory, {}, posterior_logits=posterior_logits)
        return {
            "logits": attended["logits"],
            "posterior_logits": posterior_logits,
            "keys": memory["keys"],
            "prior": memory.get("prior"),
            "log_psi": memory.get("log_psi"),
            "context": attended["mean"],
            "prior_mean": memory["prior_mean"],
        }


def logits_of_q(mean):
    """Return the logits of q."""
    return mean["logits"] if mean["posterior_logits"] is None else as_finite_float32(mean["posterior_logits"])


def as_finite_float32(logits):
    """Return logits in float32, infinite ones at the ends of float16, where half precision may have made them so."""
    logits = ops.cast(logits, "float32")
    return ops.where(ops.isinf(logits), ops.sign(logits) * LARGEST, logits)


def _entropy(log_weights, keys):
    return -keys.sum(ops.exp(log_weights) * log_weights)[..., 0]
