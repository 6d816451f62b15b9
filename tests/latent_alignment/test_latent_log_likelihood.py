import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from latent_cases import BATCH, SOURCE, STEPS, arrays, layers, run
from scipy.special import log_softmax, logsumexp

import keras_vattn
from keras_vattn import CategoricalAttention, LatentLogLikelihood, LatentObjective

GENERATOR = np.random.default_rng(4)
LOG_LIKELIHOOD = -GENERATOR.gamma(2.0, size=(BATCH, STEPS, SOURCE)).astype("float32")
LOG_PRIOR, LOG_POSTERIOR = log_softmax(GENERATOR.normal(size=(2, BATCH, STEPS, SOURCE)), axis=-1).astype("float32")
LOG_WEIGHTS = LOG_LIKELIHOOD + LOG_PRIOR - LOG_POSTERIOR
DRAWN = [x[..., :3] for x in (LOG_LIKELIHOOD, LOG_PRIOR, LOG_POSTERIOR)]
VALUES = {
    # For each objective: its arguments in training, and its value.
    "soft": ([x[..., :1] for x in (LOG_LIKELIHOOD, 0 * LOG_PRIOR, 0 * LOG_PRIOR)], LOG_LIKELIHOOD[..., 0]),
    "marginal": ([LOG_LIKELIHOOD, LOG_PRIOR, LOG_PRIOR], logsumexp(LOG_LIKELIHOOD + LOG_PRIOR, axis=-1)),
    "elbo/enumerate": ([LOG_LIKELIHOOD, LOG_PRIOR, LOG_POSTERIOR], (np.exp(LOG_POSTERIOR) * LOG_LIKELIHOOD).sum(-1)),
    "elbo/gumbel": ([x[..., :1] for x in (LOG_LIKELIHOOD, 0 * LOG_PRIOR, 0 * LOG_PRIOR)], LOG_LIKELIHOOD[..., 0]),
    "elbo/sample": ([LOG_LIKELIHOOD[..., :4], *DRAWN[1:]], DRAWN[0].mean(-1)),
    "hard/enumerate": ([LOG_LIKELIHOOD, LOG_PRIOR, LOG_PRIOR], (np.exp(LOG_PRIOR) * LOG_LIKELIHOOD).sum(-1)),
    "hard/sample": ([LOG_LIKELIHOOD[..., :4], *DRAWN[1:]], DRAWN[0].mean(-1)),
    "importance_weighted/sample": (DRAWN, logsumexp(LOG_WEIGHTS[..., :3], axis=-1) - np.log(3)),
    "wake_sleep/sample": (DRAWN, logsumexp(LOG_WEIGHTS[..., :3], axis=-1) - np.log(3)),
}


def make_objective(pair, **options):
    return LatentObjective(pair, num_samples=3 if pair.endswith("sample") else 1, **options)


