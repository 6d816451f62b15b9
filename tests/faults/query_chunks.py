"""Faults of query chunks."""

from faults.fault import Fault

TESTS = ("tests/layers/test_query_chunks.py",)
ATTENTION, CHUNKS = "layers/chunked_attention.py", "support/query_chunks.py"

FAULTS = [
    Fault(
        "query chunks: every chunk has the noise of the first",
        ATTENTION,
        "number = tf.cast(group, tf.int64) * 2**32 + tf.cast(chunk, tf.int64)",
        "number = tf.cast(group, tf.int64) * 2**32",
        TESTS,
        "draws_of_its_own",
    ),
    Fault(
        "query chunks: every group has the noise of the first",
        ATTENTION,
        "number = tf.cast(group, tf.int64) * 2**32 + tf.cast(chunk, tf.int64)",
        "number = tf.cast(chunk, tf.int64)",
        TESTS,
        "draws_of_its_own",
    ),
    Fault(
        "query chunks: the KL of an evaluation is estimated at the same draws in every chunk",
        "alignments/variational_alignment.py",
        "random.fold_in(fixed, chunk_number)",
        "fixed",
        TESTS,
        "estimates_of_its_own",
    ),
    Fault(
        "query chunks: the gradient reads variables after the next call",
        ATTENTION,
        "tf.cast(tf.convert_to_tensor(x.value), x.dtype)",
        "tf.cast(x.value, x.dtype)",
        TESTS,
        "called_twice",
    ),
    Fault(
        "query chunks: a causal chunk sees the keys of its first query",
        ATTENTION,
        "tf.minimum(first + size, num_keys)",
        "tf.minimum(first + 1, num_keys)",
        TESTS,
        "without_chunks",
    ),
    Fault(
        "query chunks: every head has the mask of the first",
        ATTENTION,
        "tf.minimum(head, shape[1] - 1)",
        "0",
        TESTS,
        "without_chunks",
        "The mask of each head in a chunk of one head is a case of the slow tier.",
    ),
    Fault(
        "query chunks: a mask whose batch is known late is every example's own",
        ATTENTION,
        "tf.minimum(example, shape[0] - 1)",
        "example",
        TESTS,
        "known_late",
    ),
    Fault(
        "query chunks: dropout alone is not drawn at inference",
        "draws/dropout.py",
        "(_has_generator(x) or in_parts)",
        "_has_generator(x)",
        TESTS,
        "dropout_at_inference",
    ),
    Fault(
        "query chunks: two groups at once",
        CHUNKS,
        "parallel_iterations=1",
        "parallel_iterations=_PARALLEL_CHUNKS",
        TESTS,
        "what_a_step_stores",
    ),
    Fault(
        "query chunks: TensorFlow's own gradient",
        CHUNKS,
        "tf.nest.flatten(recomputed(*tf.nest.flatten(tensors)))",
        "call(tf.nest.flatten(tensors))",
        TESTS,
        "what_a_step_stores",
    ),
    Fault(
        "query chunks: the queries stand in another order",
        CHUNKS,
        "tf.minimum(tf.range(new_length), _at_least_one(length) - 1)",
        "tf.maximum(_at_least_one(length) - 1 - tf.range(new_length), 0)",
        TESTS,
        "without_chunks",
    ),
    Fault(
        "query chunks: a query that Keras calls padding sees",
        "layers/multi_head_attention.py",
        "if self.is_softmax and query_mask is not None:",
        "if False:",
        TESTS,
        "of_keras",
    ),
]
