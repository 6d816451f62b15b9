"""Queries in parts: what an attention computes of some queries at a time, and once more in the gradient.

Two loops, over groups (examples) and over the parts of their queries, keep nothing but the results. The gradient is a
loop of the same kind, which takes every part again and differentiates it there and then, so the memory of a step is
at most that of two parts, which run beside each other. TensorFlow's own gradient of such a loop would keep every
intermediate of every part.

Before a change: as in `loop.py`, whose helpers these are. A step is traced once for what it captures, and again in the
gradient, when the call is over: it sees what Keras knew of the call, and the values that variables had before it. A
step that assigns, takes a seed, or reads a variable of TensorFlow's own has TensorFlow's gradient: right, and with the
memory that parts are there to save. Eagerly every part is kept too. tests/layers/test_parts_of_queries.py looks at what
a gradient keeps.
"""

import contextlib

import keras
import tensorflow as tf
from keras import ops, tree

from keras_vattn.support import keras_private
from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.loop import Floats, Reads, chosen, final, traced

# Two fill two cores in the operations that are too short for both. Each has its memory, so groups are taken in turn.
_PARTS_AT_ONCE = 2


def in_chunks(step, rows, memory, num_groups, length, size, owner):
    """Return the results of a step for all queries, from those for parts of `size` queries of one group.

    Args:
        step: Function of rows (1, ..., size, width) and of memory (1, ...), structured as these arguments, of the group
            and of the first row, both int64 (). Returns a structure of (1, ..., size, width). Pure, and called more
            than once, on the last row again where `size` does not divide the length.
        rows: Structure of tensors (G, ..., T, width).
        memory: Structure of tensors (G, ...).
        num_groups: G, an integer or a scalar tensor.
        length: T, an integer or a scalar tensor, at least 1.
        size: Number of queries of a part, an integer.
        owner: The layer whose step this is, which keeps its gradient.

    Returns:
        A structure of tensors (G, ..., T, width).
    """
    chunks = _Chunks(step, rows, memory, num_groups, length, size, owner)
    results = chunks.run()
    return tree.pack_sequence_as(chunks.structure, results)


