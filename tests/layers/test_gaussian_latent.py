import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability.python import distributions as tfd
from twins import twin_divergence

from keras_vattn import GaussianLatent

GENERATOR = np.random.default_rng(1)
INPUTS = GENERATOR.normal(size=(6, 4)).astype("float32")
SEQUENCE = GENERATOR.normal(size=(6, 5, 4)).astype("float32")
MASK = np.arange(5) < np.array([5, 4, 3, 2, 1, 0])[:, None]


def parameters(layer, inputs):
    mean = inputs @ layer.mean_kernel.numpy() + layer.mean_bias.numpy()
    return mean, inputs @ layer.log_scale_kernel.numpy() + layer.log_scale_bias.numpy()


def by_dimension(mean, log_scale):
    return 0.5 * (np.exp(2 * log_scale) + mean**2 - 1.0) - log_scale


@pytest.mark.parametrize("inputs", [INPUTS, SEQUENCE], ids=["vector", "sequence"])
def test_mean_and_divergence(inputs):
    layer = GaussianLatent(3)
    z = layer(inputs)
    mean, log_scale = parameters(layer, inputs)
    np.testing.assert_allclose(z, mean, rtol=1e-5, atol=1e-6)
    assert float(layer.losses[0]) == pytest.approx(by_dimension(mean, log_scale).sum() / 6, rel=1e-5)
    q, p = layer.posterior_distribution(inputs), layer.prior_distribution(inputs)
    np.testing.assert_allclose(twin_divergence(q, p), by_dimension(mean, log_scale).sum(-1), rtol=1e-5)


def test_draws():
    """Over 100 000 samples, all 3 means are within 4 standard errors and all 3 variances within 5; seed 2."""
    layer, count = GaussianLatent(3, seed=2), 100_000
    inputs = np.broadcast_to(INPUTS[:1], (count, 4))
    z = layer(inputs, training=True).numpy()
    mean, log_scale = parameters(layer, INPUTS[:1])
    sigma = np.exp(log_scale[0])
    assert (np.abs(z.mean(0) - mean[0]) < 4 * sigma / np.sqrt(count)).all()
    assert (np.abs(z.var(0) / sigma**2 - 1.0) < 5 * np.sqrt(2.0 / count)).all()


@pytest.mark.parametrize("kl_reduction", ["sum", "query_mean", "mean"])
def test_reductions(kl_reduction):
    layer = GaussianLatent(3, kl_reduction=kl_reduction)
    layer(SEQUENCE, mask=tf.constant(MASK))
    total = by_dimension(*parameters(layer, SEQUENCE)).sum(-1)[MASK].sum()
    denominator = {"sum": 6, "query_mean": MASK.sum(), "mean": MASK.sum() * 3}[kl_reduction]
    assert float(layer.losses[0]) == pytest.approx(total / denominator, rel=1e-5)


def test_free_bits():
    """A dimension whose mean KL over the batch is below the threshold has the threshold as loss, without a gradient."""
    layer = GaussianLatent(4, free_bits=1.0)
    layer(INPUTS)
    layer.mean_kernel.assign(np.zeros((4, 4)))
    layer.log_scale_kernel.assign(np.zeros((4, 4)))
    layer.mean_bias.assign([0.0, 1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        layer(INPUTS, training=False)
        loss = layer.losses[0]
    assert float(loss) == pytest.approx(1.0 + 1.0 + 2.0 + 4.5, rel=1e-6)
    assert float(layer.kl_tracker.result()) == pytest.approx(0.0 + 0.5 + 2.0 + 4.5, rel=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, layer.mean_bias.value), [0.0, 0.0, 2.0, 3.0], rtol=1e-6)


def test_free_bits_of_a_masked_sequence():
    layer = GaussianLatent(3, free_bits=3.0)
    layer(SEQUENCE, mask=tf.constant(MASK))
    average = by_dimension(*parameters(layer, SEQUENCE))[MASK].mean(0)
    assert average.min() < 3.0 < average.max()
    expected = np.maximum(average, 3.0).sum() * MASK.sum() / 6
    assert float(layer.losses[0]) == pytest.approx(expected, rel=1e-5)


def test_free_nats_of_a_sequence():
    """The loss of a sentence is its KL or, if the KL is below the budget, the budget, which has no gradient."""
    totals = None
    for free_nats in (0.0, 8.0):
        layer = GaussianLatent(3, free_nats=free_nats, seed=1)
        layer.build(SEQUENCE.shape)
        layer.set_weights([np.random.default_rng(2).normal(size=x.shape, scale=0.5) for x in layer.get_weights()])
        if totals is None:
            totals = np.where(MASK, by_dimension(*parameters(layer, SEQUENCE)).sum(-1), 0.0).sum(1)
        inputs = tf.constant(SEQUENCE)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            layer(inputs, mask=tf.constant(MASK))
            loss = layer.losses[0]
        moved = np.any(tape.gradient(loss, inputs) != 0, axis=(1, 2))
        np.testing.assert_array_equal(moved, totals > free_nats)
        # A sentence without a valid step has no budget.
        expected = np.maximum(totals, free_nats * MASK.any(1)).sum() / 6
        assert float(loss) == pytest.approx(expected, rel=1e-5)
        assert float(layer.kl_tracker.result()) == pytest.approx(totals.sum() / 6, rel=1e-5)
    assert 0.0 < totals[totals > 0].min() < 8.0 < totals.max()
    with pytest.raises(ValueError, match=r"`free_nats` \(per example\). Received: free_bits=1.0, free_nats=2.0"):
        GaussianLatent(3, free_bits=1.0, free_nats=2.0)


def test_a_custom_prior():
    layer = GaussianLatent(3)
    layer(SEQUENCE)
    q = layer.parameters(SEQUENCE)
    p = {name: tf.constant(GENERATOR.normal(size=(6, 5, 3)), tf.float32) for name in q}
    layer = GaussianLatent(3)
    layer.account(q, tf.constant(MASK), prior=p)
    posterior, prior = (tfd.MultivariateNormalDiag(x["mean"], tf.exp(x["log_scale"])) for x in (q, p))
    expected = tfd.kl_divergence(posterior, prior).numpy()[MASK].sum() / 6
    assert [float(x) for x in layer.losses] == pytest.approx([expected], rel=1e-5)
