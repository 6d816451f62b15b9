import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from tiers import jit_compile, slow_after

import keras_vattn
from keras_vattn import TokenLogLikelihood

BATCH, STEPS, CANDIDATES, WIDTH, VOCABULARY = 3, 4, 5, 6, 9
GENERATOR = np.random.default_rng(2)
INPUTS = GENERATOR.normal(size=(BATCH, STEPS, CANDIDATES, WIDTH)).astype("float32")
TARGETS = GENERATOR.integers(0, VOCABULARY, size=(BATCH, STEPS)).astype("int32")
IGNORED = 7  # 4 of the 12 words
UPSTREAM = GENERATOR.normal(size=(BATCH, STEPS, CANDIDATES)).astype("float32")
UPSTREAM[:, :, -1] = 0.0
UPSTREAM[1, 2:] = 0.0
POSSIBLE = np.arange(CANDIDATES) < np.array([2, 1, 1])[:, None, None] + np.zeros((BATCH, STEPS, 1))  # 16 of 60


def built(**options):
    layer = TokenLogLikelihood(VOCABULARY, **options)
    layer.build(INPUTS.shape)
    keras.utils.set_random_seed(0)
    layer.set_weights([np.random.default_rng(5).normal(size=w.shape) for w in layer.weights])
    return layer


def value_and_gradients(layer, inputs=INPUTS, targets=TARGETS, upstream=UPSTREAM, **options):
    inputs = tf.convert_to_tensor(inputs)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = layer(inputs, targets, **options)
    return [value, *tape.gradient(value, [inputs, *[w.value for w in layer.weights]], tf.convert_to_tensor(upstream))]


def reference(layer, ignore_class=None):
    """Return value and gradients, computed with a log-softmax over all words."""
    inputs, variables = tf.constant(INPUTS), [w.value for w in layer.weights]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        log_words = tf.nn.log_softmax(inputs @ variables[0] + (variables[1] if len(variables) > 1 else 0.0))
        value = tf.einsum("btkv,btv->btk", log_words, tf.one_hot(TARGETS, VOCABULARY))
        if ignore_class is not None:
            value = tf.where((ignore_class != TARGETS)[..., None], value, 0.0)
    return [value, *tape.gradient(value, [inputs, *variables], tf.constant(UPSTREAM))]


def assert_close(actual, expected, **tolerance):
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, two, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})


@pytest.mark.parametrize(
    "chunk_size, ignore_class",
    [(None, None), (None, IGNORED), (1, IGNORED), (7, None), (7, IGNORED), (30, None), (60, IGNORED), (1000, None)],
)
def test_value_and_gradients(chunk_size, ignore_class):
    layer = built(chunk_size=chunk_size, ignore_class=ignore_class)
    assert_close(value_and_gradients(layer), reference(layer, ignore_class))


def test_without_a_bias():
    layer = built(use_bias=False, chunk_size=7)
    assert len(layer.weights) == 1
    assert_close(value_and_gradients(layer), reference(layer))


@pytest.mark.parametrize("chunk_size", slow_after([None, 7]))
@jit_compile
def test_impossible_candidates(chunk_size, jit_compile):
    """Impossible candidates have value and gradient 0, whatever their content. The mask affects no other candidate."""
    layer = built(chunk_size=chunk_size, ignore_class=IGNORED)
    upstream = np.where(POSSIBLE, UPSTREAM, 0.0).astype("float32")
    expected = value_and_gradients(layer, upstream=upstream)
    inputs = np.where(POSSIBLE[..., None], INPUTS, np.nan)
    masked = tf.function(value_and_gradients, jit_compile=jit_compile, autograph=False)
    actual = masked(layer, inputs, candidates_mask=tf.constant(POSSIBLE))
    np.testing.assert_allclose(actual[0], np.where(POSSIBLE, expected[0], 0.0), rtol=1e-4, atol=1e-6)
    assert_close(actual[1:], expected[1:])
    assert (actual[1].numpy()[~POSSIBLE] == 0).all()


