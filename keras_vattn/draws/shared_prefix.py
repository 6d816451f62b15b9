"""Split the graph of a model, so that operations that do not depend on the noise run once per batch.

The traced graph is cut in two. The prefix contains operations that depend on the inputs, but not on the seed. The
remainder contains all other operations, and runs for several draws at a time. The tensors on the cut are outputs of the
prefix and inputs of the remainder. If axis 0 of such a tensor is the batch axis, the tensor is repeated for each draw.

A wrong cut raises no error: draws that should differ are then equal, or contain rows of other examples. The shape of a
tensor does not show whether axis 0 is the batch axis: `range(batch_size)` also has one number per example. So
`_has_rows` compares the values of a tensor for a batch and for the same batch repeated twice.
"""

import re

import numpy as np
import tensorflow as tf

from keras_vattn.draws.batches import flat_tensors, repeated

_RANDOM = re.compile("Random|TruncatedNormal|Multinomial|Rng")
# Number of cuts that `_cut` tries. If all cuts fail, every draw runs all operations.
_MAX_ROUNDS = 16


class SharedPrefix:
    """Splits a function of inputs and a seed into a prefix, which does not depend on the seed, and a remainder.

    Args:
        function: Function of the inputs and an int32 seed (2,) that returns a list of tensors. It is traced once.
        spec: Structure of the `tf.TensorSpec`s of the inputs.
        batch: Example inputs. The prefix runs on them, to find tensors whose axis 0 is the batch axis.
        repeats: Whether the remainder repeats the inputs along the first axis, to compute several draws.
    """

    def __init__(self, function, spec, batch, repeats):
        self.traced = tf.compat.v1.wrap_function(function, [spec, tf.TensorSpec((2,), tf.int32)])
        num_inputs = len(flat_tensors(batch))
        self.inputs, self.seed, self.repeats = self.traced.inputs[:num_inputs], self.traced.inputs[num_inputs], repeats
        self.outputs = self.traced.outputs
        effects = self._effects()
        targets = [*self.outputs, *(x for operation in effects for x in operation.inputs)]
        self.has_rows = self._cut(targets, flat_tensors(batch))
        shared = [self.traced.graph.get_tensor_by_name(name) for name in self.has_rows]
        prefix = self.traced.prune(self.inputs, shared) if shared else lambda *inputs: []
        self.run_prefix = lambda inputs: prefix(*flat_tensors(inputs))
        random_outputs = [x for x in self.outputs if x.name not in self.has_rows]
        remainder = self.traced.prune([*self.inputs, *shared, self.seed], [random_outputs, effects])
        # Without the second `prune`, the graph would still contain the prefix.
        self._remainder = remainder.prune(remainder.inputs, [remainder.outputs, remainder.graph.control_outputs])
        self.specs = [
            tf.TensorSpec((None, *x.shape[1:]) if self.has_rows[x.name] else x.shape, x.dtype) for x in shared
        ]

    def run_remainder(self, inputs, shared, seed, count):
        """Return the outputs of `count` draws. `shared` is `run_prefix(inputs)`, which all draws share."""
        if self.repeats:
            pairs = zip(shared, self.has_rows.values(), strict=True)
            inputs, shared = repeated(inputs, count), [repeated(x, count) if rows else x for x, rows in pairs]
        random_outputs = iter(self._remainder(*flat_tensors(inputs), *shared, seed)[0])
        shared_by_name = dict(zip(self.has_rows, shared, strict=True))
        return [shared_by_name[x.name] if x.name in shared_by_name else next(random_outputs) for x in self.outputs]

    def _effects(self):
        """Return the operations with side effects (such as assertions) on which no output depends."""
        _, used = _walk(self.outputs, set())
        operations = [x for x in self.traced.graph.get_operations() if x.op_def.is_stateful and x not in used]
        operations = [x for x in operations if x.type not in ("Placeholder", "ReadVariableOp")]
        # TensorFlow skips a conditional operation whose result is not read, so return the readers, if any.
        readers = [[reader for x in operation.outputs for reader in x.consumers()] for operation in operations]
        return [each for operation, uses in zip(operations, readers, strict=True) for each in uses or [operation]]

    def _cut(self, targets, batch):
        """Return the tensors on the cut, as a dictionary {name: whether axis 0 is the batch axis}."""
        operations, row_status = self._operations(), {}
        for _ in range(_MAX_ROUNDS):
            results, _ = _walk(targets, operations)
            new_tensors = [x for name, x in results.items() if name not in row_status]
            if new_tensors and self.repeats:
                function = self.traced.prune(self.inputs, new_tensors)
                once, twice = function(*batch), function(*repeated(batch, 2))
                row_status |= {x.name: _has_rows(*pair) for x, *pair in zip(new_tensors, once, twice, strict=True)}
            # Move an operation to the remainder if an output can be neither repeated nor passed on unchanged.
            rejected = {x.op for name, x in results.items() if row_status.setdefault(name, False) is None}
            if not rejected:
                return {name: row_status[name] for name in results}
            operations -= rejected
        return {}

    def _operations(self):
        """Return all operations that depend on the inputs, but not on the seed."""
        names = {x.op for each in self.traced.graph.as_graph_def().library.function for x in each.node_def}
        # Calls of stateless random functions have the seed as an input, so `sources & random` finds them.
        functions_are_random = any(_RANDOM.search(name) and not name.startswith("Stateless") for name in names)
        deterministic, random = {x.op for x in self.inputs}, {self.seed.op}
        for operation in self.traced.graph.get_operations():
            sources = {x.op for x in operation.inputs}
            calls_random = functions_are_random and any(x.HasField("func") for x in operation.node_def.attr.values())
            if sources & random or _RANDOM.search(operation.type) or calls_random:
                random.add(operation)
            elif sources & deterministic:
                deterministic.add(operation)
        return {x for x in deterministic if x.inputs and not {tf.resource, tf.variant} & {y.dtype for y in x.outputs}}


def _walk(targets, operations):
    """Return the outputs of `operations` that the targets need, by name, and the operations in between."""
    results, visited, stack = {}, set(), list(targets)
    while stack:
        x = stack.pop()
        if x.op in operations:
            # `prune` needs all outputs of an operation.
            results |= {y.name: y for y in x.op.outputs}
        elif x.op not in visited:
            visited.update([x.op, *x.op.control_inputs])
            stack += [y for each in (x.op, *x.op.control_inputs) for y in each.inputs]
    return results, visited


def _has_rows(once, twice):
    """Return whether axis 0 of a tensor is the batch axis, or `None` for a tensor that cannot be on the cut.

    `once` is the value for a batch, `twice` the value for the batch repeated twice. `False` means that a float tensor
    does not depend on the batch size.
    """
    if once.shape.rank and _is_equal(repeated(once, 2), twice):
        return True
    return False if once.dtype.is_floating and _is_equal(once, twice) else None


def _is_equal(x, y):
    if x.shape != y.shape or not x.dtype.is_floating:
        return x.shape == y.shape and bool(np.all(x.numpy() == y.numpy()))
    # Rounding depends on the number of rows, so copies of a row differ slightly.
    x, y = (tf.cast(each, tf.float32).numpy() for each in (x, y))
    sizes = np.abs(y[np.isfinite(y)])
    close = np.isclose(x, y, rtol=0.05, atol=0.05 * np.quantile(sizes, 0.1) if sizes.size else 0.0, equal_nan=True)
    return bool(np.mean(close) > 0.99) if y.size else True
