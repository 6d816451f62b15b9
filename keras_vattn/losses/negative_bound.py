import keras
from keras import ops

from keras_vattn.losses.sequence_loss import SequenceLoss
from keras_vattn.support import keras_private
from keras_vattn.support.ids import as_integers
from keras_vattn.support.masks import check_shape
from keras_vattn.support.validation import integer, refuse_ignore_class


@keras.saving.register_keras_serializable(package="keras_vattn")
class NegativeBound(SequenceLoss):
    """Loss for models that output a log-likelihood or a bound on it. It sums over time and averages over the batch.

    Use this loss for a model that takes the targets as an input and ends in `keras_vattn.LatentLogLikelihood`. With the
    KL of `keras_vattn.CategoricalAttention`, the total loss is the negative ELBO in nats (Deng et al. 2018, section 3).

    `ignore_class` and the Keras mask of `y_pred` exclude steps. Excluded steps have zero loss and zero gradient.

    Formula:
        "loss" = - 1/B sum_b sum_t "mask"_(b,t) * "sample_weight"_(b,t) * "y_pred"_(b,t)

    Args:
        ignore_class: Integer label in `y_true` that marks steps to exclude, for instance the label of padding. Defaults
            to `None`.
        reduction: As in `keras.losses.Loss`, applied over the batch. `None` returns one loss per sequence. Defaults to
            `"sum_over_batch_size"`.
        name: Name of the loss. Defaults to `"negative_bound"`.

    Call arguments:
        y_true: Integer labels, with the shape of `y_pred`. If `ignore_class` is `None`, `y_true` is not used, and can
            have any shape.
        y_pred: Log-likelihood or bound in nats, of each step (B, T) or of each example (B,).
        sample_weight: A scalar, one weight per sequence (B,), or one weight per step (B, T).

    Returns:
        The loss in nats, a float32 scalar under every dtype policy, or (B,) if `reduction` is `None`.

    Raises:
        ValueError: If the shapes do not match. If `ignore_class` is set and `y_true` contains votes instead of labels.

    Example:

    >>> import numpy as np
    >>> loss = keras_vattn.NegativeBound(ignore_class=0)
    >>> float(loss(np.array([[4, 2, 0]]), np.array([[-1.0, -2.0, -3.0]])))
    3.0
    """

    def __init__(self, ignore_class=None, reduction="sum_over_batch_size", name="negative_bound"):
        super().__init__(name=name, reduction=reduction)
        self.ignore_class = integer("ignore_class", ignore_class, optional=True)

    def log_likelihood(self, y_true, y_pred):
        mask = keras_private.mask_of(y_pred)
        bound = ops.cast(ops.convert_to_tensor(y_pred), "float32")
        if len(bound.shape) not in (1, 2):
            raise ValueError(
                f"Expected a bound of shape (batch, time) or (batch,). Received: y_pred.shape={tuple(bound.shape)}"
            )
        meaning = "(batch, time)" if len(bound.shape) == 2 else "(batch,)"
        valid = ops.ones_like(bound, dtype="bool") if mask is None else ops.cast(mask, "bool")
        check_shape("mask", valid, tuple(bound.shape), meaning)
        if self.ignore_class is not None:
            labels = ops.convert_to_tensor(y_true)
            is_float = keras.backend.is_float_dtype(labels.dtype)
            if is_float and len(labels.shape) > len(bound.shape) and labels.shape[-1] != 1:
                refuse_ignore_class("y_true", labels, self.ignore_class)
            check_shape("y_true", labels, tuple(bound.shape), meaning)
            valid = ops.logical_and(valid, ops.not_equal(as_integers("y_true", labels), self.ignore_class))
        return ops.where(valid, bound, 0.0), valid

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}
