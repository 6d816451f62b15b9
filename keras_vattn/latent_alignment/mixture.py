"""A prediction of words that marginalises the candidates of an alignment out, in chunks of words."""

import tensorflow as tf

from keras_vattn.latent_alignment.chunked_softmax import SMALLEST, ceiling
from keras_vattn.latent_alignment.log_probabilities import LOG_ZERO
from keras_vattn.support.gradients import custom_gradient


def mixture_log_probabilities(inputs, kernel, bias, log_weights, chunk_size):
    """Return log sum_k exp(log_weights[:, k]) softmax(inputs[:, k] W + b), float32 (N, V), over chunks of rows.

    Args:
        inputs: (N, K, D), in the dtype of the matrix products.
        kernel: W, float32 (D, V).
        bias: b, float32 (V,).
        log_weights: Float32 (N, K).
        chunk_size: Largest number of rows and candidates (N times K) whose logits exist at a time; one row at least.
    """

    @custom_gradient
    def function(inputs, kernel, bias, log_weights):
        num_rows, count = tf.shape(inputs)[0], tf.shape(inputs)[1]
        width, vocabulary_size = kernel.shape
        num_chunks = tf.maximum(ceiling(num_rows, tf.maximum(chunk_size // tf.maximum(count, 1), 1)), 1)
        size = tf.maximum(ceiling(num_rows, num_chunks), 1)
        cast_kernel, cast_bias = (tf.cast(x, inputs.dtype) for x in (kernel, bias))

        inputs_of, log_weights_of = (_in_chunks(x, num_chunks, size) for x in (inputs, log_weights))

        def logits_of(chunk):
            rows = tf.reshape(inputs_of[chunk], tf.stack([size * count, width]))
            logits = tf.cast(tf.nn.bias_add(tf.matmul(rows, cast_kernel), cast_bias), tf.float32)
            return tf.reshape(logits, tf.stack([size, count, vocabulary_size]))

        def body(chunk, values):
            value = _log_mixture(logits_of(chunk), log_weights_of[chunk])
            return chunk + 1, tf.tensor_scatter_nd_update(values, [[chunk]], value[None])

        start = tf.zeros(tf.stack([num_chunks, size, vocabulary_size]))
        (values,) = _loop_over(num_chunks, body, start)

        def backward(upstream):
            upstream_of = _in_chunks(upstream, num_chunks, size)

            def add_chunk(chunk, by_inputs, by_kernel, by_bias, by_log_weights):
                logits, share = logits_of(chunk), upstream_of[chunk][:, None]
                share *= tf.nn.softmax(tf.nn.log_softmax(logits) + log_weights_of[chunk][..., None], axis=1)
                by_weight = tf.reduce_sum(share, axis=2)
                by_logits = tf.reshape(share - tf.nn.softmax(logits) * by_weight[..., None], (-1, vocabulary_size))
                narrow = tf.cast(by_logits, inputs.dtype)
                by_rows = tf.reshape(tf.matmul(narrow, cast_kernel, transpose_b=True), tf.stack([size, count, width]))
                rows = tf.reshape(inputs_of[chunk], (-1, width))
                return (
                    chunk + 1,
                    tf.tensor_scatter_nd_update(by_inputs, [[chunk]], tf.cast(by_rows, tf.float32)[None]),
                    by_kernel + tf.cast(tf.matmul(rows, narrow, transpose_a=True), tf.float32),
                    by_bias + tf.reduce_sum(by_logits, axis=0),
                    tf.tensor_scatter_nd_update(by_log_weights, [[chunk]], by_weight[None]),
                )

            # TensorFlow has no GPU kernel that updates a tensor of half precision.
            start = tuple(tf.zeros_like(x, tf.float32) for x in (inputs_of, kernel, bias, log_weights_of))
            by_inputs, by_kernel, by_bias, by_log_weights = _loop_over(num_chunks, add_chunk, *start)
            by_inputs = tf.cast(_together(by_inputs, num_rows), inputs.dtype)
            return by_inputs, by_kernel, by_bias, _together(by_log_weights, num_rows)

        return _together(values, num_rows), backward

    return function(*(tf.convert_to_tensor(x) for x in (inputs, kernel, bias, log_weights)))


def _log_mixture(logits, log_weights):
    """Return log sum_k exp(log_weights[:, k]) softmax(logits[:, k]), (n, V), from (n, K, V) and (n, K)."""
    largest = tf.reduce_max(log_weights, axis=1, keepdims=True)
    mixture = tf.reduce_sum(tf.exp(log_weights - largest)[..., None] * tf.nn.softmax(logits), axis=1)
    # A probability near 0 has no digits left: then by logarithms, three more passes over the logits.
    value = tf.cond(
        tf.reduce_all(mixture > SMALLEST),
        lambda: tf.math.log(mixture) + largest,
        lambda: tf.reduce_logsumexp(tf.nn.log_softmax(logits) + log_weights[..., None], axis=1),
    )
    return tf.maximum(value, LOG_ZERO)


def _in_chunks(x, num_chunks, size):
    """Return rows (N, ...) as (num_chunks, size, ...), the last ones zeros."""
    padding = [[0, num_chunks * size - tf.shape(x)[0]]] + [[0, 0]] * (len(x.shape) - 1)
    return tf.reshape(tf.pad(x, padding), tf.concat([[num_chunks, size], tf.shape(x)[1:]], axis=0))


def _together(chunks, num_rows):
    num_chunks, size, *_ = tf.unstack(tf.shape(chunks))
    return tf.reshape(chunks, tf.concat([[num_chunks * size], tf.shape(chunks)[2:]], axis=0))[:num_rows]


def _loop_over(num_chunks, body, *variables):
    start = (tf.constant(0), *variables)
    return tf.while_loop(lambda chunk, *_: chunk < num_chunks, body, start, parallel_iterations=1)[1:]