class _Chunks:
    """A step, and the loops that take it.

    Attributes:
        structure: That of the results, once a step has been taken.
    """

    def __init__(self, step, rows, memory, num_groups, length, size, owner):
        self.step, self.structures, self.owner = step, (rows, memory), owner
        self.num_groups, self.length, self.size = num_groups, length, size
        self.num_chunks = -(-length // size)
        # No group leaves nothing to stack: one of zeros is taken, and cut off.
        self.loops = max(num_groups, 1) if isinstance(num_groups, int) else tf.maximum(num_groups, 1)
        self.given = [[tf.convert_to_tensor(x) for x in tree.flatten(each)] for each in self.structures]
        self.rows = [self._filled(self._grouped(x)) for x in self.given[0]]
        self.memory = [self._grouped(x) for x in self.given[1]]

    def _grouped(self, x):
        missing = self.loops - self.num_groups
        if isinstance(missing, int) and missing == 0:
            return x
        return tf.pad(x, [[0, missing], *[[0, 0]] * (x.shape.rank - 1)])

    def _filled(self, x):
        """Return rows up to the end of the last part: the last one again, whose gradients are finite as it is."""
        missing = self.num_chunks * self.size - self.length
        if isinstance(missing, int) and missing == 0:
            return x
        return tf.gather(x, tf.minimum(tf.range(self.length + missing), self.length - 1), axis=-2)

    def run(self):
        """Return the results, with a gradient that takes the parts again where the step allows it."""
        if tf.executing_eagerly():
            parts = [
                self.take(self.chunk(self.rows, group, chunk), _of_group(self.memory, group), group, chunk)
                for group in range(self.loops)
                for chunk in range(self.num_chunks)
            ]
            return [self.joined(tf.stack(x)) for x in zip(*parts, strict=True)]
        reads = Reads()
        specs = [tf.TensorSpec((1, *x.shape[1:-2], self.size, x.shape[-1]), x.dtype) for x in self.rows]
        self.keras_state, zero = keras_private.state(), tf.TensorSpec((), "int64")
        _, function = traced(
            lambda rows, memory, group, chunk: self.take(rows, memory, group, chunk, reads),
            specs,
            [tf.TensorSpec((1, *x.shape[1:]), x.dtype) for x in self.memory],
            zero,
            zero,
        )
        self.specs = function.structured_outputs
        if not self.specs:
            return []
        is_stateful = any(operation.op_def.is_stateful for operation in function.graph.get_operations())
        if is_stateful or reads.has_updates:
            return self.forward(contextlib.nullcontext)
        values = [(variable, keras_private.value_of(variable)) for variable in reads.variables]
        self.scope = lambda: keras.StatelessScope(values, initialize_variables=False)
        shared = [*function.graph.external_captures, *(value for _, value in values)]
        self.floats = [Floats(x) for x in (self.rows, self.memory, shared)]

        @custom_gradient(owner=self.owner)
        def looped(*_):
            def gradient(*upstream, variables=()):
                found = self.backward([x if x is None else tf.convert_to_tensor(x) for x in upstream])
                return (found, [None] * len(variables)) if variables else found

            return self.forward(self.scope), gradient

        # The gradients are those of what was given, without what was filled up.
        given = [x for pair in zip(self.given, self.floats[:2], strict=True) for x in chosen(pair[0], pair[1].flags)]
        return list(tree.flatten(looped(*given, *self.floats[2].chosen)))

    def take(self, rows, memory, group, chunk, scope=None):
        """Take a step; return its flat results."""
        first = tf.cast(chunk, tf.int64) * self.size
        packed = (tree.pack_sequence_as(*pair) for pair in zip(self.structures, (rows, memory), strict=True))
        with contextlib.nullcontext() if scope is None else scope:
            results = self.step(*packed, tf.cast(group, tf.int64), first)
        self.structure = tree.map_structure(lambda _: None, results)
        return [tf.convert_to_tensor(x) for x in tree.flatten(results)]

    def chunk(self, tensors, group, chunk):
        """Return the rows of a part, (1, ..., size, width), of each (G, ..., T, width)."""
        parts = []
        for x in tensors:
            _, *middle, _, width = ops.shape(x)
            begin = [group, *[0] * len(middle), tf.cast(chunk, tf.int32) * self.size, 0]
            parts.append(tf.slice(x, begin, (1, *middle, self.size, width)))
        return parts

    def forward(self, scope):
        """Return the results, (G, ..., T, width) each."""

        def of_group(group, arrays):
            memory = _of_group(self.memory, group)

            def of_chunk(chunk, arrays):
                results = self.take(self.chunk(self.rows, group, chunk), memory, group, chunk, scope())
                place = group * self.num_chunks + chunk
                return [array.write(place, x) for array, x in zip(arrays, results, strict=True)]

            return _repeat(self.num_chunks, of_chunk, arrays, _PARTS_AT_ONCE)

        arrays = _repeat(self.loops, of_group, [self._array(x) for x in self.specs])
        return [self.joined(array.stack()) for array in arrays]

    def backward(self, upstream):
        """Return the gradients of the rows, of the memory and of what the step captures, from those of the results."""
        rows, memory, shared = self.floats
        # The gradient of what no loss reads is zeros that TensorFlow makes.
        reads = [x is not None and x.dtype.is_floating and x.op.type != "ZerosLike" for x in upstream]
        upstream = [self._with_zeros(x) for x in chosen(upstream, reads)]
        connected = {}

        def of_group(group, state):
            of_memory = _of_group(self.memory, group)

            def of_chunk(chunk, state):
                of_rows = self.chunk(self.rows, group, chunk)
                sources = [chosen(of_rows, rows.flags), chosen(of_memory, memory.flags), shared.chosen]
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    results = chosen(self.take(of_rows, of_memory, group, chunk, self.scope()), reads)
                found = tape.gradient(results, sources, self.chunk(upstream, group, chunk))
                place = group * self.num_chunks + chunk
                connected.update(zip(("rows", "memory", "shared"), ([x is not None for x in of] for of in found)))
                arrays = [x if new is None else x.write(place, new) for x, new in zip(state[0], found[0], strict=True)]
                sums = [
                    [old if new is None else old + new for old, new in zip(*pair, strict=True)]
                    for pair in zip(state[1:], found[1:], strict=True)
                ]
                return [arrays, *sums]

            arrays, of_all_memory, sums = state
            zeros = [tf.zeros_like(x) for x in chosen(of_memory, memory.flags)]
            arrays, found, sums = _repeat(self.num_chunks, of_chunk, [arrays, zeros, sums], _PARTS_AT_ONCE)
            written = [array.write(group, x) for array, x in zip(of_all_memory, found, strict=True)]
            return [arrays, written, sums]

        specs = [tf.TensorSpec((1, *x.shape[1:-2], self.size, x.shape[-1]), x.dtype) for x in rows.chosen]
        arrays = [self._array(x) for x in specs]
        of_memory = [tf.TensorArray(x.dtype, self.loops, element_shape=(1, *x.shape[1:])) for x in memory.chosen]
        start = [arrays, of_memory, [tf.zeros_like(x) for x in shared.chosen]]
        with keras_private.in_state(self.keras_state), tf.name_scope("gradient/queries"):
            arrays, of_memory, sums = _repeat(self.loops, of_group, start)
        found = [
            *(self.joined(x.stack()) if flag else None for x, flag in zip(arrays, connected["rows"], strict=True)),
            *(
                # Not `concat`, which has the lengths of its parts in the memory of the host.
                tf.squeeze(x.stack(), 1)[: self.num_groups] if flag else None
                for x, flag in zip(of_memory, connected["memory"], strict=True)
            ),
            *(x if flag else None for x, flag in zip(sums, connected["shared"], strict=True)),
        ]
        return [None if x is None else final(x) for x in found]

    def _with_zeros(self, x):
        """Return gradients of results with zeros for what is cut off."""
        groups, rows = self.loops - self.num_groups, self.num_chunks * self.size - self.length
        if isinstance(groups, int) and isinstance(rows, int) and groups == rows == 0:
            return x
        return tf.pad(x, [[0, groups], *[[0, 0]] * (x.shape.rank - 3), [0, rows], [0, 0]])

    def _array(self, spec):
        return tf.TensorArray(spec.dtype, self.loops * self.num_chunks, element_shape=spec.shape)

    def joined(self, parts):
        """Return (G, ..., T, width) from the parts (G num_chunks, 1, ..., size, width)."""
        _, _, *middle, _, width = ops.shape(parts)
        parts = tf.reshape(parts, (self.loops, self.num_chunks, *middle, self.size, width))
        order = (0, *range(2, 2 + len(middle)), 1, 2 + len(middle), 3 + len(middle))
        whole = tf.reshape(tf.transpose(parts, order), (self.loops, *middle, self.num_chunks * self.size, width))
        return whole[: self.num_groups, ..., : self.length, :]


def _of_group(tensors, group):
    """Return (1, ...) of each (G, ...)."""
    return [x[group][None] for x in tensors]


def _repeat(count, body, state, at_once=1):
    """Return what a structure is after `count` calls of `body(number, structure)`, at most `at_once` at a time."""
    start = (tf.constant(0), state)
    body_of = lambda number, state: (number + 1, body(number, state))  # noqa: E731
    options = {"maximum_iterations": count, "parallel_iterations": at_once}
    return tf.while_loop(lambda number, _: number < count, body_of, start, **options)[1]
