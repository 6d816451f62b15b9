"""The one loop of the library: a step over time, eagerly, in graph and under XLA, of static or unknown length.

TensorFlow's gradient of a `tf.while_loop` keeps every intermediate of every step, and adds up each kernel's gradient
step by step. In training the loop here has a backward loop of its own. It keeps the states and the products of a step
with what the loop does not change (`products.py`), computes the rest of a step again, which is cheap and stays in the
cache, and leaves the gradients of kernels for after the loop: one product each, of the rows of all steps.

Before a change: a step in training is called in the trace that finds its products, in the forward loop, and in the
gradient, which is traced when the call is over. Hence the gradient restores what Keras knew of the call, and the values
that variables had before the loop. A step that draws, assigns or reads a `tf.Variable` is not refused, it has
TensorFlow's gradient: right, slow, and unseen by tests of values. tests/support/test_loop_gradients.py counts the
operations of both loops instead. Without `maximum_iterations` a loop has no gradient under XLA.
"""

import contextlib

import keras
import tensorflow as tf
from keras import ops, tree

from keras_vattn.support import keras_private
from keras_vattn.support.gradients import apart, custom_gradient
from keras_vattn.support.products import BackwardProducts, ForwardProducts, PlainProducts, TracedProducts, answering

NO_SECOND_GRADIENT = (
    "the gradient of a loop in training has none itself. Run its steps eagerly (`run_eagerly=True`), or, without draws "
    "and dropout, with `training=False`."
)


def scan(step, state, inputs, length, training=False, noise=(), owner=None):
    """Run `outputs_t, state = step(inputs_t, state)` over the time axis and stack the outputs.

    `keras.ops.scan` on TensorFlow keeps one of several outputs, refuses outputs that are not shaped like the state, and
    has no gradient under XLA, hence this helper on `tf.while_loop`; eagerly the steps run one by one.

    Args:
        step: Function of a structure of (B, ...) tensors and the state; returns a structure of (B, ...) tensors and the
            next state. In training it is pure, and runs a second time for the gradient, with the values that Keras's
            variables have before the loop; the gradient of one that draws, prints, assigns, or reads a variable of
            TensorFlow's own is TensorFlow's.
        state: Structure of tensors whose shapes and dtypes the step keeps.
        inputs: Structure of (B, T, ...) tensors, for instance a dictionary; may be empty.
        length: T, an integer or a scalar tensor.
        training: Whether a gradient is going to be asked for. Where not it is right too, and slower, and has a gradient
            itself; that of training refuses to be differentiated.
        noise: Names of the entries of the dictionary `inputs` whose gradient nobody asks for.
        owner: The layer whose step this is, which keeps its gradient, or `None`.

    Returns:
        A tuple of the stacked outputs, (B, T, ...), and the last state.
    """
    if tf.executing_eagerly() and length:
        return _scan_eagerly(step, state, inputs, int(length))
    # No step leaves nothing to stack, and XLA nothing to read: one of zeros is taken, and cut off. Otherwise a pad of
    # nothing and a slice of everything, and the gradients of both, hand on the tensor that they are given.
    is_known = bool(tf.get_static_value(length))
    steps = length if is_known else tf.maximum(length, 1)
    if not is_known:
        inputs = tree.map_structure(lambda x: _padded(tf.convert_to_tensor(x), steps - length), inputs)
    loop = _Loop(step, state, inputs, steps, training)
    in_training = training and loop.is_pure and not tf.executing_eagerly()
    outputs, last = loop.run_in_training(noise, owner) if in_training else loop.run()
    outputs = [ops.swapaxes(x, 0, 1) for x in outputs]
    if not is_known:
        outputs = [_cut(x, length) for x in outputs]
        last = [tf.where(length > 0, new, old) for new, old in zip(last, loop.flat_state, strict=True)]
    return tree.pack_sequence_as(loop.output_structure, outputs), tree.pack_sequence_as(state, last)


def _padded(x, num_steps):
    return tf.pad(x, [[0, 0], [0, num_steps], *[[0, 0]] * (x.shape.rank - 2)])


def _cut(x, length):
    cut = tf.slice(x, [0] * x.shape.rank, [-1, length, *[-1] * (x.shape.rank - 2)])
    cut.set_shape((x.shape[0], tf.get_static_value(length), *x.shape[2:]))
    return cut


