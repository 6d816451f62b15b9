"""Trace one step of a recurrent loop as a graph. The forward and the backward loop copy the operations of the graph."""

import tensorflow as tf
from keras import ops, tree

from keras_vattn.support.products import record_products


class TracedStep:
    """A step traced in its own graph.

    Args:
        step: Function of inputs and state that returns outputs and the next state.
        inputs: Structure of the `tf.TensorSpec`s of the inputs.
        state: Structure of the `tf.TensorSpec`s of the state.

    Attributes:
        output_structure: Structure of the outputs.
        outputs: List of the outputs, tensors of the graph.
        products: List of `Product`s, the recorded matrix products of the step.
        is_pure: Whether the step can be recomputed. `False` if the step has random operations, side effects or complex
            numbers, or if the step reads a variable in a branch or in an inner loop.
    """

    def __init__(self, step, inputs, state):
        specs = [tree.flatten(inputs), tree.flatten(state)]

        def call(flat_inputs, flat_state):
            with record_products() as recorder:
                results = step(tree.pack_sequence_as(inputs, flat_inputs), tree.pack_sequence_as(state, flat_state))
            self.output_structure = tree.map_structure(lambda _: None, results[0])
            self.products, self._kernels = recorder.products, recorder.kernels
            outputs, new_state = map(tree.flatten, results)
            return outputs, shaped_like(new_state, specs[1])

        function = tf.function(call, autograph=False).get_concrete_function(*specs)
        self._graph, (self.outputs, self._new_state) = function.graph, function.structured_outputs
        graph_inputs = iter(function.inputs)
        self._inputs, self._state = ([next(graph_inputs) for _ in each] for each in specs)
        captures = list(zip(graph_inputs, function.captured_inputs, strict=True))
        self.is_pure = not any(entry.is_differentiated for entry in self.products)
        self._find_variables(captures, {id(variable.handle): variable for variable in function.variables})
        captures = [pair for pair in captures if pair[0].dtype != tf.resource]
        self._captured, self._outer_tensors = [inner for inner, _ in captures], [outer for _, outer in captures]

    def _find_variables(self, captures, variables):
        handles, reads = {inner.name: id(outer) for inner, outer in captures}, {}
        for operation in self._graph.get_operations():
            handle = handles.get(operation.inputs[0].name) if operation.inputs else None
            if operation.type == "ReadVariableOp" and handle in variables:
                reads.setdefault(handle, []).append(operation.outputs[0])
            elif operation.op_def.is_stateful or tf.resource in {x.dtype for x in operation.inputs}:
                self.is_pure = False
            if any(x.dtype.is_complex for x in operation.outputs):
                self.is_pure = False
        self._outer_variables, self._reads = [variables[handle] for handle in reads], list(reads.values())

    def read(self):
        """Return two lists: values of captured tensors and variables, and kernels of the recorded matrix products.

        Call `read` only once: it deletes the references to these tensors and variables.
        """
        # The gradient of an enclosing loop cannot capture eager tensors.
        shared = [tf.identity(x) for x in [*self._outer_tensors, *self._outer_variables]]
        pairs = zip(self._kernels, self.products, strict=True)
        kernels = [tf.identity(ops.cast(kernel, entry.rows.dtype)) for kernel, entry in pairs]
        # Without `del`, layers and weights could stay in memory until the process ends.
        del self._outer_tensors, self._outer_variables, self._kernels
        return shared, kernels

    def forward(self, inputs, state, shared, kernels):
        """Run the step in the current graph.

        Args:
            inputs: List of the input tensors.
            state: List of the state tensors.
            shared: First result of `read`, the values of captured tensors and variables.
            kernels: Second result of `read`, the kernels of the recorded products.

        Returns:
            Three lists of tensors: the outputs, the next state, and the result x @ kernel of each recorded product.
        """
        lists = self.outputs, self._new_state, [entry.result for entry in self.products]
        feeds = [*self.feeds(inputs, state, shared), *_pairs([x.kernel_input for x in self.products], kernels)]
        return split(_copy_operations([x for each in lists for x in each], feeds), *lists)

    def gradient(self, is_read, has_gradient):
        """Return the `StepGradient`.

        Args:
            is_read: List of booleans, `True` for outputs that affect the loss.
            has_gradient: List of booleans, `True` for inputs that need a gradient.
        """
        with self._graph.as_default():
            targets = [*select(self.outputs, is_read), *filter(is_float, self._new_state)]
            upstream = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in targets]
            sources = {
                "inputs": [[x] for x in select(self._inputs, has_gradient)],
                "state": [[x] for x in self._state if is_float(x)],
                "shared": [reads for reads in [*([x] for x in self._captured), *self._reads] if is_float(reads[0])],
                "results": [[entry.result] for entry in self.products],
            }
            flat = [x for group in sources.values() for reads in group for x in reads]
            gradients = iter(tf.gradients(targets, flat, upstream))
            sums = {
                name: [_sum([next(gradients) for _ in reads]) for reads in group] for name, group in sources.items()
            }
            state = zip(sums["state"], sources["state"], strict=True)
            sums["state"] = [tf.zeros_like(old) if x is None else x for x, (old,) in state]
        # `tf.gradients` may capture more outer tensors, which `StepGradient.run` must feed.
        names = {x.name for x in self._captured}
        constants = [(x, outer) for outer, x in self._graph.captures if x.name not in names and x.dtype != tf.resource]
        return StepGradient(self, upstream, constants, **sums)

    def feeds(self, inputs, state, shared):
        """Return pairs (tensor of the traced graph, value) for the inputs, state, captured tensors and variables."""
        captures, variables = split(shared, self._captured, self._reads)
        pairs = [*_pairs(self._inputs, inputs), *_pairs(self._state, state), *_pairs(self._captured, captures)]
        return pairs + [(read, value) for reads, value in zip(self._reads, variables, strict=True) for read in reads]


