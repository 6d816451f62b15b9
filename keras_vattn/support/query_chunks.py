"""Run a step on chunks of queries, and recompute the step in the backward pass to save memory.

One loop runs over the groups, where a group is an example or one head of an example. An inner loop runs over the query
chunks of the group. Only the inputs of the chunks are stored for the backward pass.

The step must not read variables: a variable may change before the backward pass recomputes the step. Pass the values of
the variables in `shared`. Under XLA, random numbers and `tf.range` need static shapes. A slice with a dynamic start
needs `tf.slice`.
"""

import tensorflow as tf
from keras import ops

from keras_vattn.support.gradients import custom_gradient

# Without a second parallel chunk, short operations would use only one core.
_PARALLEL_CHUNKS = 2
_without_autograph = tf.autograph.experimental.do_not_convert


def map_chunks(step, rows, memory, shared, size):
    """Call a step on chunks of `size` rows, each within one group, and return the results for all rows.

    In eager mode, TensorFlow stores the intermediate results of all chunks, so chunks save no memory.

    Args:
        step: Pure function `step(rows, memory, shared, group, chunk)`. `rows` is a list of tensors (size, ...), and
            `memory` is a list of tensors (...) of one group. The int32 scalars `group` and `chunk` are the indices of
            the group and the chunk. The step returns a dictionary, possibly nested, of tensors (size, ...). Tensors
            that the step captures receive no gradient.
        rows: List of floats (G, T, ...), with G groups of T rows. The last row may be repeated to fill a chunk.
        memory: List of floats (G, ...).
        shared: List of floats of any shape. Every call of the step receives this list.
        size: Number of rows of a chunk, an integer.

    Returns:
        A dictionary of tensors (G, T, ...).
    """
    num_groups, length = ops.shape(rows[0])[:2]
    # `tf.stack` rejects an empty list. So if G or T is 0, run the step on zeros.
    num_loops, num_chunks = _at_least_one(num_groups), _at_least_one(-(-length // size))
    memory = [_pad_to_length(x, 0, num_groups, num_loops) for x in memory]
    rows = [_pad_to_length(_pad_to_length(x, 0, num_groups, num_loops), 1, length, num_chunks * size) for x in rows]
    chunks = [tf.reshape(x, (num_loops, num_chunks, size, *ops.shape(x)[2:])) for x in rows]
    run = _run_eagerly if tf.executing_eagerly() else _run_in_graph
    results = run(step, chunks, memory, shared)

    def joined(x):
        return tf.reshape(x, (num_loops, num_chunks * size, *ops.shape(x)[3:]))[:num_groups, :length]

    return tf.nest.map_structure(joined, results)


def _run_eagerly(step, chunks, memory, shared):
    num_loops, num_chunks = chunks[0].shape[:2]
    groups = [
        [
            step([x[group, chunk] for x in chunks], [x[group] for x in memory], shared, group, chunk)
            for chunk in range(num_chunks)
        ]
        for group in range(num_loops)
    ]
    stacked = [tf.nest.map_structure(lambda *x: tf.stack(x), *results) for results in groups]
    return tf.nest.map_structure(lambda *x: tf.stack(x), *stacked)


def _run_in_graph(step, chunks, memory, shared):
    inputs = (chunks, 2), (memory, 1), (shared, 0)
    specs = [[tf.TensorSpec(x.shape[num_axes:], x.dtype) for x in tensors] for tensors, num_axes in inputs]
    number = tf.TensorSpec((), tf.int32)
    traced = tf.function(step, autograph=False).get_concrete_function(*specs, number, number)
    # The gradient of a loop cannot capture eager tensors.
    captures = [x if tf.is_symbolic_tensor(x) else tf.identity(x) for x in traced.captured_inputs]
    traced.set_external_captures(captures)
    chunk_specs = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), traced.structured_outputs)
    if not tf.nest.flatten(chunk_specs):
        return chunk_specs
    group_specs = tf.nest.map_structure(lambda x: tf.TensorSpec((chunks[0].shape[1], *x.shape), x.dtype), chunk_specs)

    def call_step(tensors, group, chunk):
        def call(flat):
            return tf.nest.flatten(traced(*tf.nest.pack_sequence_as(tensors, flat), group, chunk))

        @custom_gradient
        def recomputed(*flat):
            def gradient(*upstream):
                with tf.GradientTape() as tape:
                    sources = [tf.identity(x) for x in flat]
                    tape.watch(sources)
                    results = call(sources)
                return tape.gradient(results, sources, upstream, unconnected_gradients="zero")

            return call(flat), gradient

        return tf.nest.pack_sequence_as(chunk_specs, tf.nest.flatten(recomputed(*tf.nest.flatten(tensors))))

    @_without_autograph
    def call_group(inputs):
        group, chunks, memory = inputs
        call_chunk = _without_autograph(lambda x: call_step([x[1], memory, shared], group, x[0]))
        numbered = tf.range(tf.shape(chunks[0])[0]), chunks
        options = {"parallel_iterations": _PARALLEL_CHUNKS, "fn_output_signature": chunk_specs}
        return tf.map_fn(call_chunk, numbered, **options)

    numbered = tf.range(tf.shape(chunks[0])[0]), chunks, memory
    return tf.map_fn(call_group, numbered, parallel_iterations=1, fn_output_signature=group_specs)


def _at_least_one(count):
    return max(count, 1) if isinstance(count, int) else tf.maximum(count, 1)


def _pad_to_length(x, axis, length, new_length):
    """Pad an axis of x to a new length with copies of the last element. An empty axis is padded with zeros."""
    if isinstance(new_length, int) and isinstance(length, int) and new_length == length:
        return x
    # Zeros instead of copies could cause infinite or NaN gradients.
    x = tf.pad(x, [[0, int(each == axis)] for each in range(x.shape.rank)])
    return tf.gather(x, tf.minimum(tf.range(new_length), _at_least_one(length) - 1), axis=axis)
