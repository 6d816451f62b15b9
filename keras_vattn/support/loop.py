"""Run a step over all time steps, eagerly, in graph mode or under XLA, with a static or dynamic length.

In training, `scan` runs its own backward loop, because the gradient of `tf.while_loop` is slow and stores all values:

- Before the loops, the step is traced once (`traced_step.py`). Both loops contain copies of the traced operations.
- The forward loop stores the states and the products with kernels (`products.py`).
- The backward loop recomputes the other values.
- After the backward loop, one product over all steps computes the gradient of each kernel.

`scan` uses the slow gradient of `tf.while_loop` if a step samples, assigns, prints, or reads a variable in a branch or
an inner loop. The results are equal, so tests of values cannot detect this.
"""

import tensorflow as tf
from keras import ops, tree

from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.traced_step import TracedStep, is_float, select, shaped_like, split

NO_SECOND_GRADIENT = (
    "the gradient of a loop in training cannot be differentiated. Run its steps eagerly (`run_eagerly=True`), or, "
    "without noise and dropout, with `training=False`."
)


def scan(step, state, inputs, length, training=False, noise=()):
    """Run `outputs_t, state = step(inputs_t, state)` for every time step, and stack the outputs.

    On TensorFlow, `keras.ops.scan` has no gradient under XLA, and does not support several outputs.

    Args:
        step: Function of the inputs of a step (a structure of (B, ...) tensors) and the state. It returns the outputs
            (a structure of (B, ...) tensors) and the next state.
        state: Structure of tensors. The step must not change their shapes or dtypes.
        inputs: Structure of (B, T, ...) tensors, for instance a dictionary. It may be empty.
        length: T, an integer or a scalar tensor.
        training: Whether to use the fast backward loop. If `True`, the gradient cannot be differentiated again.
        noise: Keys of `inputs` that need no gradient. If there are such keys, `inputs` must be a dictionary.

    Returns:
        A tuple of the stacked outputs, (B, T, ...), and the last state.
    """
    if tf.executing_eagerly() and length:
        return _scan_eagerly(step, state, inputs, int(length))
    # At length 0, run one step on zeros and discard the results.
    is_static = bool(tf.get_static_value(length))
    num_steps = length if is_static else tf.maximum(length, 1)
    if not is_static:
        inputs = tree.map_structure(lambda x: _padded(tf.convert_to_tensor(x), num_steps - length), inputs)
    loop = _Loop(step, state, inputs, num_steps)
    has_backward_loop = training and loop.step.is_pure and not tf.executing_eagerly()
    outputs, last = loop.run_in_training(noise) if has_backward_loop else loop.run(step)
    outputs = [ops.swapaxes(x, 0, 1) for x in outputs]
    if not is_static:
        outputs = [_cut(x, length) for x in outputs]
        last = [tf.where(length > 0, new, old) for new, old in zip(last, loop.flat_state, strict=True)]
    return tree.pack_sequence_as(loop.step.output_structure, outputs), tree.pack_sequence_as(state, last)


def _padded(x, num_steps):
    return tf.pad(x, [[0, 0], [0, num_steps], *[[0, 0]] * (x.shape.rank - 2)])


def _cut(x, length):
    cut = tf.slice(x, [0] * x.shape.rank, [-1, length, *[-1] * (x.shape.rank - 2)])
    cut.set_shape((x.shape[0], tf.get_static_value(length), *x.shape[2:]))
    return cut


def _scan_eagerly(step, state, inputs, length):
    """Run the steps one by one, without tracing."""
    inputs_by_time = [tf.unstack(tf.convert_to_tensor(x), axis=1) for x in tree.flatten(inputs)]
    flat_state, outputs_by_time = [tf.convert_to_tensor(x) for x in tree.flatten(state)], []
    for time in range(length):
        step_inputs = tree.pack_sequence_as(inputs, [x[time] for x in inputs_by_time])
        outputs, new_state = step(step_inputs, tree.pack_sequence_as(state, flat_state))
        flat_state = shaped_like(tree.flatten(new_state), flat_state)
        outputs_by_time.append(outputs)
    stacked = tree.map_structure(lambda *outputs: tf.stack(outputs, axis=1), *outputs_by_time)
    return stacked, tree.pack_sequence_as(state, flat_state)


