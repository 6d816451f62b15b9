"""Compute the uncertainty of generated sequences from samples of the model."""

import tensorflow as tf

from keras_vattn.metrics.in_graph import entropy as entropy_of
from keras_vattn.metrics.perplexity import predictive_log_likelihood
from keras_vattn.support.ids import as_integers
from keras_vattn.support.validation import positive_integer


def sequence_uncertainty(draw, num_samples, targets, mask):
    """Compute the uncertainty of each word and of each generated sequence from samples of the model.

    Every sample m of the model scores a generated sequence y of T words by teacher forcing. The sequence may come from
    greedy decoding, sampling or beam search. In the formula, H is the entropy over the vocabulary.

    - The entropy is the total uncertainty, a mean over the words.
    - The mutual information is the uncertainty caused by disagreement between samples, a mean over the words. All
      samples have the same weight at every word ("product of expectations" in Malinin and Gales 2021).
    - The reverse mutual information, at least 0, estimates the disagreement from log p_m(y) alone.

    Samples run one after another. Two tensors (B, T, V) are in memory: one sample and the sum over samples.

    Formula:
        p_(m,t)(v) = p_m(v | y_(<t), x), quad bar(p)_t(v) = 1/M sum_m p_(m,t)(v)
        "word_entropy"_t = H[bar(p)_t], quad "word_mutual_information"_t = H[bar(p)_t] - 1/M sum_m H[p_(m,t)]
        "log_likelihoods"_m = log p_m(y | x) = sum_t log p_(m,t)(y_t)
        "predictive_log_likelihood" = log (1/M sum_m p_m(y | x))
        "entropy" = 1/T sum_t "word_entropy"_t, quad "mutual_information" = 1/T sum_t "word_mutual_information"_t
        "reverse_mutual_information" = 1/T ("predictive_log_likelihood" - 1/M sum_m "log_likelihoods"_m)

    Args:
        draw: Function that maps the index m, a scalar int32, to log p_m(v | y_<t, x) for every word v, (B, T, V), in
            nats. All words of a sequence must share one sample of the noise, for instance from a `keras_vattn.Sampler`.
            In a `tf.function`, `draw` is traced once.
        num_samples: M, a positive integer or a scalar integer tensor.
        targets: y, integers (B, T).
        mask: Boolean (B, T), `True` for words, including the end of the sequence, and `False` for the padding.

    Returns:
        A dictionary of float32 tensors in nats.

        - Per word, with 0 at the padding: `"word_log_likelihoods"` (M, B, T), `"word_entropy"` and
          `"word_mutual_information"` (B, T).
        - Sums over words: `"log_likelihoods"` (M, B) and `"predictive_log_likelihood"` (B,).
        - Means over words: `"entropy"`, `"mutual_information"` and `"reverse_mutual_information"` (B,).
        - The number of words T: `"num_words"` (B,), int32.

    Raises:
        ValueError: If `num_samples` is not positive, if `targets` or `mask` are not (B, T), or if a result of `draw` is
            not (B, T, V).
        tf.errors.InvalidArgumentError: If `num_samples` is a tensor in a `tf.function`, and not positive.

    Reference:
        Malinin and Gales 2021, https://arxiv.org/abs/2002.07650. Fomicheva et al. 2020,
        https://arxiv.org/abs/2005.10608, use the mean and the variance of `log_likelihoods` over samples.

    Example:

    >>> import numpy as np
    >>> p = np.array([[[[0.5, 0.5], [0.9, 0.1]]], [[[0.5, 0.5], [0.1, 0.9]]]], "float32")
    >>> log_p, ids, mask = (lambda draw: np.log(p[draw])), [[0, 0]], [[True, True]]
    >>> results = keras_vattn.metrics.sequence_uncertainty(log_p, 2, ids, mask)
    >>> np.array(results["word_entropy"], float).round(4).tolist()  # log 2, twice
    [[0.6931, 0.6931]]
    >>> mutual_information = np.array(results["word_mutual_information"], float)
    >>> mutual_information.round(4).tolist()  # the draws agree on the first word
    [[0.0, 0.3681]]
    """
    targets, mask = tf.convert_to_tensor(targets), tf.cast(mask, "bool")
    if len(targets.shape) != 2 or not mask.shape.is_compatible_with(targets.shape):
        raise ValueError(
            "`targets` and `mask` must have the same shape, (batch, words). "
            f"Received: targets.shape={tuple(targets.shape)}, mask.shape={tuple(mask.shape)}"
        )
    if not tf.is_tensor(num_samples):
        num_samples = positive_integer("num_samples", num_samples)
    with tf.control_dependencies([tf.debugging.assert_positive(num_samples, "num_samples must be positive")]):
        num_samples = tf.identity(tf.cast(num_samples, "int32"))
    # Padding ids may lie outside the vocabulary.
    targets = tf.where(mask, as_integers("targets", targets, "int32"), 0)

    def body(number, total, entropies, log_likelihoods):
        log_words = tf.cast(draw(number), "float32")  # (B, T, V)
        if len(log_words.shape) != 3 or not log_words.shape[:2].is_compatible_with(targets.shape):
            raise ValueError(
                f"`draw` must return log-probabilities (batch, words, vocabulary) for targets {targets.shape}. "
                f"Received: draw(number).shape={tuple(log_words.shape)}"
            )
        words = tf.exp(log_words)
        # An ordinary product would be NaN for a word of probability 0.
        entropies -= tf.reduce_sum(tf.math.multiply_no_nan(log_words, words), axis=-1)
        target_log_probs = tf.where(mask, tf.gather(log_words, targets, axis=2, batch_dims=2), 0.0)
        return number + 1, total + words, entropies, log_likelihoods.write(number, target_log_probs)

    # The shape (1, 1, 1) broadcasts to (B, T, V). Before the first call of `draw`, V is unknown.
    start = (
        tf.constant(0),
        tf.zeros((1, 1, 1)),
        tf.zeros(tf.shape(targets)),
        tf.TensorArray("float32", num_samples, element_shape=targets.shape),
    )
    shapes = tf.TensorShape(()), tf.TensorShape((None, None, None)), targets.shape, tf.TensorShape(None)
    _, total, entropies, log_likelihoods = tf.while_loop(
        lambda number, *_: number < num_samples, body, start, shapes, parallel_iterations=1
    )
    num_draws, num_words = tf.cast(num_samples, "float32"), tf.math.count_nonzero(mask, axis=1, dtype="int32")
    entropy = tf.where(mask, entropy_of(total / num_draws), 0.0)
    mutual_information = tf.where(mask, tf.maximum(entropy - entropies / num_draws, 0.0), 0.0)
    word_log_likelihoods = log_likelihoods.stack()  # (M, B, T)
    sequence_log_likelihoods = tf.reduce_sum(word_log_likelihoods, axis=2)
    predictive = predictive_log_likelihood(sequence_log_likelihoods)
    per_word = lambda x: tf.math.divide_no_nan(x, tf.cast(num_words, "float32"))  # noqa: E731
    return {
        "word_log_likelihoods": word_log_likelihoods,
        "word_entropy": entropy,
        "word_mutual_information": mutual_information,
        "log_likelihoods": sequence_log_likelihoods,
        "predictive_log_likelihood": predictive,
        "entropy": per_word(tf.reduce_sum(entropy, axis=1)),
        "mutual_information": per_word(tf.reduce_sum(mutual_information, axis=1)),
        "reverse_mutual_information": per_word(
            tf.maximum(predictive - tf.reduce_mean(sequence_log_likelihoods, axis=0), 0.0)
        ),
        "num_words": num_words,
    }
