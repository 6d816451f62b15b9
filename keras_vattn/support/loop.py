"""The one loop of the library: a step over time, eagerly, in graph and under XLA, of static or unknown length."""

import tensorflow as tf
from keras import ops, tree


def product(x, kernel):
    """Return x @ kernel, (..., D) x (D, units), for a kernel that a loop around it does not change.

    What a step multiplies by a weight goes through here: of rank 2, because the gradient of a matmul of rank 3 does not
    compile in a loop whose batch size is unknown, and in one place, which knows which gradients are sums over steps.

    Example:

    >>> keras_vattn.recurrent.product(keras.ops.ones((2, 4, 3)), keras.ops.ones((3, 5))).shape
    TensorShape([2, 4, 5])
    """
    kernel = ops.cast(kernel, x.dtype)
    if len(x.shape) == 2:
        return ops.matmul(x, kernel)
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    return ops.reshape(rows, (*ops.shape(x)[:-1], kernel.shape[-1]))


def scan(step, state, inputs, length):
    """Run `outputs_t, state = step(inputs_t, state)` over the time axis and stack the outputs.

    `keras.ops.scan` on TensorFlow drops outputs that are not shaped like the carry and does not compile under XLA,
    hence this helper on `tf.while_loop` with `maximum_iterations`; eagerly the steps run one by one.

    Args:
        step: Function of a structure of (B, ...) tensors and the state; returns a structure of (B, ...) tensors and the
            next state.
        state: Structure of tensors whose shapes and dtypes the step keeps.
        inputs: Structure of (B, T, ...) tensors, for instance a dictionary; may be empty.
        length: T, an integer or a scalar tensor.

    Returns:
        A tuple of the stacked outputs, (B, T, ...), and the last state.
    """
    flat_inputs = [tf.convert_to_tensor(x) for x in tree.flatten(inputs)]
    if tf.executing_eagerly() and length:
        return _scan_eagerly(step, state, inputs, [tf.unstack(x, axis=1) for x in flat_inputs], int(length))
    inputs_by_time = [tf.TensorArray(x.dtype, length).unstack(ops.swapaxes(x, 0, 1)) for x in flat_inputs]
    inputs_of = lambda time: tree.pack_sequence_as(inputs, [array.read(time) for array in inputs_by_time])  # noqa: E731
    flat_state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]
    output_structure, output_specs = trace(
        lambda inputs, state: step(inputs, state)[0],
        tree.pack_sequence_as(inputs, [tf.TensorSpec(x.shape[:1] + x.shape[2:], x.dtype) for x in flat_inputs]),
        tree.pack_sequence_as(state, [tf.TensorSpec(x.shape, x.dtype) for x in flat_state]),
    )
    arrays = [tf.TensorArray(spec.dtype, length, element_shape=spec.shape) for spec in output_specs]

    def body(time, arrays, flat_state):
        outputs, new_state = step(inputs_of(time), tree.pack_sequence_as(state, flat_state))
        tree.assert_same_structure(output_structure, outputs)
        arrays = [array.write(time, x) for array, x in zip(arrays, tree.flatten(outputs), strict=True)]
        return time + 1, arrays, _flat_like(new_state, flat_state)

    _, arrays, flat_state = tf.while_loop(
        lambda time, *_: time < length,
        body,
        (tf.constant(0), arrays, flat_state),
        maximum_iterations=length,
    )
    stacked = [ops.swapaxes(array.stack(), 0, 1) for array in arrays]
    return tree.pack_sequence_as(output_structure, stacked), tree.pack_sequence_as(state, flat_state)


def _scan_eagerly(step, state, inputs, inputs_by_time, length):
    """A step is what it is: no trace is needed to know its outputs, and what it prints is seen."""
    flat_state, of_steps = [tf.convert_to_tensor(x) for x in tree.flatten(state)], []
    for time in range(length):
        now = tree.pack_sequence_as(inputs, [x[time] for x in inputs_by_time])
        outputs, new_state = step(now, tree.pack_sequence_as(state, flat_state))
        flat_state = _flat_like(new_state, flat_state)
        of_steps.append(outputs)
    stacked = tree.map_structure(lambda *outputs: tf.stack(outputs, axis=1), *of_steps)
    return stacked, tree.pack_sequence_as(state, flat_state)


def _flat_like(new_state, flat_state):
    return [tf.ensure_shape(x, old.shape) for x, old in zip(tree.flatten(new_state), flat_state, strict=True)]


def trace(function, *arguments):
    """Return the structure of a function's result and a TensorSpec for each entry, from a trace that is thrown away.

    Args:
        function: Function of structures of tensors.
        *arguments: Structures of `tf.TensorSpec`.
    """
    structure = None
    flat = [tree.flatten(argument) for argument in arguments]

    def traced(flat_arguments):
        nonlocal structure
        packed = [tree.pack_sequence_as(*pair) for pair in zip(arguments, flat_arguments, strict=True)]
        structure = function(*packed)
        return tree.flatten(structure)

    results = tf.function(traced, autograph=False).get_concrete_function(flat).structured_outputs
    return tree.map_structure(lambda _: None, structure), results