class _Loop:
    """A forward loop over time and, in training, a backward loop."""

    def __init__(self, step, state, inputs, length):
        self.length = length
        self.inputs, self.state = (tree.map_structure(tf.convert_to_tensor, x) for x in (inputs, state))
        self.flat_inputs, self.flat_state = tree.flatten(self.inputs), tree.flatten(self.state)
        self.inputs_by_time = [ops.swapaxes(x, 0, 1) for x in self.flat_inputs]
        self.step = TracedStep(
            step,
            tree.map_structure(lambda x: tf.TensorSpec(x.shape[:1] + x.shape[2:], x.dtype), self.inputs),
            tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), self.state),
        )

    def run(self, step):
        """Return two lists of tensors: the outputs (T, B, ...) and the last state."""
        # Without `TensorArray`, the gradient of each slice would be as large as the whole sequence.
        arrays = [tf.TensorArray(x.dtype, self.length).unstack(x) for x in self.inputs_by_time]

        def call(time, flat_state):
            inputs = tree.pack_sequence_as(self.inputs, [array.read(time) for array in arrays])
            outputs, new_state = step(inputs, tree.pack_sequence_as(self.state, flat_state))
            tree.assert_same_structure(self.step.output_structure, outputs)
            return tree.flatten(outputs), tree.flatten(new_state)

        return self._run_forward(call, self.step.outputs)

    def run_in_training(self, noise):
        """Return the same results as `run`, with the gradient of the backward loop."""
        step = self.step
        is_noise = tree.map_structure(lambda _: False, self.inputs)
        for name in noise:
            is_noise[name] = tree.map_structure(lambda _: True, self.inputs[name])
        pairs = zip(self.flat_inputs, tree.flatten(is_noise), strict=True)
        has_gradient = [is_float(x) and not flag for x, flag in pairs]
        self.shared, self.kernels = step.read()

        def call(time, flat_state):
            inputs = _read(self.inputs_by_time, time)
            outputs, new_state, results = step.forward(inputs, flat_state, self.shared, self.kernels)
            return [*outputs, *flat_state, *results], new_state

        @custom_gradient
        def run(*_):
            lists = step.outputs, self.flat_state, [entry.result for entry in step.products]
            stored, last = self._run_forward(call, [x for each in lists for x in each])
            outputs, states, results = split(stored, *lists)

            def gradient(*upstream):
                upstream = split([x if x is None else tf.convert_to_tensor(x) for x in upstream], outputs, last)
                return self._run_backward(has_gradient, states, results, *upstream)

            return (*outputs, *last), gradient

        sources = [*select(self.flat_inputs, has_gradient), *filter(is_float, [*self.flat_state, *self.shared])]
        return split(run(*sources, *self.kernels), step.outputs, self.flat_state)

    def _run_forward(self, call, specs):
        """Return the stacked outputs of `call(time, state)`, which have the shapes of `specs`, and the last state."""

        def body(time, arrays, flat_state):
            outputs, new_state = call(time, flat_state)
            arrays = [array.write(time, x) for array, x in zip(arrays, outputs, strict=True)]
            return arrays, shaped_like(new_state, flat_state)

        arrays, last = self._repeat(body, self._arrays(specs), self.flat_state)
        return [array.stack() for array in arrays], last

    def _run_backward(self, has_gradient, states, results, output_gradients, state_gradients):
        """Return the gradients of the inputs, the first state, the shared tensors and the kernels, in one list.

        `states`, `results` (of the recorded products) and `output_gradients` are lists of (T, B, ...) tensors.
        """
        # TensorFlow passes zeros for outputs that do not affect the loss.
        is_read = [x is not None and is_float(x) and x.op.type != "ZerosLike" for x in output_gradients]
        step = self.step.gradient(is_read, has_gradient)
        by_time = self.inputs_by_time, states, results, select(output_gradients, is_read)
        transposed = [tf.transpose(x) if x.shape.rank == 2 else x for x in self.kernels]

        def body(count, arrays, state_gradients, sums):
            time = self.length - 1 - count
            inputs, state, products, upstream = (_read(tensors, time) for tensors in by_time)
            upstream = [*upstream, *state_gradients]
            *stored, new_gradients, terms = step.run(inputs, state, self.shared, transposed, products, upstream)
            stored = [x for each in stored for x in each]
            arrays = [array.write(time, x) for array, x in zip(arrays, stored, strict=True)]
            sums = [total + x for total, x in zip(sums, terms, strict=True)]
            return arrays, shaped_like(new_gradients, state_gradients), sums

        stored = step.inputs, step.rows, step.results
        shared = select(filter(is_float, self.shared), [x is not None for x in step.shared])
        arrays, state_gradients, sums = self._repeat(
            body,
            self._arrays([x for each in stored for x in each if x is not None]),
            select(state_gradients, map(is_float, self.flat_state)),
            [tf.zeros_like(x) for x in shared],
        )
        stacked, sums = iter([array.stack() for array in arrays]), iter(sums)
        inputs, rows, results = ([x if x is None else next(stacked) for x in each] for each in stored)
        inputs = [x if x is None else ops.swapaxes(x, 0, 1) for x in inputs]
        shared = [x if x is None else next(sums) for x in step.shared]
        kernels = [
            None if x is None else entry.kernel_gradient(x, gradient)
            for entry, x, gradient in zip(self.step.products, rows, results, strict=True)
        ]
        return [x if x is None else _forbid_gradient(x) for x in [*inputs, *state_gradients, *shared, *kernels]]

    def _arrays(self, tensors):
        return [tf.TensorArray(x.dtype, self.length, element_shape=x.shape) for x in tensors]

    def _repeat(self, body, *variables):
        """Return the variables after `length` calls of `body(count, *variables)`."""

        def counted(count, *variables):
            return count + 1, *body(count, *variables)

        start = (tf.constant(0), *variables)
        # Without `maximum_iterations`, the loop would have no gradient under XLA.
        return tf.while_loop(lambda count, *_: count < self.length, counted, start, maximum_iterations=self.length)[1:]


