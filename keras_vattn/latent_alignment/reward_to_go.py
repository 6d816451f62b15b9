from functools import partial

import keras
import tensorflow as tf
from keras import ops

from keras_vattn.alignments import DenseKeys
from keras_vattn.latent_alignment.estimators import gradient_of
from keras_vattn.latent_alignment.log_probabilities import is_possible, log_probabilities
from keras_vattn.latent_alignment.moving_average import average_of, average_weight, update_average
from keras_vattn.support import keras_private
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import both, check_mask, check_shape
from keras_vattn.support.validation import fraction, nonnegative_number

BASELINES = ("moving_average", None)


@keras.saving.register_keras_serializable(package="keras_vattn")
class RewardToGo(keras.layers.Layer):
    """Adds a score-function gradient to the word log-likelihoods of a decoder with hard attention.

    If the sampled position z_t enters the state of the decoder (Xu et al. 2015, section 4.1), every later word depends
    on z_t. The reward R_t of z_t is then the log-likelihood of all words from step t on. The entropies of later steps
    also depend on z_t, so R_t includes their bonus. The result of step t has the value log p(y_t | z_<=t). The other
    terms of the formula have the value 0 and add the gradient. In the formula, sg stops the gradient.

    Training on the sum of the results maximizes sum_t E[log p(y_t | z_<=t) + entropy_weight H_t], where H_t is the
    entropy of p(z_t | z_<t). With `entropy_weight=0.0`, this sum is a lower bound on log p(y).

    ```
    attention = keras_vattn.Attention("additive", "hard")
    decoder = keras_vattn.AttentionDecoder(units, attention, query="previous")
    decoded = decoder(words, regions, return_attention_scores=True, return_logits=True)
    hidden = decoded["hidden"][:, :, None]
    log_likelihood = keras_vattn.TokenLogLikelihood(vocabulary_size)(hidden, targets)
    bound = keras_vattn.RewardToGo()(log_likelihood, decoded["weights"], decoded["logits"])
    model.compile(loss=keras_vattn.NegativeBound())
    ```

    If the alignment of a step affects only the word of the same step, use `keras_vattn.LatentLogLikelihood` instead.
    `LatentLogLikelihood` offers more estimators, with less variance.

    At inference, the decoder uses the expected context under p, and the result is the log-likelihood given this
    context. Under `keras_vattn.posterior_draws`, the result is the log-likelihood given sampled positions.

    Formula:
        "result"_t = log p(y_t | z_(<=t)) + "sg"(R_t - b_t) D(log p(z_t | z_(<t))) + "entropy_weight" D(H_t)
        D(x) = x - "sg"(x)
        R_t = sum_(u >= t) log p(y_u | z_(<=u)) + "entropy_weight" sum_(u > t) H_u

    Args:
        baseline: The baseline b_t. `"moving_average"`: the average log-likelihood of a word in training, times the
            number of words from step t on. `None`: 0. Defaults to `"moving_average"`.
        baseline_decay: Decay factor of the average, applied in every training call. Defaults to 0.99.
        entropy_weight: Weight of the entropy bonus, at least 0. Defaults to 0.0.

    Call arguments:
        log_likelihood: Float32 (B, T), or (B, T, 1) from `keras_vattn.TokenLogLikelihood`: log p(y_t | z_<=t) in nats.
        weights: (B, T, S), the one-hot weights that the decoder sampled.
        logits: (B, T, S), the logits that the decoder returns.
        value_mask: Boolean (B, S), the `memory_mask` of the decoder, or `None`.
        baseline_log_likelihood: (B, T), word log-likelihoods that do not depend on the positions sampled in this call,
            or `None`. The sum from step t on replaces b_t. Self-critical training (Rennie et al. 2017) computes the
            array with the same layers and `training=False`. No gradient flows to the array.
        log_likelihood_mask, logits_mask: Boolean (B, T), usually propagated by Keras. Words that either mask excludes
            have value and gradient 0.
        training: Whether to add the gradient terms.

    Returns:
        Float32 (B, T), in nats.

    Raises:
        ValueError: If the baseline is unknown, if a number is out of range, or if the input shapes do not match.
        InvalidArgumentError: Raised by TensorFlow in training if the weights are not one-hot, except under XLA.

    Example:

    >>> log_likelihood = keras.ops.convert_to_tensor([[-1.0, -2.0]])
    >>> weights, logits = keras.ops.eye(2)[None], keras.ops.zeros((1, 2, 2))
    >>> keras_vattn.RewardToGo(None)(log_likelihood, weights, logits, training=True)
    <tf.Tensor: shape=(1, 2), dtype=float32, numpy=array([[-1., -2.]], dtype=float32)>
    """

    def __init__(self, baseline="moving_average", baseline_decay=0.99, entropy_weight=0.0, **kwargs):
        # With autocast, Keras would cast the log-likelihoods to the compute dtype.
        super().__init__(autocast=False, **kwargs)
        if baseline not in BASELINES:
            raise ValueError(f'`baseline` must be "moving_average" or None. Received: baseline={baseline!r}')
        self.baseline = baseline
        self.baseline_decay = fraction("baseline_decay", baseline_decay)
        self.entropy_weight = nonnegative_number("entropy_weight", entropy_weight)
        self.supports_masking = True

    def build(self, log_likelihood_shape, weights_shape=None, logits_shape=None, baseline_log_likelihood_shape=None):
        self.average = None if self.baseline is None else average_weight(self)

    def call(
        self,
        log_likelihood,
        weights,
        logits,
        value_mask=None,
        baseline_log_likelihood=None,
        log_likelihood_mask=None,
        logits_mask=None,
        training=None,
    ):
        self._check(log_likelihood, weights, logits, value_mask, baseline_log_likelihood)
        for name, x in (("log_likelihood_mask", log_likelihood_mask), ("logits_mask", logits_mask)):
            check_mask(name, x, tuple(log_likelihood.shape[:2]), "(B, T)")
        mask = both(log_likelihood_mask, logits_mask)
        value = _zero_masked(ops.reshape(ops.cast(log_likelihood, "float32"), ops.shape(log_likelihood)[:2]), mask)
        if training:
            value = value + self._gradient_terms(value, weights, logits, value_mask, baseline_log_likelihood, mask)
        if mask is not None:
            keras_private.set_mask(value, mask)
        return value

    def _gradient_terms(self, value, weights, logits, value_mask, baseline_log_likelihood, mask):
        """Return zeros (B, T) whose gradient is the missing gradient."""
        weights = ops.cast(weights, "float32")
        largest = ops.max(weights, axis=-1)
        tf.debugging.Assert(
            ops.all(ops.logical_or(largest > 0.99, largest == 0.0)),
            ["`weights` must be one-hot, as sampled by the alignment Hard. For other alignments, omit RewardToGo."],
        )
        keys = DenseKeys(None if value_mask is None else ops.cast(value_mask, "bool")[:, None])
        log_p = log_probabilities(ops.cast(logits, "float32"), keys)
        log_p = ops.where(is_possible(log_p), log_p, 0.0)
        drawn_log_p = _zero_masked(ops.sum(weights * log_p, axis=-1), mask)
        reward = _to_go(value)
        terms = 0.0
        if self.entropy_weight:
            bonus = self.entropy_weight * _zero_masked(-ops.sum(ops.exp(log_p) * log_p, axis=-1), mask)
            reward = reward + _to_go(bonus) - bonus
            terms = gradient_of(bonus)
        baseline = self._baseline(value, baseline_log_likelihood, mask)
        return terms + ops.stop_gradient(reward - baseline) * gradient_of(drawn_log_p)

    def _baseline(self, value, baseline_log_likelihood, mask):
        if baseline_log_likelihood is not None:
            return _to_go(_zero_masked(ops.cast(baseline_log_likelihood, "float32"), mask))
        if self.average is None:
            return 0.0
        # After the update, the average would depend on the samples of this call, which would bias the gradient.
        average = average_of(self.average)
        update_average(self.average, ops.stop_gradient(value), mask, self.baseline_decay)
        return average * _to_go(_zero_masked(ops.ones_like(value), mask))

    def _check(self, log_likelihood, weights, logits, value_mask, baseline_log_likelihood):
        shape = tuple(log_likelihood.shape)
        if len(shape) != 2 and not (len(shape) == 3 and shape[-1] == 1):
            raise ValueError(
                "`log_likelihood` must have shape (B, T) or (B, T, 1), with one value for each word. "
                f"Received: log_likelihood.shape={shape}"
            )
        if len(logits.shape) != 3:
            raise ValueError(f"`logits` must have shape (B, T, S). Received: logits.shape={tuple(logits.shape)}")
        check_shape("logits", logits, (*shape[:2], logits.shape[-1]), "(B, T, S)")
        check_shape("weights", weights, (*shape[:2], logits.shape[-1]), "(B, T, S)")
        check_mask("value_mask", value_mask, (shape[0], logits.shape[-1]), "(B, S)")
        if baseline_log_likelihood is not None:
            check_shape("baseline_log_likelihood", baseline_log_likelihood, shape[:2], "(B, T)")

    def compute_output_shape(
        self, log_likelihood_shape, weights_shape=None, logits_shape=None, baseline_log_likelihood_shape=None
    ):
        return tuple(log_likelihood_shape[:2])

    def compute_output_spec(self, *arguments, **options):
        inputs = bind_call(partial(RewardToGo.call, self), arguments, options)
        names = ("log_likelihood", "weights", "logits", "value_mask", "baseline_log_likelihood")
        self._check(*(inputs[name] for name in names))
        return keras.KerasTensor(self.compute_output_shape(inputs["log_likelihood"].shape), dtype="float32")

    def get_config(self):
        return {
            **super().get_config(),
            "baseline": self.baseline,
            "baseline_decay": self.baseline_decay,
            "entropy_weight": self.entropy_weight,
        }


def _to_go(x):
    """Return the sum of x (B, T) over each step and all later steps, (B, T)."""
    return ops.flip(ops.cumsum(ops.flip(x, axis=1), axis=1), axis=1)


def _zero_masked(x, mask):
    return x if mask is None else ops.where(ops.cast(mask, "bool"), x, ops.zeros_like(x))
