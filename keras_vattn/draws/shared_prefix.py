"""The computation of a model that is the same in every draw, which runs once for every batch.

Before a change: a tensor that is shared by mistake gives draws that agree where they should differ, or rows of other
examples, without an error. A shape does not tell whether the rows are the examples: `range(batch_size)` has a row for
each example too. So all tensors between the halves are computed for one batch, and for this batch twice.
"""

import re

import numpy as np
import tensorflow as tf

from keras_vattn.draws.batches import flat_tensors, repeated

_RANDOM = re.compile("Random|TruncatedNormal|Multinomial|Rng")


class SharedPrefix:
    """A function of inputs and a seed, pruned into the operations that no draw changes, and the rest.

    Args:
        function: Function of the inputs and an int32 seed (2,) that returns a list of tensors. It is traced once.
        spec: Structure of the `tf.TensorSpec`s of the inputs.
        batch: Inputs for a trial.
        repeats: Whether `rest` repeats the inputs on the first axis.
    """

    def __init__(self, function, spec, batch, repeats):
        self.whole = tf.compat.v1.wrap_function(function, [spec, tf.TensorSpec((2,), tf.int32)])
        num_inputs = len(flat_tensors(batch))
        self.inputs, self.seed, self.repeats = self.whole.inputs[:num_inputs], self.whole.inputs[num_inputs], repeats
        self.outputs, (_, used) = self.whole.outputs, _walk(self.whole.outputs, set())
        # Operations that the outputs do not depend on and that do something, such as an assertion.
        effects = [x for x in self.whole.graph.get_operations() if x.op_def.is_stateful and x not in used]
        effects = [x for x in effects if x.type not in ("Placeholder", "ReadVariableOp")]
        # TensorFlow runs a condition only if its result is read.
        effects = [each for x in effects for each in [y for z in x.outputs for y in z.consumers()] or [x]]
        targets = [*self.outputs, *(y for x in effects for y in x.inputs)]
        # Whether the rows of a tensor between the halves are the examples, by its name.
        self.by_row = self._between(targets, flat_tensors(batch))
        shared = [self.whole.graph.get_tensor_by_name(name) for name in self.by_row]
        first = self.whole.prune(self.inputs, shared) if shared else lambda *inputs: []
        self.first = lambda inputs: first(*flat_tensors(inputs))
        drawn = [x for x in self.outputs if x.name not in self.by_row]
        rest = self.whole.prune([*self.inputs, *shared, self.seed], [drawn, effects])
        # It still has what comes before the shared tensors.
        self._rest = rest.prune(rest.inputs, [rest.outputs, rest.graph.control_outputs])
        self.specs = [tf.TensorSpec((None, *x.shape[1:]) if self.by_row[x.name] else x.shape, x.dtype) for x in shared]

    def rest(self, inputs, shared, seed, count):
        """Return the outputs of `count` draws, from the inputs and `first(inputs)`, which all draws share."""
        if self.repeats:
            pairs = zip(shared, self.by_row.values(), strict=True)
            inputs, shared = repeated(inputs, count), [repeated(x, count) if rows else x for x, rows in pairs]
        drawn = iter(self._rest(*flat_tensors(inputs), *shared, seed)[0])
        by_name = dict(zip(self.by_row, shared, strict=True))
        return [by_name[x.name] if x.name in by_name else next(drawn) for x in self.outputs]

    def _between(self, targets, batch):
        operations, tried = self._operations(), {}
        for _ in range(16):  # then nothing is shared
            results, _ = _walk(targets, operations)
            new = [x for name, x in results.items() if name not in tried]
            if new and self.repeats:
                function = self.whole.prune(self.inputs, new)
                once, twice = function(*batch), function(*repeated(batch, 2))
                tried |= {x.name: _has_rows(*pair) for x, *pair in zip(new, once, twice, strict=True)}
            refused = {x.op for name, x in results.items() if tried.setdefault(name, False) is None}
            if not refused:
                return {name: tried[name] for name in results}
            operations -= refused
        return {}

    def _operations(self):
        """Return the operations that depend on the inputs, and on no draw."""
        names = {x.op for each in self.whole.graph.as_graph_def().library.function for x in each.node_def}
        # The seed of stateless noise in a function, such as the body of a loop, is an argument of the function.
        functions_draw = any(_RANDOM.search(name) and not name.startswith("Stateless") for name in names)
        following, drawing = {x.op for x in self.inputs}, {self.seed.op}
        for operation in self.whole.graph.get_operations():
            sources = {x.op for x in operation.inputs}
            calls_drawing = functions_draw and any(x.HasField("func") for x in operation.node_def.attr.values())
            if sources & drawing or _RANDOM.search(operation.type) or calls_drawing:
                drawing.add(operation)
            elif sources & following:
                following.add(operation)
        return {x for x in following if x.inputs and not {tf.resource, tf.variant} & {y.dtype for y in x.outputs}}


def _walk(targets, operations):
    """Return the results of these operations, by name, that the tensors `targets` depend on through other operations,
    and a set of these others."""
    results, visited, stack = {}, set(), list(targets)
    while stack:
        x = stack.pop()
        if x.op in operations:
            results |= {y.name: y for y in x.op.outputs}  # TensorFlow prunes operations, not results
        elif x.op not in visited:
            visited.update([x.op, *x.op.control_inputs])
            stack += [y for each in (x.op, *x.op.control_inputs) for y in each.inputs]
    return results, visited


def _has_rows(once, twice):
    """Return whether the rows of a tensor are the examples, from its values for a batch and for this batch twice:
    `False` where the number of examples changes nothing, `None` where it changes something else."""
    if once.shape.rank and _is_equal(repeated(once, 2), twice):
        return True
    return False if once.dtype.is_floating and _is_equal(once, twice) else None


def _is_equal(x, y):
    if x.shape != y.shape or not x.dtype.is_floating:
        return x.shape == y.shape and bool(np.all(x.numpy() == y.numpy()))
    # Another number of rows rounds differently; a number of another row is far off.
    x, y = (tf.cast(each, tf.float32).numpy() for each in (x, y))
    sizes = np.abs(y[np.isfinite(y)])
    close = np.isclose(x, y, rtol=0.05, atol=0.05 * np.quantile(sizes, 0.1) if sizes.size else 0.0, equal_nan=True)
    return bool(np.mean(close) > 0.99) if y.size else True
