import keras
from keras import ops

from keras_vattn.support.masks import fits


class SequenceLoss(keras.losses.Loss):
    """Base class of sequence losses, which are summed over time and then reduced over the batch.

    A subclass defines `log_likelihood`.

    Args:
        reduction: Reduction over the batch, as in `keras.losses.Loss`.
        name: Name of the loss.
    """

    def __init__(self, reduction, name):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self._batch_reduction = _PerSequence(name=name, reduction=reduction)

    def log_likelihood(self, y_true, y_pred):
        """Return float32 log-likelihoods (B, T) or (B,), and a boolean mask. Excluded steps have 0 and `False`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `log_likelihood`.")

    # `Loss.__call__` would apply the mask (B, T) to losses (B,), after the sum over time. If B equals T, this is
    # wrong, but raises no error.
    def __call__(self, y_true, y_pred, sample_weight=None):
        with keras.name_scope(self.name):
            log_likelihood, valid = self.log_likelihood(y_true, y_pred)
            sequence_weight = None
            if sample_weight is not None:
                sample_weight = ops.convert_to_tensor(sample_weight, "float32")
                if len(sample_weight.shape) > 1:
                    _check_step_weight(sample_weight, log_likelihood)
                    log_likelihood = ops.where(valid, log_likelihood * sample_weight, 0.0)
                else:
                    sequence_weight = ops.broadcast_to(sample_weight, ops.shape(log_likelihood)[:1])
            losses = -log_likelihood if len(log_likelihood.shape) == 1 else -ops.sum(log_likelihood, axis=1)
            return self._batch_reduction(losses, losses, sample_weight=sequence_weight)


class _PerSequence(keras.losses.Loss):
    """Reduces per-sequence losses (B,) over the batch, as Keras does."""

    def call(self, y_true, y_pred):
        return y_pred


def _check_step_weight(sample_weight, log_likelihood):
    expected, received = tuple(log_likelihood.shape), tuple(sample_weight.shape)
    single_step = (*expected[:1], *(1 for _ in expected[1:]))
    if not (fits(received, expected) or fits(received, single_step)):
        raise ValueError(
            "`sample_weight` must be a scalar or (batch,) or, if the losses have a time axis, (batch, time). "
            f"Received: sample_weight.shape={received} for losses of shape {expected}"
        )