def _scan_eagerly(step, state, inputs, length):
    """A step is what it is: no trace is needed to know its outputs, and what it prints is seen."""
    inputs_by_time = [tf.unstack(tf.convert_to_tensor(x), axis=1) for x in tree.flatten(inputs)]
    flat_state, of_steps = [tf.convert_to_tensor(x) for x in tree.flatten(state)], []
    for time in range(length):
        now = tree.pack_sequence_as(inputs, [x[time] for x in inputs_by_time])
        outputs, new_state = step(now, tree.pack_sequence_as(state, flat_state))
        flat_state = _flat_like(new_state, flat_state)
        of_steps.append(outputs)
    stacked = tree.map_structure(lambda *outputs: tf.stack(outputs, axis=1), *of_steps)
    return stacked, tree.pack_sequence_as(state, flat_state)


def _flat_like(new_state, flat_state):
    pairs = zip(tree.flatten(new_state), flat_state, strict=True)
    return [x if x.shape == old.shape else tf.ensure_shape(x, old.shape) for x, old in pairs]


class _Loop:
    """A step that was traced once, and the loops that run it, forward and back."""

    def __init__(self, step, state, inputs, length, training):
        self.step, self.state, self.inputs, self.length = step, state, inputs, length
        self.flat_inputs = [tf.convert_to_tensor(x) for x in tree.flatten(inputs)]
        self.flat_state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]
        self.input_specs = [tf.TensorSpec(x.shape[:1] + x.shape[2:], x.dtype) for x in self.flat_inputs]
        self.keras_state = keras_private.state()
        answer, self.values = (TracedProducts() if training else PlainProducts()), None
        reads = Reads() if training else None
        self.output_structure, function = traced(
            lambda inputs, state: self.take(answer, inputs, state, reads)[0],
            tree.pack_sequence_as(inputs, self.input_specs),
            tree.pack_sequence_as(state, [tf.TensorSpec(x.shape, x.dtype) for x in self.flat_state]),
        )
        self.output_specs = function.structured_outputs
        self.products = answer.products
        self.captures = function.graph.external_captures
        is_stateful = any(operation.op_def.is_stateful for operation in function.graph.get_operations())
        self.is_pure = training and not (is_stateful or reads.has_updates or answer.is_differentiated)
        if self.is_pure:
            self.values = [(variable, keras_private.value_of(variable)) for variable in reads.variables]
        self.inputs_by_time = [ops.swapaxes(x, 0, 1) for x in self.flat_inputs]

    def take(self, answer, inputs, state, scope=None):
        """Take a step, in which `product` is that of `answer`, and what is read is what the scope says."""
        with answering(answer), contextlib.nullcontext() if scope is None else scope:
            return self.step(inputs, state)

    def scope(self):
        """Return the scope in which variables are what they were before the loop."""
        return None if self.values is None else keras.StatelessScope(self.values, initialize_variables=False)

    def packed(self, flat_inputs, flat_state):
        return tree.pack_sequence_as(self.inputs, flat_inputs), tree.pack_sequence_as(self.state, flat_state)

    def repeat(self, body, *variables):
        """Return what the variables are after `length` calls of `body(count, *variables)`."""
        start = (tf.constant(0), *variables)
        return tf.while_loop(lambda count, *_: count < self.length, body, start, maximum_iterations=self.length)[1:]

    def forward(self, answer_class, specs, read):
        """Run all steps; return what the outputs and what the answers keep amount to, (T, B, ...), and the last state.

        Args:
            answer_class: Class of the answer of a step.
            specs: TensorSpec of each output and of what is kept.
            read: Function of the time that returns the inputs of a step.
        """

        def body(time, arrays, flat_state):
            answer = answer_class(self.products)
            outputs, new_state = self.take(answer, *self.packed(read(time), flat_state), self.scope())
            tree.assert_same_structure(self.output_structure, outputs)
            values = [*tree.flatten(outputs), *answer.kept(flat_state)]
            arrays = [array.write(time, x) for array, x in zip(arrays, values, strict=True)]
            return time + 1, arrays, _flat_like(new_state, flat_state)

        arrays = [tf.TensorArray(x.dtype, self.length, element_shape=x.shape) for x in specs]
        arrays, last = self.repeat(body, arrays, self.flat_state)
        return [array.stack() for array in arrays], last

    def run(self):
        """Return the outputs, (T, B, ...), and the last state, both flat, with the gradient that TensorFlow makes."""
        # The gradient of a slice is as large as what it was taken from, that of an array's entry is not.
        arrays = [tf.TensorArray(x.dtype, self.length).unstack(x) for x in self.inputs_by_time]
        return self.forward(PlainProducts, self.output_specs, lambda time: [array.read(time) for array in arrays])

    def run_in_training(self, noise, owner):
        """Return what `run` does, with a gradient of its own."""
        is_noise = tree.map_structure(lambda _: False, self.inputs)
        for name in noise:
            is_noise[name] = tree.map_structure(lambda _: True, self.inputs[name])
        floats = {
            "inputs": Floats(self.flat_inputs, tree.flatten(is_noise)),
            "state": Floats(self.flat_state),
            "shared": Floats([*self.captures, *(value for _, value in self.values)]),
        }
        products = [x for x in self.products if x is not None]
        for entry in products:
            entry.kernel = tf.convert_to_tensor(ops.cast(entry.kernel, entry.rows.dtype))
        num_outputs, num_states = len(self.output_specs), len(self.flat_state)
        kept = [tf.TensorSpec(x.shape, x.dtype) for x in self.flat_state] + [x.results for x in products]

        @custom_gradient(owner=owner)
        def looped(*_):
            outputs, last = self.forward(
                ForwardProducts, [*self.output_specs, *kept], lambda time: [*map(_reader(time), self.inputs_by_time)]
            )
            outputs, kept_by_time = outputs[:num_outputs], outputs[num_outputs:]

            def gradient(*upstream, variables=()):
                backward = _Backward(self, floats, kept_by_time[:num_states], kept_by_time[num_states:])
                upstream = [x if x is None else tf.convert_to_tensor(x) for x in upstream]
                with tf.name_scope(f"gradient/{'loop' if owner is None else owner.name}"):
                    found = backward.run(upstream[:num_outputs], upstream[num_outputs:])
                # Those that TensorFlow finds are upstream of what has no gradient.
                return (found, [None] * len(variables)) if variables else found

            return (*outputs, *last), gradient

        results = looped(*(x for each in floats.values() for x in each.chosen), *(x.kernel for x in products))
        return results[:num_outputs], results[num_outputs:]


