import keras
import tensorflow as tf
from keras import ops

from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.products import product
from keras_vattn.support.validation import positive_integer


class RecurrentCell(FeatureInputs, keras.layers.Layer):
    """Base class of recurrent cells.

    A subclass defines `step`, which computes the output and the new states, and sets three class attributes:

    - `num_states`: Number of states (B, units). Defaults to 1.
    - `num_gates`: Number of gates of width `units`. Defaults to 1.
    - `context_gates`: Slice that selects the gates that read the context. Defaults to all gates.

    If a subclass needs more weights, create them in `build`, after `super().build`. Before the loop over steps, a
    decoder calls `project_inputs` for all steps and `loop_kernels` once. Decoders apply dropout outside the cell: a
    Keras cell stores its dropout mask, which fails if the step is traced again.

    Formula:
        "gates"_t = W x_t + C * "context"_t + U h_(t-1) + b

    Args:
        units: Width of the states and of the output.
        kernel_initializer: Initializer of the input kernel W and the context kernel C. Defaults to `"glorot_uniform"`.
        recurrent_initializer: Initializer of the recurrent kernel U. Defaults to `"orthogonal"`.
        bias_initializer: Initializer of the bias b. In an `LSTMCell`, the bias of the forget gate starts at 1 instead.
            Defaults to `"zeros"`.

    Call arguments:
        inputs: (B, D).
        context: (B, Dc), or `None`.
        states: List of `num_states` tensors (B, units), or `None` for zeros.

    Returns:
        The output (B, units) and the list of new states.

    Raises:
        ValueError: If `units` is not positive, or if a context is passed to only one of `build` and the call.

    Example:

    >>> class Elman(keras_vattn.RecurrentCell):
    ...     def step(self, projected, context, states, kernels):
    ...         (gate,) = self.gates(projected, context, states[0], kernels)
    ...         hidden = keras.ops.tanh(gate)
    ...         return hidden, [hidden]
    >>> attention = keras_vattn.Attention("additive")
    >>> decoder = keras_vattn.AttentionDecoder(8, attention, cell=Elman)
    >>> decoder(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 5, 6)))["hidden"].shape
    TensorShape([2, 4, 8])
    """

    feature_arguments = ("inputs", "context")
    num_states = 1
    num_gates = 1
    context_gates = slice(None)

    def __init__(
        self,
        units,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = positive_integer("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, inputs_shape, context_shape=None):
        width = self.num_gates * self.units
        self.kernel = self.add_weight(
            name="kernel", shape=(inputs_shape[-1], width), initializer=self.kernel_initializer.clone()
        )
        self.context_kernel = None
        if context_shape is not None:
            start, stop = self._context_columns()
            self.context_kernel = self.add_weight(
                name="context_kernel",
                shape=(context_shape[-1], stop - start),
                initializer=self.kernel_initializer.clone(),
            )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.units, width), initializer=self.recurrent_initializer.clone()
        )
        self.bias = self._add_bias("bias", self.initial_bias)

    def _add_bias(self, name, initializer):
        return self.add_weight(name=name, shape=(self.num_gates * self.units,), initializer=initializer)

    def initial_bias(self, shape, dtype=None):
        """Return the initial bias of all gates, (num_gates * units,)."""
        return self.bias_initializer.clone()(shape, dtype)

    def project_inputs(self, inputs):
        """Return W inputs + b for all gates, (..., D) -> (..., num_gates * units)."""
        return product(inputs, self.kernel) + ops.cast(self.bias, inputs.dtype)

    def loop_kernels(self):
        """Return a dictionary of the kernels that `step` needs. Call `loop_kernels` once, before the loop."""
        kernels = {"recurrent": self.recurrent_kernel}
        if self.context_kernel is not None:
            kernels["context"] = self.context_kernel
        return {name: ops.cast(kernel, self.compute_dtype) for name, kernel in kernels.items()}

    def add_context(self, projected, context, kernels):
        """Return the projected inputs plus C * context in the gates `context_gates`. `None` adds nothing."""
        self.check_context(context)
        if context is None:
            return projected
        projected_context = product(context, kernels["context"])
        if self._context_enters_all:
            return projected + projected_context
        start, stop = self._context_columns()
        before_gates, context_part, after_gates = projected[:, :start], projected[:, start:stop], projected[:, stop:]
        return ops.concatenate([before_gates, context_part + projected_context, after_gates], axis=-1)

    def check_context(self, context):
        """Raise ValueError if a context was passed to only one of `build` and the call."""
        if (context is None) != (self.context_kernel is None):
            built = None if self.context_kernel is None else (None, self.context_kernel.shape[0])
            raise ValueError(
                "A cell must be called with a context if and only if it was built with one. "
                "Pass the shape of the context to `build`. "
                f"Received: context.shape={None if context is None else tuple(context.shape)}, context_shape={built}"
            )

    def gates(self, projected, context, hidden, kernels):
        """Return the gates before activation, a list of `num_gates` tensors (B, units)."""
        summed = self.add_context(projected, context, kernels) + product(hidden, kernels["recurrent"])
        return ops.split(summed, self.num_gates, axis=-1)

    def step(self, projected, context, states, kernels):
        """Return the output (B, units) and the list of new states, without side effects.

        Args:
            projected: Result of `project_inputs` for this step.
            context: (B, Dc), or `None`.
            states: List of `num_states` tensors (B, units).
            kernels: Result of `loop_kernels`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `step`.")

    def upper_kernels(self):
        """Return a dictionary of the kernels that `upper_step` needs. Call `upper_kernels` once, before the loop."""
        return self.loop_kernels()

    def upper_step(self, inputs, states, kernels):
        """Run `step` for an upper cell of a stack. `inputs` (B, D) are not yet projected."""
        return self.step(self.project_inputs(inputs), None, states, kernels)

    def initial_states(self, batch_size):
        """Return the initial states, a list of `num_states` tensors (B, units) of zeros."""
        return [ops.zeros((batch_size, self.units), self.compute_dtype) for _ in range(self.num_states)]

    def call(self, inputs, context=None, states=None):
        states = self.initial_states(ops.shape(inputs)[0]) if states is None else states
        return self.step(self.project_inputs(inputs), context, states, self.loop_kernels())

    def compute_output_shape(self, inputs_shape, context_shape=None, states_shape=None):
        shape = (inputs_shape[0], self.units)
        return shape, [shape] * self.num_states

    def compute_output_spec(self, inputs, context=None, states=None):
        shape, states = self.compute_output_shape(inputs.shape)
        specs = [keras.KerasTensor(x, dtype=self.compute_dtype) for x in (shape, *states)]
        return specs[0], specs[1:]

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

    def _context_columns(self):
        gates = range(self.num_gates)[self.context_gates]
        return gates[0] * self.units, (gates[-1] + 1) * self.units

    @property
    def _context_enters_all(self):
        return self._context_columns() == (0, self.num_gates * self.units)


@keras.saving.register_keras_serializable(package="keras_vattn")
class LSTMCell(RecurrentCell):
    """Long short-term memory cell with the gate order of Keras and the states h and c.

    Implements Hochreiter and Schmidhuber 1997, as `keras.layers.LSTM` does. The gates are the input gate i, the forget
    gate f, the candidate g and the output gate o, in this order. The bias of the forget gate starts at 1.

    Formula:
        (i, f, g, o) = W x_t + C * "context"_t + U h_(t-1) + b
        c_t = "sigmoid"(f) c_(t-1) + "sigmoid"(i) tanh(g)
        h_t = "sigmoid"(o) tanh(c_t)

    The arguments and call arguments are those of `keras_vattn.RecurrentCell`.

    Example:

    >>> cell = keras_vattn.LSTMCell(4)
    >>> hidden, states = cell(keras.ops.ones((2, 3)), context=keras.ops.ones((2, 5)))
    >>> hidden.shape, len(states)
    (TensorShape([2, 4]), 2)
    """

    num_states = 2
    num_gates = 4

    def initial_bias(self, shape, dtype=None):
        input_bias, _, *remaining = ops.split(super().initial_bias(shape, dtype), 4)
        return ops.concatenate([input_bias, ops.ones_like(input_bias), *remaining], axis=0)

    def loop_kernels(self):
        if self.context_kernel is None or not self._context_enters_all:
            return super().loop_kernels()
        # One product with concatenated kernels is faster.
        return {"joined": self._joined(self.context_kernel, self.recurrent_kernel)}

    def gates(self, projected, context, hidden, kernels):
        if "joined" not in kernels:
            return super().gates(projected, context, hidden, kernels)
        self.check_context(context)
        summed = projected + product(ops.concatenate([context, hidden], axis=-1), kernels["joined"])
        return ops.split(summed, self.num_gates, axis=-1)

    def step(self, projected, context, states, kernels):
        hidden, cell = lstm(self.gates(projected, context, states[0], kernels), states[1])
        return hidden, [hidden, cell]

    def upper_kernels(self):
        if type(self) is not LSTMCell:
            # The kernels below would ignore a `step` that a subclass overrides.
            return super().upper_kernels()
        return {
            "upper": self._joined(self.kernel, self.recurrent_kernel),
            "bias": ops.cast(self.bias, self.compute_dtype),
        }

    def upper_step(self, inputs, states, kernels):
        if "upper" not in kernels:
            return super().upper_step(inputs, states, kernels)
        hidden, cell = states
        summed = tf.nn.bias_add(product(ops.concatenate([inputs, hidden], axis=-1), kernels["upper"]), kernels["bias"])
        hidden, cell = lstm(ops.split(summed, self.num_gates, axis=-1), cell)
        return hidden, [hidden, cell]

    def _joined(self, *kernels):
        return ops.cast(ops.concatenate(kernels, axis=0), self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_vattn")
class GRUCell(RecurrentCell):
    """Gated recurrent unit of Cho et al. 2014, in the form `reset_after=True` of `keras.layers.GRU`.

    The gates are the update gate z, the reset gate r and the candidate g, in this order. The state is h.

    Formula:
        (z, r, g) = W x_t + C * "context"_t + b, quad (z_h, r_h, g_h) = U h_(t-1) + b_u
        h_t = u_t h_(t-1) + (1 - u_t) tanh(g + "sigmoid"(r + r_h) g_h), quad u_t = "sigmoid"(z + z_h)

    The arguments and call arguments are those of `keras_vattn.RecurrentCell`.

    Example:

    >>> hidden, states = keras_vattn.GRUCell(4)(keras.ops.ones((2, 3)))
    >>> hidden.shape, len(states)
    (TensorShape([2, 4]), 1)
    """

    num_gates = 3

    def build(self, inputs_shape, context_shape=None):
        super().build(inputs_shape, context_shape)
        self.recurrent_bias = self._add_bias("recurrent_bias", self.initial_bias)

    def loop_kernels(self):
        return {**super().loop_kernels(), "recurrent_bias": ops.cast(self.recurrent_bias, self.compute_dtype)}

    def step(self, projected, context, states, kernels):
        (hidden,) = states
        projected = self.add_context(projected, context, kernels)
        recurrent = product(hidden, kernels["recurrent"]) + kernels["recurrent_bias"]
        input_update, input_reset, input_candidate = ops.split(projected, 3, axis=-1)
        update, reset, candidate = ops.split(recurrent, 3, axis=-1)
        update = ops.sigmoid(input_update + update)
        candidate = ops.tanh(input_candidate + ops.sigmoid(input_reset + reset) * candidate)
        hidden = update * hidden + (1 - update) * candidate
        return hidden, [hidden]


@keras.saving.register_keras_serializable(package="keras_vattn")
class MaxOutLSTMCell(RecurrentCell):
    """Long short-term memory cell of Att2in: the context enters only the cell update. The states are h and c.

    Implements Rennie et al. 2017, section 2; Fan et al. 2020 also use it (appendix B.3.1). The cell update is the
    maximum of g_1 and g_2, without a tanh.

    Formula:
        (i, f, o) = W_1 x_t + U_1 h_(t-1) + b_1, quad (g_1, g_2) = W_2 x_t + C * "context"_t + U_2 h_(t-1) + b_2
        c_t = "sigmoid"(f) c_(t-1) + "sigmoid"(i) max(g_1, g_2)
        h_t = "sigmoid"(o) tanh(c_t)

    The arguments and call arguments are those of `keras_vattn.RecurrentCell`.

    Example:

    >>> attention = keras_vattn.Attention("additive")
    >>> options = {"cell": "max_out_lstm", "query": "previous"}
    >>> decoder = keras_vattn.AttentionDecoder(8, attention, **options)
    >>> decoder(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 5, 6)))["hidden"].shape
    TensorShape([2, 4, 8])
    """

    num_states = 2
    num_gates = 5
    context_gates = slice(3, 5)

    def step(self, projected, context, states, kernels):
        hidden, cell = states
        i, f, o, first, second = self.gates(projected, context, hidden, kernels)
        cell = ops.sigmoid(f) * cell + ops.sigmoid(i) * ops.maximum(first, second)
        hidden = ops.sigmoid(o) * ops.tanh(cell)
        return hidden, [hidden, cell]


CELLS = {"lstm": LSTMCell, "gru": GRUCell, "max_out_lstm": MaxOutLSTMCell}


def lstm(gates, cell):
    """Return h and the new c of one step of `LSTMCell`.

    Args:
        gates: The gates i, f, g and o before activation, (B, units) each.
        cell: The previous c, (B, units).
    """
    input_gate, forget_gate, candidate, output_gate = gates
    cell = ops.sigmoid(forget_gate) * cell + ops.sigmoid(input_gate) * ops.tanh(candidate)
    return ops.sigmoid(output_gate) * ops.tanh(cell), cell
