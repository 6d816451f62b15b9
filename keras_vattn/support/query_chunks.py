"""Run a step on chunks of queries, and recompute the step in the backward pass to save memory.

A group is an example, or one head of an example. Two nested `tf.map_fn` calls loop over the groups, and over the query
chunks of each group. TensorFlow traces the step once, and the backward pass calls this trace again. So TensorFlow
stores only the inputs of the chunks, which together are as large as the inputs of the call.

The step must not read variables, because a variable may change before the backward pass. `ChunkedAttention.over_chunks`
passes the values of the variables instead. Under XLA, random numbers and `tf.range` need static shapes, and a slice
with a dynamic start needs `tf.slice`. tests/layers/test_query_chunks.py compares the results with an eager loop
without recomputation, and checks which tensors are stored for the gradient.
"""

import tensorflow as tf
from keras import ops

from keras_vattn.support.gradients import custom_gradient

# Number of chunks that run in parallel. A short operation uses one core, so a second chunk can use another core.
_PARALLEL_CHUNKS = 2
_without_autograph = tf.autograph.experimental.do_not_convert


def map_chunks(step, rows, memory, shared, size):
    """Call a step on chunks of `size` rows, each within one group (an example or a head), and return all results.

    In eager mode, TensorFlow stores the intermediate results of all chunks.

    Args:
        step: Pure function with five arguments: three lists of tensors (`rows`, of shape (size, ...); `memory`; and
            `shared`) and two int32 scalars (the group index and the chunk index). It returns a dictionary, possibly
            nested, of tensors (size, ...). Gradients flow to the lists, but not to tensors that the step captures.
        rows: List of floats (G, T, ...). If `size` does not divide T, the last row is repeated to fill the last chunk.
        memory: List of floats (G, ...).
        shared: List of floats of any shape.
        size: Number of rows of a chunk, an integer.

    Returns:
        A dictionary of tensors (G, T, ...).
    """
    num_groups, length = ops.shape(rows[0])[:2]
    # `tf.stack` needs at least one tensor. If G or T is 0, run the step on zeros and cut the result to length 0.
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
    # Copy eager tensors into the graph, because the gradient of a loop cannot capture them.
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
    """Pad an axis of x to a new length with copies of its last element, or with zeros if the axis is empty."""
    if isinstance(new_length, int) and isinstance(length, int) and new_length == length:
        return x
    # Copy the last element: with zeros instead of the copies, gradients may be infinite or NaN.
    x = tf.pad(x, [[0, int(each == axis)] for each in range(x.shape.rank)])
    return tf.gather(x, tf.minimum(tf.range(new_length), _at_least_one(length) - 1), axis=axis)