class _Backward:
    """The backward loop: each step is taken again, from the last to the first, and differentiated there and then."""

    def __init__(self, loop, floats, states_by_time, results_by_time):
        self.loop, self.floats = loop, floats
        self.states_by_time, self.results_by_time = states_by_time, results_by_time

    def run(self, of_outputs, of_state):
        """Return the gradients of all that the forward loop depends on.

        Args:
            of_outputs: Gradients of the outputs, (T, B, ...).
            of_state: Gradients of the last state.
        """
        loop, (inputs, state, shared) = self.loop, self.floats.values()
        products = [x for x in loop.products if x is not None]
        for entry in products:
            entry.prepare_backward()
        # The gradient of what no loss reads is zeros that TensorFlow makes.
        reads = [x is not None and x.dtype.is_floating and x.op.type != "ZerosLike" for x in of_outputs]
        of_outputs = chosen(of_outputs, reads)
        specs = chosen(loop.input_specs, inputs.flags) + [x for entry in products for x in (entry.rows, entry.results)]
        # Places in `arrays` and `sums` that nothing is written to.
        unconnected = {"arrays": set(), "sums": set()}

        def body(count, arrays, of_state, sums):
            time = loop.length - 1 - count
            now, before, results, upstream = tree.map_structure(
                _reader(time), [loop.inputs_by_time, self.states_by_time, self.results_by_time, of_outputs]
            )
            answer = BackwardProducts(loop.products, results)
            sources = [chosen(now, inputs.flags), chosen(before, state.flags), shared.chosen, results]
            with tf.GradientTape() as tape:
                tape.watch(sources)
                now, before = inputs.each(apart, now), state.each(apart, before)
                taken = loop.take(answer, *loop.packed(now, before), loop.scope())
                taken = [[tf.convert_to_tensor(x) for x in tree.flatten(structure)] for structure in taken]
            of_inputs, of_before, of_shared, of_results = tape.gradient(
                chosen(taken[0], reads) + chosen(taken[1], state.flags), sources, [*upstream, *of_state]
            )
            written = [*of_inputs, *(x for pair in zip(answer.rows, of_results, strict=True) for x in pair)]
            for name, values in (("arrays", written), ("sums", of_shared)):
                unconnected[name].update(index for index, x in enumerate(values) if x is None)
            arrays = [array if x is None else array.write(time, x) for array, x in zip(arrays, written, strict=True)]
            sums = [old if x is None else old + x for old, x in zip(sums, of_shared, strict=True)]
            of_before = [tf.zeros_like(old) if x is None else x for x, old in zip(of_before, of_state, strict=True)]
            return count + 1, arrays, _flat_like(of_before, of_state), sums

        # The dtype policy, the phase of training and all else that a layer asks Keras for are those of the call.
        with keras_private.in_state(loop.keras_state):
            arrays, of_state, sums = loop.repeat(
                body,
                [tf.TensorArray(x.dtype, loop.length, element_shape=x.shape) for x in specs],
                chosen(of_state, state.flags),
                [tf.zeros_like(x) for x in shared.chosen],
            )
        stacked = [None if index in unconnected["arrays"] else x.stack() for index, x in enumerate(arrays)]
        sums = [None if index in unconnected["sums"] else final(x) for index, x in enumerate(sums)]
        of_inputs, stacked = stacked[: len(inputs.chosen)], stacked[len(inputs.chosen) :]
        of_inputs = [None if x is None else final(ops.swapaxes(x, 0, 1)) for x in of_inputs]
        of_kernels = [
            None if rows is None or of_results is None else final(entry.gradient(rows, of_results))
            for entry, rows, of_results in zip(products, stacked[::2], stacked[1::2], strict=True)
        ]
        return [*of_inputs, *map(final, of_state), *sums, *of_kernels]


