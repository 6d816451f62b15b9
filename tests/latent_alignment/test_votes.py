"""Tests targets that weight every word (votes), and one query per example, against float64 references."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, logsumexp
from tiers import jit_compile, slow_after

from keras_vattn import CategoricalAttention, LatentLogLikelihood, LatentObjective, NegativeBound, TokenLogLikelihood

BATCH, STEPS, CANDIDATES, WIDTH, VOCABULARY = 3, 4, 5, 6, 9
GENERATOR = np.random.default_rng(8)
INPUTS = GENERATOR.normal(size=(BATCH, STEPS, CANDIDATES, WIDTH)).astype("float32")
LABELS = GENERATOR.integers(0, VOCABULARY, size=(BATCH, STEPS)).astype("int32")
VOTES = GENERATOR.multinomial(10, GENERATOR.dirichlet(np.ones(VOCABULARY), size=(BATCH, STEPS))).astype("float32")
VOTES[0, 1] = 0.0
UPSTREAM = GENERATOR.normal(size=(BATCH, STEPS, CANDIDATES)).astype("float32")
UPSTREAM[:, :, -1] = 0.0
KERNEL, BIAS = GENERATOR.normal(size=(WIDTH, VOCABULARY)), GENERATOR.normal(size=VOCABULARY)
CHUNK_SIZES = (None, 1, 7, 30, 60)
MASK = np.arange(STEPS) < np.array([[4], [2], [1]])


def built(**options):
    layer = TokenLogLikelihood(VOCABULARY, **options)
    layer.build(INPUTS.shape)
    layer.set_weights([KERNEL, BIAS])
    return layer


def value_and_gradients(layer, inputs=INPUTS, targets=VOTES, upstream=UPSTREAM, **options):
    inputs = tf.convert_to_tensor(inputs)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = layer(inputs, targets, **options)
    return [value, *tape.gradient(value, [inputs, *[w.value for w in layer.weights]], tf.convert_to_tensor(upstream))]


def dense(mask=None):
    """Return value and gradients in float64, computed from the log probabilities of all words."""
    inputs, kernel, bias = (tf.constant(x, tf.float64) for x in (INPUTS, KERNEL, BIAS))
    with tf.GradientTape() as tape:
        tape.watch([inputs, kernel, bias])
        value = tf.einsum("btkv,btv->btk", tf.nn.log_softmax(inputs @ kernel + bias), tf.constant(VOTES, tf.float64))
        value = value if mask is None else tf.where(mask, value, 0.0)
    return [value, *tape.gradient(value, [inputs, kernel, bias], tf.constant(UPSTREAM, tf.float64))]


def assert_close(actual, expected, rtol=1e-4, atol=1e-4):
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=atol)


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_votes(chunk_size):
    actual = value_and_gradients(built(chunk_size=chunk_size))
    assert actual[0].dtype == tf.float32
    assert_close(actual, dense())
    assert (actual[0].numpy()[0, 1] == 0).all() and (actual[1].numpy()[0, 1] == 0).all()
    log_words = log_softmax(INPUTS.astype("float64") @ KERNEL + BIAS, axis=-1)
    np.testing.assert_allclose(actual[0], (log_words * VOTES[:, :, None]).sum(-1), rtol=1e-5, atol=1e-4)


def test_votes_of_one_word_are_its_label():
    one_hot = np.eye(VOCABULARY, dtype="float32")[LABELS]
    actual = value_and_gradients(built(chunk_size=7), targets=one_hot)
    assert_close(actual, value_and_gradients(built(chunk_size=7), targets=LABELS), rtol=1e-5, atol=1e-5)
    tenfold = value_and_gradients(built(chunk_size=7), targets=(10 * one_hot).astype("int32"))
    assert_close(tenfold, [10 * x for x in actual], rtol=1e-4, atol=1e-4)


@jit_compile
@pytest.mark.parametrize("chunk_size", slow_after([None, 7]))
def test_votes_under_masks(chunk_size, jit_compile):
    """Masked words and candidates have value and gradient 0, whatever their content."""
    possible = np.arange(CANDIDATES) < np.array([2, 5, 1])[:, None, None] + np.zeros((1, STEPS, 1))
    mask = MASK[..., None] & possible
    inputs, votes = np.where(mask[..., None], INPUTS, np.nan), np.where(MASK[..., None], VOTES, np.nan)
    call = tf.function(value_and_gradients, jit_compile=jit_compile, autograph=False)
    masks = {"inputs_mask": tf.constant(MASK), "candidates_mask": tf.constant(possible)}
    actual = call(built(chunk_size=chunk_size), inputs, votes.astype("float32"), **masks)
    assert_close(actual, dense(mask))
    assert (actual[1].numpy()[~mask] == 0).all()


def test_an_impossible_word_without_a_vote_costs_nothing():
    layer, votes = TokenLogLikelihood(3, kernel_initializer="identity"), np.float32([[[2.0, 1.0, 0.0]]])
    np.testing.assert_allclose(layer(np.float32([[[[0.0, 0.0, -1e4]]]]), votes), [[[-3 * np.log(2)]]], rtol=1e-6)


@pytest.mark.parametrize("targets", [LABELS, VOTES], ids=["labels", "votes"])
def test_one_query_per_example(targets):
    """Without a step axis the layer gives the values, gradients and masks of one step."""
    layer = built(chunk_size=7)
    inputs, upstream = INPUTS[:, 0], UPSTREAM[:, 0]
    actual = value_and_gradients(layer, inputs, targets[:, 0], upstream)
    expected = value_and_gradients(layer, INPUTS[:, :1], targets[:, :1], UPSTREAM[:, :1])
    assert_close(actual, [expected[0][:, 0], expected[1][:, 0], *expected[2:]], rtol=1e-6, atol=1e-6)
    mask, possible = np.array([True, False, True]), np.arange(CANDIDATES) < np.array([[1], [2], [3]])
    value = layer(inputs, targets[:, 0], inputs_mask=mask, candidates_mask=possible)
    np.testing.assert_allclose(value, np.where(mask[:, None] & possible, actual[0], 0.0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(value._keras_mask, mask)
    symbolic = layer(keras.Input((None, WIDTH)), keras.Input(targets.shape[2:]))
    assert symbolic.shape == (None, None) and symbolic.dtype == "float32"


def test_a_prediction_of_one_query_per_example():
    layer = built()
    log_weights = np.log(GENERATOR.dirichlet(np.ones(CANDIDATES), size=BATCH)).astype("float32")
    log_words = log_softmax(INPUTS[:, 0].astype("float64") @ KERNEL + BIAS, axis=-1)
    np.testing.assert_allclose(layer(INPUTS[:, 0]), log_words, rtol=1e-4, atol=1e-5)
    expected = logsumexp(log_words + log_weights[..., None], axis=1)
    np.testing.assert_allclose(layer(INPUTS[:, 0], log_weights=log_weights), expected, rtol=1e-4, atol=1e-5)
    ignoring = built(ignore_class=int(LABELS[0, 0]))
    assert (ignoring(INPUTS[:, 0], LABELS[:, 0]).numpy()[0] == 0).all()


def question_model():
    """Return a model of a question, regions and the votes of ten people, and a model of its log probabilities."""
    question, regions = keras.Input((WIDTH,), name="question"), keras.Input((None, WIDTH), name="regions")
    votes = keras.Input((VOCABULARY,), name="votes")
    latent = CategoricalAttention("additive", "marginal", seed=1, name="attention")(question[:, None], regions)
    latent = {name: x[:, 0] for name, x in latent.items()}
    hidden = keras.ops.tanh(keras.layers.Dense(WIDTH)(question)[:, None] + latent["candidates"])
    log_likelihood = TokenLogLikelihood(VOCABULARY, name="answers")(hidden, votes)
    bound = LatentLogLikelihood("marginal", name="bound")(log_likelihood, latent["log_prior"])
    inputs = [question, regions, votes]
    return keras.Model(inputs, bound), keras.Model(inputs, [latent["log_prior"], log_likelihood])


@pytest.mark.slow
def test_a_model_of_questions():
    """`fit` minimises -log sum_z p(z) prod_v p(v | z)^votes, weighted and averaged over the batch, as computed in
    NumPy."""
    model, parts = question_model()
    votes = VOTES[:, 0]
    x = [*GENERATOR.normal(size=(2, BATCH, WIDTH)).astype("float32"), votes]
    x[1] = GENERATOR.normal(size=(BATCH, 7, WIDTH)).astype("float32")
    log_prior, log_likelihood = (np.asarray(y, "float64") for y in parts(x))
    cost = -logsumexp(log_prior + log_likelihood, axis=-1)
    weight = np.array([1.0, 0.5, 2.0])
    model.compile("sgd", NegativeBound(), jit_compile=False)
    np.testing.assert_allclose(model.evaluate(x, votes, verbose=0), cost.mean(), rtol=1e-5)
    actual = model.fit(x, votes, sample_weight=weight, batch_size=BATCH, verbose=0).history["loss"][0]
    np.testing.assert_allclose(actual, (cost * weight).mean(), rtol=1e-5)
    assert model.predict(x, verbose=0).shape == (BATCH,)


def test_the_moving_average_of_one_query_per_example():
    log_prior = log_softmax(GENERATOR.normal(size=(BATCH, 3)), axis=-1).astype("float32")
    log_likelihood = -GENERATOR.gamma(2.0, size=(BATCH, 3)).astype("float32")
    layer = LatentLogLikelihood(LatentObjective("hard", "sample", num_samples=3, baseline="moving_average"))
    mask = np.array([True, False, True])
    layer(log_likelihood, log_prior, log_likelihood_mask=mask, training=True)
    expected = log_likelihood[mask].mean()
    np.testing.assert_allclose(layer.average[0] / layer.average[1], expected, rtol=1e-5)


def test_errors():
    layer = built()
    for inputs, targets in (
        (INPUTS, VOTES[:, 0]),
        (INPUTS, VOTES[..., :3]),
        (INPUTS[:, 0], VOTES),
        (INPUTS, LABELS[0]),
    ):
        with pytest.raises(ValueError, match=r"`inputs\[:, 0\]` removes it from the inputs. Received: targets.shape="):
            layer(inputs, targets)
    with pytest.raises(ValueError, match=r"not to weights.*Received: targets.shape=\(3, 4, 9\), ignore_class=0"):
        built(ignore_class=0)(INPUTS, VOTES)
    with pytest.raises(ValueError, match=r"`inputs_mask` must have shape \(B\)\. Expected:"):
        layer(INPUTS[:, 0], VOTES[:, 0], inputs_mask=MASK)
    with pytest.raises(ValueError, match=r"`log_weights` must have shape \(B, K\)"):
        layer(INPUTS[:, 0], log_weights=UPSTREAM)
    with pytest.raises(ValueError, match=r"\(B, T, K\) or \(B, K\). Received: log_prior.shape=\(3,\)"):
        LatentLogLikelihood("marginal")(UPSTREAM[:, 0, 0], UPSTREAM[:, 0, 0])
    with pytest.raises(ValueError, match=r"\(B, K\) of marginal/enumerate.*Received: log_likelihood.shape=\(3, 4, 5\)"):
        LatentLogLikelihood("marginal")(UPSTREAM, UPSTREAM[:, 0])