def test_a_mask_of_candidates_broadcasts():
    layer = built()
    mask_of_keys = np.array([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    value = layer(INPUTS, TARGETS, candidates_mask=mask_of_keys[:, None])
    expected = np.where(mask_of_keys[:, None], layer(INPUTS, TARGETS), 0.0)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="`candidates_mask` needs targets"):
        layer(INPUTS, candidates_mask=mask_of_keys[:, None])
    with pytest.raises(ValueError, match="`candidates_mask` must have shape"):
        layer(INPUTS, TARGETS, candidates_mask=mask_of_keys[:, None, :2])


def test_a_word_without_possible_candidates_counts_all():
    """If no candidate of a word is possible, the mask is ignored, because value 0 would mean a likelihood of 1."""
    layer = built()
    possible = np.ones((3, 1, 5), bool)
    possible[1] = False
    np.testing.assert_allclose(layer(INPUTS, TARGETS, candidates_mask=possible), layer(INPUTS, TARGETS), rtol=1e-6)


def test_ignored_words():
    """Ignored words have value and gradient 0, whatever their content."""
    targets = TARGETS.copy()
    targets[0, 1:] = -1
    inputs = INPUTS.copy()
    layer = built(ignore_class=-1, chunk_size=20)
    value, by_inputs, by_kernel, by_bias = value_and_gradients(layer, inputs, targets)
    assert (value.numpy()[0, 1:] == 0).all() and (by_inputs.numpy()[0, 1:] == 0).all()
    inputs[0, 1:] = np.nan
    changed = value_and_gradients(layer, inputs, targets)
    np.testing.assert_array_equal(changed[0], value)
    np.testing.assert_allclose(changed[2], by_kernel, rtol=1e-5, atol=1e-6)
    only = UPSTREAM.copy()
    only[targets == -1] = 0.0
    np.testing.assert_allclose(value_and_gradients(layer, inputs, targets, only)[3], by_bias, rtol=1e-5, atol=1e-6)


def test_a_large_constant_changes_nothing():
    """Differences between logits near 1e4 stay precise."""
    layer = TokenLogLikelihood(3, kernel_initializer="identity")
    near, far = np.float32([[[[1.0, 2.0, 3.0]]]]), np.float32([[[[10001.0, 10002.0, 10003.0]]]])
    targets = np.zeros((1, 1), "int32")
    np.testing.assert_allclose(layer(far, targets), layer(near, targets), rtol=1e-6)


def test_all_words():
    layer = built()
    log_words = layer(INPUTS)
    assert log_words.shape == (BATCH, STEPS, CANDIDATES, VOCABULARY)
    np.testing.assert_allclose(ops.logsumexp(log_words, axis=-1), np.zeros((BATCH, STEPS, CANDIDATES)), atol=1e-5)
    chosen = np.take_along_axis(log_words.numpy(), TARGETS[:, :, None, None], axis=-1)[..., 0]
    np.testing.assert_allclose(chosen, layer(INPUTS, TARGETS), rtol=1e-5, atol=1e-5)


@jit_compile
@pytest.mark.parametrize("chunk_size", [None, 1, 24, 36])
def test_the_marginal_of_all_words(chunk_size, jit_compile):
    """Compares log sum_k p(z_k) p(v | z_k) and its gradient with plain TensorFlow. Masked keys have no effect."""
    layer = built(chunk_size=chunk_size)
    keys = keras_vattn.DenseKeys(np.arange(CANDIDATES) < np.array([5, 3, 0])[:, None, None])
    logits = tf.constant(np.random.default_rng(4).normal(size=(BATCH, STEPS, CANDIDATES), scale=2), tf.float32)
    log_prior = keras_vattn.latent_alignment.log_probabilities.log_probabilities(logits, keys)
    kernel = layer.kernel.value

    def actual(inputs, log_prior):
        with tf.GradientTape() as tape:
            tape.watch([inputs, log_prior])
            value = layer(inputs, log_weights=log_prior)
            total = tf.reduce_sum(value * tf.cos(value))
        return [value, *tape.gradient(total, [inputs, log_prior, kernel])]

    inputs = tf.constant(INPUTS)
    with tf.GradientTape() as tape:
        tape.watch([inputs, log_prior])
        log_words = tf.nn.log_softmax(inputs @ kernel + layer.bias.value)
        # If no key is valid, all candidates are the empty context.
        weights = tf.concat([log_prior[:2], tf.fill((1, STEPS, CANDIDATES), -np.log(5.0).astype("float32"))], axis=0)
        value = tf.reduce_logsumexp(log_words + weights[..., None], axis=2)
        total = tf.reduce_sum(value * tf.cos(value))
    expected = [value, *tape.gradient(total, [inputs, log_prior, kernel])]
    signature = [tf.TensorSpec((None, None, None, WIDTH)), tf.TensorSpec((None, None, None))]
    compiled = tf.function(actual, input_signature=signature, jit_compile=jit_compile)
    assert_close(compiled(inputs, log_prior), expected)
    np.testing.assert_allclose(ops.logsumexp(value, axis=-1), np.zeros((BATCH, STEPS)), atol=1e-5)


def test_masked_words_may_be_anything():
    """Masked words may have NaN hidden states and invalid labels."""
    mask = np.arange(STEPS) < np.array([[4], [2], [1]])
    inputs, targets = tf.constant(np.where(mask[..., None, None], INPUTS, np.nan)), np.where(mask, TARGETS, -7)
    layer = built()
    expected = np.where(mask[..., None], layer(INPUTS, TARGETS), 0.0)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = layer(inputs, targets, inputs_mask=mask)
        total = tf.reduce_sum(value)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for gradient in tape.gradient(total, [inputs, *[w.value for w in layer.weights]]):
        assert np.isfinite(gradient).all()
    words = layer(inputs, log_weights=np.zeros((BATCH, STEPS, CANDIDATES), "float32"), inputs_mask=mask)
    assert np.isfinite(words).all()


def test_errors():
    with pytest.raises(ValueError, match="Received: ignore_class='pad'"):
        TokenLogLikelihood(3, ignore_class="pad")
    with pytest.raises(ValueError, match=r"Received: inputs.shape=\(3, 4\)"):
        TokenLogLikelihood(3)(INPUTS[..., 0, 0])
    layer = built()
    with pytest.raises(ValueError, match=r"Received: targets.shape=\(3, 3\)"):
        layer(INPUTS, TARGETS[:, :3])
    with pytest.raises(ValueError, match=r"Received: log_weights.shape=\(3, 4\)"):
        layer(INPUTS, log_weights=UPSTREAM[..., 0])
    with pytest.raises(ValueError, match=r"not both. Received: targets.shape=\(3, 4\)"):
        layer(INPUTS, TARGETS, log_weights=UPSTREAM)


@jit_compile
def test_the_marginal_of_improbable_words(jit_compile):
    """Covers log probabilities down to -1000, where float32 probabilities are 0, with one-hot weights."""
    layer = built()
    scale = 1000.0 / np.abs(INPUTS @ layer.kernel.numpy()).max()
    log_weights = np.where(np.arange(CANDIDATES) == 2, 0.0, -1e30).astype("float32")[None, None]
    log_weights = np.broadcast_to(log_weights, (BATCH, STEPS, CANDIDATES))
    compiled = tf.function(lambda x: layer(x, log_weights=log_weights), jit_compile=jit_compile)
    actual = compiled(tf.constant(INPUTS * scale))
    expected = tf.nn.log_softmax(tf.constant(INPUTS[:, :, 2] * scale) @ layer.kernel.value + layer.bias.value)
    assert float(tf.reduce_min(expected)) < -900.0
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3)


def test_the_gradient_of_the_marginal_of_improbable_words():
    """Compares the gradient of improbable words with plain TensorFlow in float64."""
    layer = built()
    scale, log_weights = 1e4, np.zeros((BATCH, STEPS, CANDIDATES))

    def gradients(log_words_of, dtype):
        inputs = tf.constant(INPUTS * scale, dtype)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = tf.reduce_sum(log_words_of(inputs) * np.cos(np.arange(VOCABULARY)))
        return tape.gradient(value, inputs)

    def reference(inputs):
        log_words = tf.nn.log_softmax(inputs @ tf.cast(layer.kernel.value, "float64"))
        return tf.reduce_logsumexp(log_words, axis=2)

    layer.bias.assign(np.zeros(VOCABULARY))
    actual = gradients(lambda x: layer(x, log_weights=log_weights.astype("float32")), "float32")
    expected = gradients(reference, "float64")
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
