"""Average the word probabilities of candidate contexts, one chunk of rows at a time."""

import tensorflow as tf

from keras_vattn.latent_alignment.chunked_softmax import SMALLEST, ceiling
from keras_vattn.latent_alignment.log_probabilities import LOG_ZERO
from keras_vattn.support.gradients import custom_gradient


def mixture_log_probabilities(inputs, kernel, bias, log_weights, chunk_size):
    """Return log sum_k exp(log_weights[:, k]) softmax(inputs[:, k] W + b), float32 (N, V).

    Args:
        inputs: (N, K, D), in the dtype of the matrix products.
        kernel: W, float32 (D, V).
        bias: b, float32 (V,).
        log_weights: Float32 (N, K).
        chunk_size: Maximum number of input vectors per chunk. If K is larger, a chunk is one row (K vectors).
    """

    @custom_gradient
    def function(inputs, kernel, bias, log_weights):
        num_rows, count = tf.shape(inputs)[0], tf.shape(inputs)[1]
        width, vocabulary_size = kernel.shape
        num_chunks = tf.maximum(ceiling(num_rows, tf.maximum(chunk_size // tf.maximum(count, 1), 1)), 1)
        size = tf.maximum(ceiling(num_rows, num_chunks), 1)
        cast_kernel, cast_bias = (tf.cast(x, inputs.dtype) for x in (kernel, bias))

        input_chunks, log_weights_chunks = (_to_chunks(x, num_chunks, size) for x in (inputs, log_weights))

        def compute_logits(chunk):
            rows = tf.reshape(input_chunks[chunk], tf.stack([size * count, width]))
            logits = tf.cast(tf.nn.bias_add(tf.matmul(rows, cast_kernel), cast_bias), tf.float32)
            return tf.reshape(logits, tf.stack([size, count, vocabulary_size]))

        def body(chunk, values):
            value = _log_mixture(compute_logits(chunk), log_weights_chunks[chunk])
            return chunk + 1, tf.tensor_scatter_nd_update(values, [[chunk]], value[None])

        start = tf.zeros(tf.stack([num_chunks, size, vocabulary_size]))
        (values,) = _loop_over(num_chunks, body, start)

        def backward(upstream):
            upstream_chunks = _to_chunks(upstream, num_chunks, size)

            def add_chunk(chunk, d_inputs, d_kernel, d_bias, d_log_weights):
                logits, d_log_words = compute_logits(chunk), upstream_chunks[chunk][:, None]
                d_log_words *= tf.nn.softmax(tf.nn.log_softmax(logits) + log_weights_chunks[chunk][..., None], axis=1)
                d_weights = tf.reduce_sum(d_log_words, axis=2)
                d_logits = tf.reshape(d_log_words - tf.nn.softmax(logits) * d_weights[..., None], (-1, vocabulary_size))
                cast_d_logits = tf.cast(d_logits, inputs.dtype)
                d_rows = tf.reshape(
                    tf.matmul(cast_d_logits, cast_kernel, transpose_b=True), tf.stack([size, count, width])
                )
                rows = tf.reshape(input_chunks[chunk], (-1, width))
                return (
                    chunk + 1,
                    tf.tensor_scatter_nd_update(d_inputs, [[chunk]], tf.cast(d_rows, tf.float32)[None]),
                    d_kernel + tf.cast(tf.matmul(rows, cast_d_logits, transpose_a=True), tf.float32),
                    d_bias + tf.reduce_sum(d_logits, axis=0),
                    tf.tensor_scatter_nd_update(d_log_weights, [[chunk]], d_weights[None]),
                )

            # TensorFlow has no GPU kernel for these updates in half precision.
            start = tuple(tf.zeros_like(x, tf.float32) for x in (input_chunks, kernel, bias, log_weights_chunks))
            d_inputs, d_kernel, d_bias, d_log_weights = _loop_over(num_chunks, add_chunk, *start)
            d_inputs = tf.cast(_from_chunks(d_inputs, num_rows), inputs.dtype)
            return d_inputs, d_kernel, d_bias, _from_chunks(d_log_weights, num_rows)

        return _from_chunks(values, num_rows), backward

    return function(*(tf.convert_to_tensor(x) for x in (inputs, kernel, bias, log_weights)))


def _log_mixture(logits, log_weights):
    """Return log sum_k exp(log_weights[:, k]) softmax(logits[:, k]), (n, V), from (n, K, V) and (n, K)."""
    largest = tf.reduce_max(log_weights, axis=1, keepdims=True)
    mixture = tf.reduce_sum(tf.exp(log_weights - largest)[..., None] * tf.nn.softmax(logits), axis=1)
    # The logarithm of a tiny sum is imprecise. Summing in log space is always precise, but slower.
    value = tf.cond(
        tf.reduce_all(mixture > SMALLEST),
        lambda: tf.math.log(mixture) + largest,
        lambda: tf.reduce_logsumexp(tf.nn.log_softmax(logits) + log_weights[..., None], axis=1),
    )
    return tf.maximum(value, LOG_ZERO)


def _to_chunks(x, num_chunks, size):
    """Reshape rows (N, ...) to (num_chunks, size, ...), padded with zeros."""
    padding = [[0, num_chunks * size - tf.shape(x)[0]]] + [[0, 0]] * (len(x.shape) - 1)
    return tf.reshape(tf.pad(x, padding), tf.concat([[num_chunks, size], tf.shape(x)[1:]], axis=0))


def _from_chunks(chunks, num_rows):
    num_chunks, size, *_ = tf.unstack(tf.shape(chunks))
    return tf.reshape(chunks, tf.concat([[num_chunks * size], tf.shape(chunks)[2:]], axis=0))[:num_rows]


def _loop_over(num_chunks, body, *variables):
    start = (tf.constant(0), *variables)
    return tf.while_loop(lambda chunk, *_: chunk < num_chunks, body, start, parallel_iterations=1)[1:]