def _read(tensors, time):
    """Return `x[time]`, (B, ...), for each tensor x (T, B, ...), without a copy."""
    begin, end, strides = tf.reshape(time, (1,)), tf.reshape(time + 1, (1,)), tf.constant([1])
    return [tf.strided_slice(x, begin, end, strides, shrink_axis_mask=1) for x in tensors]


def _forbid_gradient(gradient):
    # A second gradient would be wrong, because the stored products are constants.
    return tf.raw_ops.PreventGradient(input=gradient, message=NO_SECOND_GRADIENT)


def trace(function, *arguments):
    """Return the structure of a function's result, and a flat list of the TensorSpecs. The function is only traced.

    Args:
        function: Function. Each of its arguments is a tensor or a nested structure of tensors.
        *arguments: Arguments with a `tf.TensorSpec` in place of each tensor.
    """
    structure = None
    flat = [tree.flatten(argument) for argument in arguments]

    def call(flat_arguments):
        nonlocal structure
        packed = [tree.pack_sequence_as(*pair) for pair in zip(arguments, flat_arguments, strict=True)]
        structure = function(*packed)
        return tree.flatten(structure)

    concrete = tf.function(call, autograph=False).get_concrete_function(flat)
    return tree.map_structure(lambda _: None, structure), concrete.structured_outputs
