import keras
import tensorflow as tf
from keras import ops

from keras_vattn.recurrent.cells import lstm
from keras_vattn.support.loop import scan
from keras_vattn.support.masks import where_rows
from keras_vattn.support.products import product


@keras.saving.register_keras_serializable(package="keras_vattn")
class LSTM(keras.layers.LSTM):
    """Replacement for `keras.layers.LSTM` that trains faster on a CPU.

    Arguments, weights, masks and results are the same as in the Keras layer. This layer also works inside
    `keras.layers.Bidirectional`. Second derivatives are not available in training. Keras's slower code runs with
    `unroll=True`, `recurrent_dropout`, other activations, another cell class, or `implementation=1` with dropout.

    On a GPU, Keras's cuDNN code runs. XLA cannot compile cuDNN: set `use_cudnn=False` to train with XLA on a GPU. cuDNN
    needs masks padded on the right. For a sequence without a valid step, this layer returns zeros.

    Args:
        units: Width of the states and of the output.
        **kwargs: All other arguments of `keras.layers.LSTM`.

    Call arguments:
        sequences: (B, T, D).
        initial_state: [h, c], (B, units) each, or `None` for zeros.
        mask: Boolean (B, T).
        training: Whether to apply dropout.

    Returns:
        The last output (B, units), or all outputs (B, T, units) with `return_sequences=True`. With `return_state=True`,
        also h and c.

    Raises:
        ValueError: In the same cases as `keras.layers.LSTM`.

    Example:

    >>> layer = keras.layers.Bidirectional(keras_vattn.fast.LSTM(4, return_sequences=True))
    >>> layer(keras.ops.ones((2, 5, 3))).shape
    TensorShape([2, 5, 8])
    """

    def inner_loop(self, sequences, initial_state, mask, training=False):
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        if not self._uses_library_loop(has_gpu):
            if has_gpu and mask is not None:
                return self._without_empty_rows(sequences, initial_state, mask, training)
            return super().inner_loop(sequences, initial_state, mask, training)
        cell, sequences = self.cell, ops.cast(sequences, self.compute_dtype)
        if training and self.dropout:
            sequences = sequences * ops.expand_dims(cell.get_dropout_mask(sequences[:, 0, :]), axis=1)
        projected = product(sequences, cell.kernel)
        if cell.use_bias:
            projected = projected + ops.cast(cell.bias, projected.dtype)
        inputs = {"projected": projected}
        if mask is not None:
            inputs["mask"] = ops.cast(mask[0] if isinstance(mask, (list, tuple)) else mask, "bool")
        if self.go_backwards:
            inputs = {name: ops.flip(x, axis=1) for name, x in inputs.items()}
        outputs, states = scan(self._step, list(initial_state), inputs, ops.shape(sequences)[1], training)
        if mask is not None:
            # At masked steps, the loop repeats the last output. Keras returns zeros at masked steps before the first
            # valid step. With `zero_output_for_mask`, Keras returns zeros at all masked steps.
            is_output = inputs["mask"]
            if not self.zero_output_for_mask:
                is_output = ops.cumsum(ops.cast(is_output, "int32"), axis=1) > 0
            outputs = ops.where(ops.expand_dims(is_output, -1), outputs, ops.zeros_like(outputs))
        return outputs[:, -1], outputs, states

    def _without_empty_rows(self, sequences, initial_state, mask, training):
        """Run Keras's GPU loop. Return zeros and the initial state for fully masked rows, which cuDNN rejects."""
        mask = ops.cast(mask[0] if isinstance(mask, (list, tuple)) else mask, "bool")
        is_empty = ops.logical_not(ops.any(mask, axis=1, keepdims=True))
        is_first = ops.equal(ops.cumsum(ops.ones_like(mask, "int32"), axis=1), 1)
        mask = ops.logical_or(mask, ops.logical_and(is_empty, is_first))
        last, outputs, states = super().inner_loop(sequences, initial_state, mask, training)
        last = ops.where(is_empty, ops.zeros_like(last), last)
        outputs = ops.where(ops.expand_dims(is_empty, -1), ops.zeros_like(outputs), outputs)
        return last, outputs, [ops.where(is_empty, *pair) for pair in zip(initial_state, states, strict=True)]

    def _uses_library_loop(self, has_gpu):
        cell = self.cell
        has_default_activations = type(cell) is keras.layers.LSTMCell and cell.activation is keras.activations.tanh
        has_default_activations = has_default_activations and cell.recurrent_activation is keras.activations.sigmoid
        has_one_mask = not cell.dropout or cell.implementation == 2
        needs_keras = self.unroll or self.recurrent_dropout or self.use_cudnn is True
        return has_default_activations and has_one_mask and not needs_keras and (not has_gpu or self.use_cudnn is False)

    def _step(self, inputs, states):
        summed = inputs["projected"] + product(states[0], self.cell.recurrent_kernel)
        new_states = lstm(ops.split(summed, 4, axis=-1), states[1])
        if "mask" in inputs:
            new_states = [where_rows(inputs["mask"], new, old) for new, old in zip(new_states, states, strict=True)]
        return new_states[0], list(new_states)
