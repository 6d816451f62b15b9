"""The part of a model that is the same in every draw.

`SharedPrefix` runs a part of the nodes of a functional model: in the thread that draws, and for the time of a call, it
replaces the private method with which Keras runs them (`keras_private.RUN`).

Before a change: a node that is shared too much gives draws that agree where they should differ, and no error. So a node
is shared only if what it depends on is, no layer in it draws or drops, its outputs have the examples on their first
axis, and its trace holds no random operation; of the body of a loop the caller asks `draws_in_a_loop`. Seeds are
counted in the order of the calls, so the second half calls what draws in the order of the whole model. Masks of Keras
cross between the halves with their tensors. tests/draws/test_shared_prefix.py compares with the draws of the whole
model.
"""

import contextlib
import functools
import re

import keras
import tensorflow as tf
from keras import tree

from keras_vattn.draws.marks import sees_marks
from keras_vattn.draws.model_noise import replaced
from keras_vattn.support import keras_private

# A number of examples that no other axis has.
_EXAMPLES = 7919
_RANDOM = re.compile("Random|TruncatedNormal|Multinomial|Rng")


class SharedPrefix:
    """A model in two halves: the operations that no draw changes, and the rest, which runs once for every draw.

    An operation is shared if neither it nor an operation that it depends on draws. Each half is a call of the model in
    which its graph of layers, and the functional models among its layers that draw, run a part of their nodes: masks,
    dtypes and arguments are as in every call. A model that is no graph has an empty first half.

    Args:
        model: A built `keras.Model` or layer.
        noise: The `ModelNoise` of it.
    """

    def __init__(self, model, noise):
        self.model, self.noise = model, noise
        graphs = map(keras_private.graph_of, keras_private.flatten_layers(model))
        self.graphs = list({id(graph): graph for graph in graphs if graph is not None}.values())
        # The indices of the nodes of the first half, by the path to their graph: the indices of the calls it is in.
        self.done = {}
        # The tensors between the halves, by the path, the id of the symbolic tensor, and whether they are its mask.
        self.crossing = {}
        # The graph that is called next, and its path.
        self.entered = None, None

    def first(self, inputs):
        """Return the tensors (B, ...) that the rest needs of a batch."""
        if keras_private.graph_of(self.model) is not None:
            with self.noise.drawn_from(0):
                self._call(inputs, self._run_first)
        return list(self.crossing.values())

    def rest(self, inputs, crossing):
        """Return the outputs of the model from its inputs and from what `first` returned, both in as many rows."""
        self.crossing = dict(zip(self.crossing, crossing, strict=True))
        return self._call(inputs, self._run_rest)

    def _call(self, inputs, run):
        with contextlib.ExitStack() as stack:
            for graph in self.graphs:
                method = functools.partial(self._enter, run, graph, getattr(graph, keras_private.RUN))
                stack.enter_context(replaced(graph, keras_private.RUN, method))
            self.entered = keras_private.graph_of(self.model), ()
            return self.model(inputs, training=False)

    def _enter(self, run, graph, plain, inputs, operation_fn):
        (entered, path), self.entered = self.entered, (None, None)
        if entered is not graph:
            return plain(inputs, operation_fn=operation_fn)
        return run(path, graph, _by_id(graph.inputs, inputs), operation_fn)

    def _run_first(self, path, graph, values, operation_fn):
        given, done = set(values), self.done.setdefault(path, set())
        for index, node in enumerate(keras_private.nodes_of(graph)):
            if all(id(x) in values for x in node.input_tensors):
                inner, draws = keras_private.graph_of(node.operation), self._draws(node.operation)
                if draws and inner is not None:
                    self.entered = inner, (*path, index)
                    _call_node(node, values, operation_fn)
                elif not draws and _is_by_example(node, graph.inputs[0].shape[:1]):
                    outputs = _unless_random(functools.partial(_call_node, node, values, operation_fn))
                    if outputs is not None:
                        done.add(index)
                        values |= _by_id(node.outputs, outputs)
                        continue
            self._cross(path, node.input_tensors, values, given)
        self._cross(path, graph.outputs, values, given)
        return ()

    def _cross(self, path, tensors, values, given):
        for key in {id(x): None for x in tensors if id(x) in values and id(x) not in given}:
            self.crossing[path, key, False] = values[key]
            if keras_private.mask_of(values[key]) is not None:
                self.crossing[path, key, True] = keras_private.mask_of(values[key])

    def _run_rest(self, path, graph, values, operation_fn):
        for (of, key, is_mask), x in self.crossing.items():
            if of == path and is_mask:
                keras_private.set_mask(values[key], x)
            elif of == path:
                values[key] = x
        for index, node in enumerate(keras_private.nodes_of(graph)):
            if index not in self.done.get(path, ()):
                if (*path, index) in self.done:
                    self.entered = keras_private.graph_of(node.operation), (*path, index)
                values |= _by_id(node.outputs, _call_node(node, values, operation_fn))
        return tree.pack_sequence_as(graph.output, [values[id(x)] for x in graph.outputs])

    def _draws(self, operation):
        """Return whether a layer, or one inside it, draws or drops: within `drawn_from`."""
        layers = keras_private.flatten_layers(operation) if isinstance(operation, keras.Layer) else ()
        return any(x in self.noise.dropping or (sees_marks(x) and x.draws is not None) for x in layers)


def draws_in_a_loop(function):
    """Return whether a function called by a concrete function, such as the body of a loop, draws."""
    library = function.graph.as_graph_def().library.function
    return any(_RANDOM.search(node.op) for part in library for node in part.node_def)


def _by_id(symbolic, tensors):
    # As in Keras, a call may return more than it said.
    return dict(zip(map(id, symbolic), tree.flatten(tensors), strict=False))


def _call_node(node, values, operation_fn):
    arguments, options = node.arguments.fill_in(values)
    return operation_fn(node.operation)(*arguments, **options)


def _is_by_example(node, examples):
    """Return whether the outputs of a node have the examples on their first axis, as far as its shapes tell.

    `examples` is the first axis of the graph's inputs: (None,), or the batch that a `Sequential` was first called with.
    An operation that is no layer may move the axis: its output shapes are computed for a number of examples.
    """
    if not all(x.shape and x.shape[:1] == examples for x in node.outputs):
        return False
    if isinstance(node.operation, keras.Layer):
        return True
    inputs = {id(x): keras.KerasTensor((_EXAMPLES, *x.shape[1:]), x.dtype) for x in node.input_tensors}
    arguments, options = node.arguments.fill_in(inputs)
    try:
        outputs = node.operation.compute_output_spec(*arguments, **options)
    except ValueError:
        # Such as a split of the examples, that this number does not fit.
        return False
    return all(x.shape[:1] == (_EXAMPLES,) for x in tree.flatten(outputs))


def _unless_random(call):
    """Return the outputs of a call that is traced, `None` where it draws or they are no tensors."""
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    outputs = call()
    is_random = any(_RANDOM.search(x.type) for x in graph.get_operations()[before:])
    return None if is_random or not all(isinstance(x, tf.Tensor) for x in tree.flatten(outputs)) else outputs