class Reads(keras.StatelessScope):
    """The variables of Keras that a trace reads, each with something that stands for it."""

    def __init__(self):
        super().__init__(initialize_variables=False)
        self.variables, self.has_updates = [], False

    def __enter__(self):
        self._graph = tf.compat.v1.get_default_graph()
        return super().__enter__()

    def get_current_value(self, variable):
        if id(variable) not in self.state_mapping:
            with self._graph.as_default():
                self.state_mapping[id(variable)] = tf.compat.v1.placeholder(variable.dtype, variable.shape)
            self.variables.append(variable)
        return self.state_mapping[id(variable)]

    def add_update(self, update):
        self.has_updates = True
        super().add_update(update)


class Floats:
    """Those of some tensors that have a gradient."""

    def __init__(self, tensors, excluded=None):
        excluded = [False] * len(tensors) if excluded is None else excluded
        self.flags = [x.dtype.is_floating and not out for x, out in zip(tensors, excluded, strict=True)]
        self.chosen = chosen(tensors, self.flags)

    def each(self, function, tensors):
        """Return such tensors, those that have a gradient as a function makes them."""
        return [function(x) if flag else x for x, flag in zip(tensors, self.flags, strict=True)]


def chosen(values, flags):
    return [x for x, flag in zip(values, flags, strict=True) if flag]


def _reader(time):
    """Return a function that returns (B, ...) of (T, B, ...): no copy, and no gradient worth asking for."""
    begin, end, strides = tf.reshape(time, (1,)), tf.reshape(time + 1, (1,)), tf.constant([1])
    return lambda x: tf.strided_slice(x, begin, end, strides, shrink_axis_mask=1)


def final(gradient):
    # Taken again, a step has its products as they were kept, and not as functions of the kernels.
    return tf.raw_ops.PreventGradient(input=gradient, message=NO_SECOND_GRADIENT)


def trace(function, *arguments):
    """Return the structure of a function's result and a TensorSpec for each entry, from a trace that is thrown away.

    Args:
        function: Function of structures of tensors.
        *arguments: Structures of `tf.TensorSpec`.
    """
    structure, function = traced(function, *arguments)
    return structure, function.structured_outputs


def traced(function, *arguments):
    """Return the structure of a function's result, and the concrete function of its flat one."""
    structure = None
    flat = [tree.flatten(argument) for argument in arguments]

    def call(flat_arguments):
        nonlocal structure
        packed = [tree.pack_sequence_as(*pair) for pair in zip(arguments, flat_arguments, strict=True)]
        structure = function(*packed)
        return tree.flatten(structure)

    concrete = tf.function(call, autograph=False).get_concrete_function(flat)
    return tree.map_structure(lambda _: None, structure), concrete