class StepGradient:
    """The gradient of a step, as lists of tensors in the graph of the step. A missing gradient is `None`.

    Attributes:
        inputs: List of the gradients of the inputs.
        state: List of the gradients of the state.
        shared: List of the gradients of captured tensors and variables.
        results: List with the gradient of each recorded product x @ kernel.
        rows: List with the factor x of each product, or `None` if `results` has no gradient for the product.
    """

    def __init__(self, step, upstream, constants, inputs, state, shared, results):
        self._step, self._upstream, self._constants = step, upstream, constants
        self.inputs, self.state, self.shared, self.results = inputs, state, shared, results
        self.rows = [None if x is None else entry.rows for x, entry in zip(results, step.products, strict=True)]

    def run(self, inputs, state, shared, kernels, results, upstream):
        """Run the step again in the current graph, except the stored products, and return the gradient of the step.

        Args:
            inputs: List of the input tensors.
            state: List of the state tensors.
            shared: First result of `TracedStep.read`, the values of captured tensors and variables.
            kernels: List of the kernels of the recorded products, transposed if they have rank 2.
            results: List of the stored results x @ kernel of these products.
            upstream: List of the gradients of outputs that affect the loss, then the gradients of the next state.

        Returns:
            Five lists of tensors in the current graph: the values of `inputs`, `rows`, `results`, `state` and `shared`,
            without the `None` entries.
        """
        products = self._step.products
        kernel_inputs = [x.kernel_input if x.transposed_input is None else x.transposed_input for x in products]
        feeds = [
            *self._step.feeds(inputs, state, shared),
            *_pairs(kernel_inputs, kernels),
            *_pairs([x.result for x in products], results),
            *_pairs(self._upstream, upstream),
            *self._constants,
        ]
        lists = [
            [x for x in each if x is not None]
            for each in (self.inputs, self.rows, self.results, self.state, self.shared)
        ]
        return split(_copy_operations([x for each in lists for x in each], feeds), *lists)


def _copy_operations(fetches, feeds):
    """Copy the tensors `fetches` of another graph. `feeds` are pairs of an original tensor and its replacement."""
    values = {x.name: tf.identity(value) for x, value in feeds}
    targets = [x for x in fetches if x.name not in values]
    names, stack = set(), list(targets)
    while stack:
        operation = stack.pop().op
        if operation.name not in names:
            names.add(operation.name)
            stack += [x for x in operation.inputs if x.name not in values]
    graph = fetches[0].graph.as_graph_def()
    nodes = [node for node in graph.node if node.name in names]
    for node in nodes:
        # A pure step needs no control inputs, and the traced graph provides the gradients.
        node.input[:] = [name for name in node.input if not name.startswith("^")]
        for name in ("_gradient_op_type", "_class"):
            node.attr.pop(name, None)
    del graph.node[:]
    graph.node.extend(nodes)
    inputs = {name if ":" in name else f"{name}:0" for node in nodes for name in node.input}
    fed = {name: value for name, value in values.items() if name in inputs}
    copies = tf.graph_util.import_graph_def(graph, fed, [x.name for x in targets], name="step")
    values |= dict(zip((x.name for x in targets), copies, strict=True))
    return [values[x.name] for x in fetches]


def is_float(x):
    return x.dtype.is_floating


def select(values, flags):
    return [x for x, flag in zip(values, flags, strict=True) if flag]


def split(values, *lists):
    """Split values, in order, into lists with the same lengths as `lists`."""
    values = iter(values)
    return [[next(values) for _ in each] for each in lists]


def shaped_like(tensors, references):
    pairs = _pairs(tensors, references)
    return [x if x.shape == reference.shape else tf.ensure_shape(x, reference.shape) for x, reference in pairs]


def _pairs(tensors, values):
    return list(zip(tensors, values, strict=True))


def _sum(gradients):
    gradients = [tf.convert_to_tensor(x) for x in gradients if x is not None]
    return tf.add_n(gradients) if gradients else None