@pytest.mark.parametrize("pair", list(VALUES))
def test_values(pair):
    arguments, expected = VALUES[pair]
    value = LatentLogLikelihood(make_objective(pair))(*arguments, training=True)
    assert value.dtype == tf.float32
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_evaluation_is_enumerated():
    enumerated = [LOG_LIKELIHOOD, LOG_PRIOR, LOG_POSTERIOR]
    for pair, at_inference in (
        ("elbo/sample", "elbo/enumerate"),
        ("elbo/gumbel", "elbo/enumerate"),
        ("hard/sample", "hard/enumerate"),
        ("importance_weighted/sample", "marginal"),
        ("wake_sleep/sample", "marginal"),
    ):
        value = LatentLogLikelihood(make_objective(pair))(*enumerated)
        np.testing.assert_allclose(value, VALUES[at_inference][1], rtol=1e-5, atol=1e-6)
    crossed = LatentLogLikelihood(make_objective("elbo/sample", inference="importance_weighted/sample"))(*DRAWN)
    np.testing.assert_allclose(crossed, VALUES["importance_weighted/sample"][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pair", ["marginal", "elbo/sample", "importance_weighted/sample", "wake_sleep/sample"])
def test_without_a_posterior_it_is_the_marginal(pair):
    value = LatentLogLikelihood(make_objective(pair))(LOG_LIKELIHOOD, LOG_PRIOR)
    np.testing.assert_allclose(value, VALUES["marginal"][1], rtol=1e-5, atol=1e-6)
    most_probable = [x[..., :2] for x in (LOG_LIKELIHOOD, log_softmax(LOG_PRIOR[..., :2], axis=-1))]
    value = LatentLogLikelihood(make_objective(pair, top_k=2))(*most_probable)
    np.testing.assert_allclose(value, logsumexp(most_probable[0] + most_probable[1], axis=-1), rtol=1e-5, atol=1e-6)


def score_gradient(layer, log_likelihood=LOG_LIKELIHOOD[..., :3]):
    log_posterior = tf.constant(DRAWN[2])
    with tf.GradientTape() as tape:
        tape.watch(log_posterior)
        value = layer(log_likelihood, DRAWN[1], log_posterior, training=True)
    return tape.gradient(value, log_posterior).numpy()


def test_baselines():
    """With a baseline b, the gradient with respect to log q is (log p(y | z) - b) / K."""
    gradient = score_gradient(LatentLogLikelihood(make_objective("elbo/sample", baseline=None)))
    np.testing.assert_allclose(gradient, DRAWN[0] / 3, rtol=1e-5)
    gradient = score_gradient(LatentLogLikelihood(make_objective("elbo/sample")), LOG_LIKELIHOOD[..., :4])
    np.testing.assert_allclose(gradient, (DRAWN[0] - LOG_LIKELIHOOD[..., 3:4]) / 3, rtol=1e-4, atol=1e-6)
    mean_of_others = lambda x: (ops.sum(x, axis=-1, keepdims=True) - x) / 2  # noqa: E731
    gradient = score_gradient(LatentLogLikelihood(make_objective("elbo/sample", baseline=mean_of_others)))
    expected = (DRAWN[0] - (DRAWN[0].sum(-1, keepdims=True) - DRAWN[0]) / 2) / 3
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def test_the_soft_baseline_has_no_gradient():
    log_likelihood = tf.constant(LOG_LIKELIHOOD[..., :4])
    with tf.GradientTape() as tape:
        tape.watch(log_likelihood)
        value = LatentLogLikelihood(make_objective("hard/sample"))(log_likelihood, *DRAWN[1:], training=True)
    gradient = tape.gradient(value, log_likelihood).numpy()
    np.testing.assert_allclose(gradient[..., :3], np.full_like(DRAWN[0], 1 / 3), rtol=1e-6)
    assert (gradient[..., 3] == 0).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_moving_average(compiled):
    """The baseline b is the average of earlier calls, weighted by decay^age. The first call has b = 0."""
    layer = LatentLogLikelihood(make_objective("elbo/sample", baseline="moving_average", baseline_decay=0.8))
    layer.build(DRAWN[0].shape, DRAWN[1].shape, DRAWN[2].shape)
    assert [w.dtype for w in layer.weights] == ["float32"] and layer.trainable_weights == []
    mask = np.arange(STEPS) < np.array([3, 2, 0, 1])[:, None]

    def step(log_likelihood):
        log_posterior = tf.constant(DRAWN[2])
        with tf.GradientTape() as tape:
            tape.watch(log_posterior)
            value = layer(log_likelihood, DRAWN[1], log_posterior, log_prior_mask=tf.constant(mask), training=True)
        return tape.gradient(value, log_posterior)

    step = tf.function(step) if compiled else step
    means = []
    for time in range(4):
        log_likelihood = (DRAWN[0] * (1 + time)).astype("float32")
        weights = 0.8 ** np.arange(time)[::-1]
        baseline = np.average(means, weights=weights) if time else 0.0
        np.testing.assert_allclose(
            step(tf.constant(log_likelihood)), (log_likelihood - baseline) / 3, rtol=1e-4, atol=1e-5
        )
        means.append(log_likelihood.mean(-1)[mask].mean())
    before = layer.average.numpy()
    layer(LOG_LIKELIHOOD, LOG_PRIOR, LOG_POSTERIOR, training=False)
    nothing = tf.zeros((BATCH, STEPS), tf.bool)
    layer(*(tf.constant(x) for x in DRAWN), log_likelihood_mask=nothing, training=True)
    np.testing.assert_array_equal(layer.average.numpy(), before)


def test_the_mask_of_the_queries_reaches_the_loss():
    """Operations in the emission drop the mask. The log probabilities of the attention carry the mask to the loss."""
    words = keras.Input((None,), dtype="int32")
    memory = keras.Input((None, 6))
    query = keras.layers.Embedding(11, 6, mask_zero=True)(words)
    latent = CategoricalAttention(objective="marginal")(query, memory)
    hidden = ops.tanh(latent["candidates"] + query[:, :, None])
    log_likelihood = keras_vattn.TokenLogLikelihood(11)(hidden, words)
    bound = LatentLogLikelihood("marginal")(log_likelihood, latent["log_prior"])
    network = keras.Model([words, memory], bound)
    ids = np.array([[3, 4, 0], [5, 0, 0]])
    value = network([ids, arrays(batch=2)["memory"]])
    np.testing.assert_array_equal(value._keras_mask, ids > 0)
    loss = keras_vattn.NegativeBound(reduction=None)(ids, value)
    np.testing.assert_allclose(loss, -(value.numpy() * (ids > 0)).sum(1), rtol=1e-6)


def test_both_layers_need_the_same_objective():
    """Different objectives raise an error eagerly, in a graph and symbolically."""
    parts = layers("elbo/enumerate")
    parts["bound"] = LatentLogLikelihood("marginal")
    for call in (run, tf.function(run)):
        with pytest.raises(ValueError, match=r"same objective. Received: LatentObjective\(objective='elbo'"):
            call(parts, arrays())
    latent = CategoricalAttention(objective="hard")(keras.Input((3, 6)), keras.Input((5, 6)))
    with pytest.raises(ValueError, match="same objective"):
        LatentLogLikelihood("elbo")(keras.Input((3, 5)), latent["log_prior"])


def test_errors():
    layer = LatentLogLikelihood(make_objective("elbo/sample"))
    with pytest.raises(ValueError, match=r"\(B, T, K\) of elbo/sample.*Received: log_likelihood.shape=\(4, 3, 3\)"):
        layer(*DRAWN, training=True)
    with pytest.raises(ValueError, match=r"Received: log_likelihood.shape=\(4, 3\)"):
        layer(LOG_LIKELIHOOD[..., 0], LOG_PRIOR)
    with pytest.raises(ValueError, match=r"Received: log_posterior.shape=\(4, 3, 3\)"):
        layer(LOG_LIKELIHOOD, LOG_PRIOR, DRAWN[2])
    with pytest.raises(ValueError, match="Received: posterior_logits=None, training=True"):
        layer(LOG_LIKELIHOOD, LOG_PRIOR, training=True)
