from functools import partial

import keras
from keras import ops

from keras_vattn.draws.request import DRAWS
from keras_vattn.latent_alignment import estimators
from keras_vattn.latent_alignment.latent_objective import resolve_objective
from keras_vattn.latent_alignment.moving_average import average_of, average_weight, update_average
from keras_vattn.support import keras_private
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import both, check_mask, check_shape, fits


@keras.saving.register_keras_serializable(package="keras_vattn")
class LatentLogLikelihood(keras.layers.Layer):
    """Combines the log-likelihoods of a word under all candidate contexts into one objective per word, in nats.

    `keras_vattn.LatentObjective` lists the objectives of Deng et al. 2018, sections 2 to 4, and their values. Use the
    loss `keras_vattn.NegativeBound`, which masks and sums the values. The values contain no KL:
    `keras_vattn.CategoricalAttention` adds the KL with `add_loss`.

    The formula shows `"elbo/sample"` with one sample z of the posterior q, and the baseline b; sg stops the gradient.
    The second term has the value 0. Its gradient replaces the gradient of the sample with respect to q, which does not
    exist. The expected gradient is the gradient of E_q log p(y | z) (eq. 1).

    If each example has one query, the log-likelihoods may have shape (B, K). The result then has shape (B,). The log
    prior and log posterior may still have shape (B, 1, K).

    Formula:
        "result" = log p(y | z) + "sg"(log p(y | z) - b) (log q(z) - "sg"(log q(z))), quad z ~ q

    Args:
        objective: A `keras_vattn.LatentObjective`, or its name. It must equal the objective of the
            `CategoricalAttention` that returned the candidates. Defaults to `"elbo"`.

    Call arguments:
        log_likelihood: Float32 (B, T, K), from `keras_vattn.TokenLogLikelihood` or your own output layer. In training
            with the soft baseline, (B, T, K + 1).
        log_prior: (B, T, K), the tensor that `CategoricalAttention` returned. If you pass a slice of this tensor, this
            layer cannot check that the attention has the same objective.
        log_posterior: (B, T, K), or `None` if the attention returned no log posterior. With `None`, the result is the
            marginal log-likelihood, or under `keras_vattn.posterior_draws` the objective with q = p.
        log_likelihood_mask, log_prior_mask: Boolean (B, T), usually propagated by Keras. Words that either mask
            excludes affect neither the moving average nor the loss. The mask of the result combines both masks.
        training: Whether to use the training objective, as in the attention.

    Returns:
        Float32 (B, T), or (B,), in nats.

    Raises:
        ValueError: If the number of candidates is wrong, or if the attention has a different objective.

    Example:

    >>> objective = keras_vattn.LatentObjective("marginal")
    >>> log_prior = keras.ops.log(keras.ops.convert_to_tensor([[[0.6, 0.3, 0.1]]]))
    >>> log_likelihood = keras.ops.log(keras.ops.convert_to_tensor([[[0.5, 0.1, 0.9]]]))
    >>> bound = keras_vattn.LatentLogLikelihood(objective)(log_likelihood, log_prior)
    >>> round(float(keras.ops.exp(bound[0, 0])), 3)
    0.42
    """

    draws = DRAWS

    def __init__(self, objective="elbo", **kwargs):
        # With autocast, Keras would cast the log-likelihoods to the compute dtype.
        super().__init__(autocast=False, **kwargs)
        self.objective = resolve_objective(objective)
        self.supports_masking = True

    @property
    def is_stochastic(self):
        """Whether the candidates may be random samples."""
        return self.objective.draws

    def build(self, log_likelihood_shape, log_prior_shape=None, log_posterior_shape=None):
        self.average = None
        if self.objective.baseline == "moving_average" and self.objective.in_training.takes_baseline:
            self.average = average_weight(self)

    def load_own_variables(self, store):
        # Without this check, a model saved with another baseline could not be loaded.
        if store.keys() and self.average is not None:
            super().load_own_variables(store)

    def call(
        self,
        log_likelihood,
        log_prior,
        log_posterior=None,
        log_likelihood_mask=None,
        log_prior_mask=None,
        training=None,
    ):
        log_prior, log_posterior, log_prior_mask = self._check_and_squeeze(
            log_likelihood, log_prior, log_posterior, log_likelihood_mask, log_prior_mask
        )
        pair = self.objective.pair(training, self.draws is not None, log_posterior is not None)
        num_candidates = self.objective.num_candidates(pair, log_prior.shape[-1])
        check_shape("log_prior", log_prior, (*log_prior.shape[:-1], num_candidates), f"{_meaning(log_prior)} of {pair}")
        expected = list(log_prior.shape)
        if expected[-1] is not None:
            expected[-1] += self.objective.has_baseline_entry(pair, training)
        check_shape("log_likelihood", log_likelihood, tuple(expected), f"{_meaning(log_prior)} of {pair}")
        mask = both(log_likelihood_mask, log_prior_mask)
        log_likelihood, log_prior, log_posterior = (
            None if x is None else ops.cast(x, "float32") for x in (log_likelihood, log_prior, log_posterior)
        )
        log_posterior = log_prior if log_posterior is None else log_posterior
        value = self._value(pair, log_likelihood, log_prior, log_posterior, mask, training)
        if mask is not None:
            # Keras would propagate only the mask of `log_likelihood`.
            keras_private.set_mask(value, mask)
        return value

    def _value(self, pair, log_likelihood, log_prior, log_posterior, mask, training):
        if pair.objective == "soft" or pair.estimator == "gumbel":
            return log_likelihood[..., 0]
        if pair.objective == "marginal":
            return estimators.marginal(log_likelihood, log_prior)
        if pair.objective == "importance_weighted":
            return estimators.importance_weighted(log_likelihood, log_prior, log_posterior)
        if pair.objective == "wake_sleep":
            return estimators.wake_sleep(log_likelihood, log_prior, log_posterior)
        log_probability = log_prior if pair.objective == "hard" else log_posterior
        if pair.estimator == "enumerate":
            return estimators.expectation(log_likelihood, log_probability)
        has_soft_entry = self.objective.has_baseline_entry(pair, training)
        draws = log_likelihood[..., :-1] if has_soft_entry else log_likelihood
        baseline = log_likelihood[..., -1:] if has_soft_entry else self._baseline(draws, mask, training)
        return estimators.score_function(draws, log_probability, baseline)

    def _baseline(self, draws, mask, training):
        baseline = self.objective.baseline
        if baseline in (None, "soft"):
            return 0.0
        if callable(baseline):
            return baseline(draws)
        # After the update, the average would depend on the samples of this call, which would bias the gradient.
        average = average_of(self.average)
        if training:
            values = ops.mean(ops.stop_gradient(draws), axis=-1)
            update_average(self.average, values, mask, self.objective.baseline_decay)
        return average

    def _check_and_squeeze(self, log_likelihood, log_prior, log_posterior, log_likelihood_mask, log_prior_mask):
        if len(log_prior.shape) not in (2, 3):
            raise ValueError(
                f"`log_prior` must have shape (B, T, K) or (B, K). Received: log_prior.shape={tuple(log_prior.shape)}"
            )
        candidates_objective = getattr(log_prior, "latent_objective", self.objective)
        if not candidates_objective.is_equivalent(self.objective):
            raise ValueError(
                "CategoricalAttention and LatentLogLikelihood must have the same objective. "
                f"Received: {candidates_objective} in the attention, {self.objective} in this layer"
            )
        if len(log_likelihood.shape) == 2 and len(log_prior.shape) == 3 and log_prior.shape[1] == 1:
            attention_outputs = (log_prior, log_posterior, log_prior_mask)
            log_prior, log_posterior, log_prior_mask = (None if x is None else x[:, 0] for x in attention_outputs)
        if log_posterior is not None:
            check_shape("log_posterior", log_posterior, tuple(log_prior.shape), _meaning(log_prior))
        for name, mask in (("log_likelihood_mask", log_likelihood_mask), ("log_prior_mask", log_prior_mask)):
            check_mask(name, mask, tuple(log_likelihood.shape[:-1]), _meaning(log_likelihood).replace(", K", ""))
        return log_prior, log_posterior, log_prior_mask

    def compute_output_shape(self, log_likelihood_shape, log_prior_shape=None, log_posterior_shape=None):
        return tuple(log_likelihood_shape[:-1])

    def compute_output_spec(self, *arguments, **options):
        inputs = bind_call(partial(LatentLogLikelihood.call, self), arguments, options)
        inputs.pop("training")
        log_likelihood = inputs["log_likelihood"]
        log_prior, _, _ = self._check_and_squeeze(**inputs)
        num_candidates = log_prior.shape[-1]
        choices = {num_candidates}
        if num_candidates is not None and self.objective.has_baseline_entry(self.objective.in_training, training=True):
            choices.add(num_candidates + 1)
        if not any(fits(log_likelihood.shape, (*log_prior.shape[:-1], choice)) for choice in choices):
            raise ValueError(
                "`log_likelihood` and `log_prior` must have the same candidates. Received: "
                f"log_likelihood.shape={tuple(log_likelihood.shape)}, log_prior.shape={tuple(log_prior.shape)}"
            )
        return keras.KerasTensor(self.compute_output_shape(log_likelihood.shape), dtype="float32")

    def get_config(self):
        return {**super().get_config(), "objective": keras.saving.serialize_keras_object(self.objective)}


def _meaning(x):
    return "(B, K)" if len(x.shape) == 2 else "(B, T, K)"
