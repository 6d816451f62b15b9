import keras
from keras import ops


class RecurrentCell(keras.layers.Layer):
    """A recurrent cell whose input is split in a part known before the loop and a context known only inside it.

    `project_inputs` runs once over all steps; `step` is what truly depends on the previous one. It carries no dropout:
    a Keras cell caches its mask and fails on a second trace.

    Args:
        units: Width of the state.
        context_width: Width of the context that enters at each step, 0 for none.
        kernel_initializer: Initializer of what the input and the context are multiplied by.
        recurrent_initializer: Initializer of what the state is multiplied by.
    """

    num_states = 1
    num_gates = 1

    def __init__(
        self,
        units,
        context_width=0,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = units
        self.context_width = context_width
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)

    def build(self, input_shape):
        width = self.num_gates * self.units
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], width), initializer=self.kernel_initializer.clone()
        )
        if self.context_width:
            self.context_kernel = self.add_weight(
                name="context_kernel", shape=(self.context_width, width), initializer=self.kernel_initializer.clone()
            )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.units, width), initializer=self.recurrent_initializer.clone()
        )

    def project_inputs(self, inputs):
        """Return the gates' share of the inputs, (..., D) -> (..., num_gates * units)."""
        return ops.matmul(inputs, ops.cast(self.kernel, inputs.dtype)) + ops.cast(self.bias, inputs.dtype)

    def loop_kernels(self):
        """Return what `step` multiplies by, put together once before the loop."""
        raise NotImplementedError

    def step(self, projected, context, states, kernels):
        """Return the output (B, units) and new states, from projected inputs, context (B, Dc) or `None`, and states."""
        raise NotImplementedError


class LSTMCell(RecurrentCell):
    """Long short-term memory with the gates in Keras's order i, f, c, o; states h and c."""

    num_states = 2
    num_gates = 4

    def build(self, input_shape):
        super().build(input_shape)
        self.bias = self.add_weight(name="bias", shape=(4 * self.units,), initializer=_unit_forget_bias)

    def loop_kernels(self):
        kernels = [self.context_kernel, self.recurrent_kernel] if self.context_width else [self.recurrent_kernel]
        return ops.cast(ops.concatenate(kernels, axis=0), self.compute_dtype)

    def step(self, projected, context, states, kernels):
        hidden, cell = states
        recurrent = hidden if context is None else ops.concatenate([context, hidden], axis=-1)
        gates = projected + ops.matmul(recurrent, kernels)
        input_gate, forget_gate, candidate, output_gate = ops.split(gates, 4, axis=-1)
        cell = ops.sigmoid(forget_gate) * cell + ops.sigmoid(input_gate) * ops.tanh(candidate)
        hidden = ops.sigmoid(output_gate) * ops.tanh(cell)
        return hidden, [hidden, cell]


class GRUCell(RecurrentCell):
    """Gated recurrent unit in Keras's default form (`reset_after=True`, gates z, r, h); state h."""

    num_states = 1
    num_gates = 3

    def build(self, input_shape):
        super().build(input_shape)
        self.bias = self.add_weight(name="bias", shape=(3 * self.units,), initializer="zeros")
        self.recurrent_bias = self.add_weight(name="recurrent_bias", shape=(3 * self.units,), initializer="zeros")

    def loop_kernels(self):
        context_kernel = ops.cast(self.context_kernel, self.compute_dtype) if self.context_width else None
        return (
            context_kernel,
            ops.cast(self.recurrent_kernel, self.compute_dtype),
            ops.cast(self.recurrent_bias, self.compute_dtype),
        )

    def step(self, projected, context, states, kernels):
        context_kernel, recurrent_kernel, recurrent_bias = kernels
        (hidden,) = states
        if context is not None:
            projected = projected + ops.matmul(context, context_kernel)
        recurrent = ops.matmul(hidden, recurrent_kernel) + recurrent_bias
        input_update, input_reset, input_candidate = ops.split(projected, 3, axis=-1)
        update, reset, candidate = ops.split(recurrent, 3, axis=-1)
        update = ops.sigmoid(input_update + update)
        candidate = ops.tanh(input_candidate + ops.sigmoid(input_reset + reset) * candidate)
        hidden = update * hidden + (1 - update) * candidate
        return hidden, [hidden]


def _unit_forget_bias(shape, dtype=None):
    units = shape[0] // 4
    return ops.concatenate([ops.zeros(units, dtype), ops.ones(units, dtype), ops.zeros(2 * units, dtype)], axis=0)


CELLS = {"lstm": LSTMCell, "gru": GRUCell}
