import keras
from keras import ops

from keras_vattn.losses.sequence_loss import SequenceLoss
from keras_vattn.support import keras_private
from keras_vattn.support.ids import as_integers
from keras_vattn.support.masks import fits
from keras_vattn.support.validation import fraction, integer, refuse_ignore_class


@keras.saving.register_keras_serializable(package="keras_vattn")
class SequenceCrossentropy(SequenceLoss):
    """Negative log-likelihood of whole sequences, summed over time and averaged over the batch.

    If each layer has `kl_reduction="sum"`, the sum of this loss and all KLs is the negative ELBO in nats. Keras's own
    cross-entropy also averages over the T steps, so a KL would be T times too strong.

    Steps that the Keras mask of `y_pred` excludes have zero loss and zero gradient.

    Instead of one label per step, `y_true` can contain weights of all words in the vocabulary, such as probabilities or
    numbers of votes. A step with n votes counts n times. To count the step once, divide the votes by n.

    Formula:
        "loss" = - 1/B sum_b sum_t "mask"_(b,t) * "sample_weight"_(b,t) * L_(b,t)
        L_(b,t) = log p(y_(b,t)) quad ("labels")
        L_(b,t) = sum_v y_(b,t,v) log p(v) quad ("weights of all words")

    Args:
        from_logits: Whether `y_pred` contains logits instead of probabilities. Defaults to `True`.
        ignore_class: Integer label that marks steps to exclude, for instance the label of padding. Must be `None` if
            `y_true` contains weights of all words. Defaults to `None`.
        label_smoothing: Number in [0, 1). Fraction of the target that is spread evenly over the vocabulary. With a
            value above 0, the loss is no longer a negative log-likelihood. Defaults to 0.0.
        reduction: As in `keras.losses.Loss`, applied over the batch. `None` returns one loss per sequence.
            `"mean_with_sample_weight"` divides by the sum of the sample weights (B,). If the sample weights are (B, T),
            it divides by B. Defaults to `"sum_over_batch_size"`.
        name: Name of the loss. Defaults to `"sequence_crossentropy"`.

    Call arguments:
        y_true: Integer labels, (B, T), or weights of all words in the vocabulary, (B, T, V).
        y_pred: (B, T, V).
        sample_weight: A scalar, one weight per sequence (B,), or one weight per step (B, T).

    Returns:
        The loss in nats, a float32 scalar under every dtype policy, or (B,) if `reduction` is `None`.

    Raises:
        ValueError: If an argument is out of range or the shapes do not match.

    Example:

    >>> import numpy as np
    >>> loss = keras_vattn.SequenceCrossentropy()
    >>> y_true, logits = np.zeros((2, 5), "int32"), np.zeros((2, 5, 10), "float32")
    >>> round(float(loss(y_true, logits)), 4)  # 5 log(10)
    11.5129
    """

    def __init__(
        self,
        from_logits=True,
        ignore_class=None,
        label_smoothing=0.0,
        reduction="sum_over_batch_size",
        name="sequence_crossentropy",
    ):
        super().__init__(name=name, reduction=reduction)
        self.from_logits = from_logits
        self.ignore_class = integer("ignore_class", ignore_class, optional=True)
        self.label_smoothing = fraction("label_smoothing", label_smoothing)

    def log_likelihood(self, y_true, y_pred):
        return token_log_likelihood(
            y_true,
            y_pred,
            from_logits=self.from_logits,
            ignore_class=self.ignore_class,
            label_smoothing=self.label_smoothing,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "from_logits": self.from_logits,
            "ignore_class": self.ignore_class,
            "label_smoothing": self.label_smoothing,
        }


def sequence_log_likelihood(y_true, logits, mask=None, ignore_class=None):
    """Return the log-likelihood of each sequence, given the logits of all steps.

    Formula:
        log p(y_b) = sum_t "mask"_(b,t) log p(y_(b,t)), quad p(v) = "softmax"_v("logits"_(b,t,v))

    Args:
        y_true: Integer labels, (B, T), or weights of all words in the vocabulary, (B, T, V).
        logits: (B, T, V), of any float dtype.
        mask: Boolean (B, T), `False` for steps to exclude. `None` uses the Keras mask of `logits`, if there is one.
            Defaults to `None`.
        ignore_class: Integer label that marks steps to exclude. Defaults to `None`.

    Returns:
        Float32 (B,), in nats.

    Raises:
        ValueError: If the shapes do not match.

    Example:

    >>> import numpy as np
    >>> ids, logits = np.zeros((1, 3), "int32"), np.zeros((1, 3, 10), "float32")
    >>> result = keras_vattn.losses.sequence_log_likelihood(ids, logits)
    >>> [round(float(value), 4) for value in result]
    [-6.9078]
    """
    log_likelihood, _ = token_log_likelihood(y_true, logits, mask=mask, ignore_class=ignore_class)
    return ops.sum(log_likelihood, axis=1)


def token_log_likelihood(y_true, y_pred, mask=None, from_logits=True, ignore_class=None, label_smoothing=0.0):
    """Return float32 log-likelihoods (B, T), and a boolean mask (B, T). Excluded steps have log-likelihood 0."""
    if mask is None:
        mask = keras_private.mask_of(y_pred)
    y_pred = ops.cast(ops.convert_to_tensor(y_pred), "float32")  # (B, T, V)
    targets = ops.convert_to_tensor(y_true)
    has_weights = len(targets.shape) == 3
    if len(y_pred.shape) != 3 or not fits(targets.shape, y_pred.shape[: 3 if has_weights else 2]):
        raise ValueError(
            "Expected predictions of shape (batch, time, vocabulary), and either labels of shape (batch, time) or word "
            "weights of shape (batch, time, vocabulary). "
            f"Received: y_true.shape={tuple(targets.shape)}, y_pred.shape={tuple(y_pred.shape)}"
        )
    if has_weights:
        refuse_ignore_class("y_true", targets, ignore_class)
    valid = ops.ones_like(y_pred[..., 0], dtype="bool") if mask is None else ops.cast(mask, "bool")
    if len(valid.shape) != 2:
        raise ValueError(f"Expected a mask of shape (batch, time). Received: mask.shape={tuple(valid.shape)}")
    if has_weights:
        weights = ops.where(valid[..., None], ops.cast(targets, "float32"), 0.0)
        log_words = _log_probabilities(y_pred, from_logits)
        if label_smoothing:
            mean_weights = ops.mean(weights, axis=-1, keepdims=True)
            weights = (1.0 - label_smoothing) * weights + label_smoothing * mean_weights
        # Without this `where`, a word of weight 0 and probability 0 would give 0 log 0, which is NaN.
        return ops.sum(weights * ops.where(ops.equal(weights, 0.0), 0.0, log_words), axis=-1), valid
    labels = as_integers("y_true", targets)
    if ignore_class is not None:
        valid = ops.logical_and(valid, ops.not_equal(labels, ignore_class))
    # The labels of excluded steps may lie outside the vocabulary.
    labels = ops.where(valid, labels, 0)
    if from_logits:
        log_likelihood = -ops.sparse_categorical_crossentropy(labels, y_pred, from_logits=True)
    else:
        log_likelihood = _log_probabilities(ops.take_along_axis(y_pred, labels[..., None], axis=-1)[..., 0], False)
    if label_smoothing:
        uniform = ops.mean(_log_probabilities(y_pred, from_logits), axis=-1)
        log_likelihood = (1.0 - label_smoothing) * log_likelihood + label_smoothing * uniform
    return ops.where(valid, log_likelihood, 0.0), valid


def _log_probabilities(y_pred, from_logits):
    # With this minimum, log 0 becomes -85 nats with a zero gradient, instead of -inf.
    return ops.log_softmax(y_pred) if from_logits else ops.log(ops.maximum(y_pred, 1e-37))
