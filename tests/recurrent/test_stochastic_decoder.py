"""Tests StochasticDecoder against a NumPy loop, and its densities and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, softmax
from tensorflow_probability.python import distributions as tfd
from twins import twin_divergence

import keras_vattn

GENERATOR = np.random.default_rng(5)
BATCH, STEPS, SOURCE, UNITS, WIDTH, CONTEXT = 3, 4, 5, 6, 2, 5
INPUTS = GENERATOR.normal(size=(BATCH, STEPS, 4)).astype("float32")
MEMORY = GENERATOR.normal(size=(BATCH, SOURCE, CONTEXT)).astype("float32")
INPUTS_MASK = np.array([[True, True, True, True], [True, True, False, False], [True, False, True, True]])
MEMORY_MASK = np.arange(SOURCE) < np.array([5, 3, 1])[:, None]
MASKS = {"inputs_mask": INPUTS_MASK, "memory_mask": MEMORY_MASK}
NOISE = {width: GENERATOR.normal(size=(BATCH, STEPS, width)).astype("float32") for width in (WIDTH, CONTEXT)}
FLOOR = -0.5


def built(weight=0.25, around=False, **options):
    decoder = keras_vattn.StochasticDecoder(
        UNITS,
        keras_vattn.GaussianLatent(WIDTH, seed=1, name="z"),
        keras_vattn.Attention("additive"),
        keras_vattn.PredictedContext(CONTEXT, min_log_scale=FLOOR, kl_weight=weight, informed=around, seed=2, name="c"),
        **options,
    )
    decoder.build(INPUTS.shape, MEMORY.shape)
    generator = np.random.default_rng(6)
    for variable in decoder.trainable_weights:
        variable.assign_add(0.3 * generator.normal(size=variable.shape))
    return decoder


@pytest.fixture
def fixed_noise(monkeypatch):
    monkeypatch.setattr(keras_vattn.random, "normal", lambda shape, seed: tf.constant(NOISE[int(shape[-1])]))


def weights(layer, *names):
    return [getattr(layer, name).numpy() for name in names]


def affine(layer, x):
    """Return the mean and the raw log sigma that a layer computes from x."""
    kernels = weights(layer, "mean_kernel", "mean_bias", "log_scale_kernel", "log_scale_bias")
    return x @ kernels[0] + kernels[1], x @ kernels[2] + kernels[3]


def loop_in_numpy(decoder, factor, attends=True):
    """Return the results of all steps, and q, p and p(c~ | z) as TFP distributions over all steps.

    Args:
        decoder: `StochasticDecoder`.
        factor: Factor of the noise: 1 in training, 0 at the mean.
        attends: Whether there is a memory.
    """
    w1, w2, b, v = weights(decoder.attention.score, "query_kernel", "key_kernel", "bias", "scale")
    kernels = weights(decoder.cell, "kernel", "context_kernel", "recurrent_kernel", "bias")
    h, c, results = np.zeros((BATCH, UNITS)), np.zeros((BATCH, UNITS)), []
    for t in range(STEPS):
        p = np.split(h @ decoder.prior_kernel.numpy() + decoder.prior_bias.numpy(), 2, axis=-1)
        q, context = p, np.zeros((BATCH, CONTEXT))
        if attends:
            logits = (np.tanh((h @ w1)[:, None] + MEMORY @ w2 + b) @ v)[..., 0]
            context = np.einsum("bs,bsd->bd", softmax(np.where(MEMORY_MASK, logits, -np.inf), axis=-1), MEMORY)
            q = affine(decoder.latent, np.concatenate([h, context], axis=-1)) if decoder.informed else p
        mean, log_scale = q
        z = mean + factor * decoder.informed * np.exp(log_scale) * NOISE[WIDTH][:, t]
        c_mean, raw = affine(decoder.prediction, z)
        c_log_scale = FLOOR + np.log1p(np.exp(raw))
        around = context if attends and decoder.prediction.informed else c_mean
        predicted = around + factor * np.exp(c_log_scale) * NOISE[CONTEXT][:, t]
        gates = INPUTS[:, t] @ kernels[0] + np.concatenate([z, predicted], axis=-1) @ kernels[1] + h @ kernels[2]
        i, f, g, o = np.split(gates + kernels[3], 4, axis=-1)
        new_c = expit(f) * c + expit(i) * np.tanh(g)
        new_h = expit(o) * np.tanh(new_c)
        results.append((new_h, z, predicted, context, *p, *q, c_mean, c_log_scale))
        valid = INPUTS_MASK[:, t, None]
        h, c = np.where(valid, new_h, h), np.where(valid, new_c, c)
    *arrays, p_mean, p_log_scale, q_mean, q_log_scale, c_mean, c_log_scale = (
        np.stack(x, axis=1) for x in zip(*results, strict=True)
    )
    pairs = (q_mean, q_log_scale), (p_mean, p_log_scale), (c_mean, c_log_scale)
    return arrays, [tfd.MultivariateNormalDiag(mean, np.exp(log_scale)) for mean, log_scale in pairs]


@pytest.mark.parametrize("training", [True, False])
def test_step_order_densities_and_losses_match_numpy(training, fixed_noise):
    decoder = built()
    decoded = decoder(INPUTS, MEMORY, **MASKS, return_distributions=True, training=training)
    arrays, (q, p, c_prior) = loop_in_numpy(decoder, float(training))
    for name, expected in zip(("hidden", "latent", "predicted_context", "context"), arrays, strict=True):
        np.testing.assert_allclose(decoded[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    for name, expected in (("latent_posterior", q), ("latent_prior", p)):
        posterior = tfd.MultivariateNormalDiag(decoded[name]["mean"], tf.exp(decoded[name]["log_scale"]))
        np.testing.assert_allclose(posterior.log_prob(arrays[1]), expected.log_prob(arrays[1]), rtol=1e-4, atol=1e-4)
    divergence = twin_divergence(q, p)[INPUTS_MASK].sum() / BATCH
    nats = -c_prior.log_prob(arrays[3]).numpy()[INPUTS_MASK].sum() / BATCH
    expected = [divergence, 0.25 * nats if training else 0.0]
    assert [float(loss) for loss in decoder.losses] == pytest.approx(expected, rel=1e-4)
    # Only the KL is a part of the bound. The log shows the KL and the other term, both unweighted.
    assert {name: float(x) for name, x in keras_vattn.divergences(decoder).items()} == pytest.approx(
        {"z_kl": divergence}, rel=1e-4
    )
    logged = {metric.name: float(metric.result()) for metric in decoder.metrics}
    assert logged == pytest.approx({"z_kl": divergence, "c_nats": nats}, rel=1e-4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("informed", "around"), [(True, True), (False, False), (False, True)])
def test_variables_informed_by_attention(informed, around, training, fixed_noise):
    """The attention informs z_t, c~_t, both or neither. An uninformed variable stays at its prior, and an informed
    variable adds a KL."""
    decoder = built(informed=informed, around=around)
    decoded = decoder(INPUTS, MEMORY, **MASKS, return_distributions=True, training=training)
    arrays, (q, p, c_prior) = loop_in_numpy(decoder, float(training))
    for name, expected in zip(("hidden", "latent", "predicted_context", "context"), arrays, strict=True):
        np.testing.assert_allclose(decoded[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    assert ("latent_posterior" in decoded) == informed
    expected = {"z_kl": twin_divergence(q, p)[INPUTS_MASK].sum() / BATCH} if informed else {}
    if around:
        c_posterior = tfd.MultivariateNormalDiag(arrays[3], c_prior.stddev())
        expected["c_kl"] = twin_divergence(c_posterior, c_prior)[INPUTS_MASK].sum() / BATCH
    logged = {name: float(x) for name, x in keras_vattn.divergences(decoder).items()}
    assert logged == pytest.approx(expected, rel=1e-4)
    weights = {"z_kl": 1.0, "c_kl": 0.25}
    if around:
        loss = sum(weights[name] * x for name, x in expected.items())
        assert float(sum(decoder.losses)) == pytest.approx(loss, rel=1e-4)


def test_a_fully_masked_memory_equals_no_memory(fixed_noise):
    decoder = built(around=True)
    none = {"inputs_mask": INPUTS_MASK, "memory_mask": np.zeros((BATCH, SOURCE), bool)}
    decoded, losses = decoder(INPUTS, MEMORY, **none, training=True), decoder.losses
    np.testing.assert_allclose(decoded["hidden"], decoder(INPUTS, inputs_mask=INPUTS_MASK, training=True)["hidden"])
    assert [float(x) for x in losses] == [0.0, 0.0]


@pytest.mark.parametrize("training", [True, False])
def test_without_a_memory_it_draws_from_the_prior(training, fixed_noise):
    decoder = built()
    decoded = decoder(INPUTS, inputs_mask=INPUTS_MASK, return_distributions=True, training=training)
    assert sorted(decoded) == ["hidden", "latent", "latent_prior", "predicted_context"]
    assert decoder.losses == []
    arrays, _ = loop_in_numpy(decoder, float(training), attends=False)
    for name, expected in zip(("hidden", "latent", "predicted_context"), arrays, strict=False):
        np.testing.assert_allclose(decoded[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_context_reaches_the_state_only_through_the_latent():
    """If q does not depend on the context c, the memory does not change the state."""
    decoder = built()
    for name in ("mean_kernel", "log_scale_kernel"):
        kernel = getattr(decoder.latent, name)
        kernel.assign(np.concatenate([kernel.numpy()[:UNITS], np.zeros((CONTEXT, WIDTH))]))
    one, other = (decoder(INPUTS, memory)["hidden"] for memory in (MEMORY, 3.0 - MEMORY))
    np.testing.assert_array_equal(one, other)


def test_the_auxiliary_term_reaches_the_encoder_only_through_the_latent():
    decoder, memory = built(weight=1.0), tf.constant(MEMORY)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(memory)
        decoded = decoder(INPUTS, memory, training=True)
        term = -BATCH * decoder.losses[1]
        through_z = tf.reduce_sum(
            decoder.prediction.distribution(decoded["latent"]).log_prob(tf.stop_gradient(decoded["context"]))
        )
        without_z = tf.reduce_sum(
            decoder.prediction.distribution(tf.stop_gradient(decoded["latent"])).log_prob(
                tf.stop_gradient(decoded["context"])
            )
        )
    assert tape.gradient(without_z, memory) is None
    actual, expected = tape.gradient(term, memory), tape.gradient(through_z, memory)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert np.any(np.abs(expected) > 1e-3)


def test_step_equals_the_loop():
    """Calls of `step` equal the loop, with and without a memory, at the mean and with slices of the same noise."""
    decoder = built()
    for memory in (MEMORY, None):
        with keras_vattn.posterior_draws(decoder, seed=3):
            drawn = decoder(INPUTS, memory)
            prepared = decoder.prepare_memory(memory)
            noise = decoder.draw_noise(BATCH, STEPS, prepared)
        assert np.any(drawn["latent"] != decoder(INPUTS, memory)["latent"])
        for expected, all_noise in ((decoder(INPUTS, memory), None), (drawn, noise)):
            state = decoder.start(BATCH, prepared)
            for t in range(STEPS):
                step_noise = None if all_noise is None else keras.tree.map_structure(lambda x, t=t: x[:, t], all_noise)
                outputs, state = decoder.step(INPUTS[:, t], state, prepared, step_noise)
                for name in expected:
                    np.testing.assert_allclose(outputs[name], expected[name][:, t], atol=1e-5)


def test_first_noise():
    """q and p start with the same small sigma, so the initial noise and KL are small."""
    latent = keras_vattn.GaussianLatent(WIDTH, initial_log_scale=-3.0, kernel_initializer="zeros")
    decoder = keras_vattn.StochasticDecoder(UNITS, latent, keras_vattn.Attention("additive"))
    decoded = decoder(INPUTS[:, :1], MEMORY, return_distributions=True)
    for name in ("latent_posterior", "latent_prior"):
        np.testing.assert_array_equal(decoded[name]["log_scale"], np.full((BATCH, 1, WIDTH), -3.0))
    assert float(decoder.losses[0]) == 0.0


def test_a_small_initial_sigma_does_not_increase_the_kl():
    """Initial kernels scale with sigma, because at sigma exp(-3) means that differ by 1 give thousands of nats."""
    costs, kernels_of_priors = [], []
    for scale in (0.0, -3.0):
        keras.utils.set_random_seed(1)
        kernels = keras.initializers.RandomNormal(stddev=0.5, seed=1)
        latent = keras_vattn.GaussianLatent(WIDTH, initial_log_scale=scale, kernel_initializer=kernels)
        decoder = keras_vattn.StochasticDecoder(UNITS, latent, keras_vattn.Attention("additive"))
        state = [np.ones((BATCH, UNITS), "float32")] * 2
        # This initial state has not read any latent variable.
        decoder(INPUTS[:, :1], MEMORY, state)
        costs.append(float(decoder.losses[0]))
        kernels_of_priors.append(decoder.prior_kernel.numpy())
    assert costs[0] > costs[1] > 0.01
    first, small = kernels_of_priors
    np.testing.assert_allclose(small, np.exp(-3.0) * first, rtol=1e-5)
    assert np.std(first) > 0.3


def test_bad_arguments():
    attention, latent = keras_vattn.Attention("additive"), keras_vattn.GaussianLatent(WIDTH)
    decoder = keras_vattn.StochasticDecoder(UNITS, latent, attention)
    with pytest.raises(ValueError, match="built with a memory"):
        decoder(INPUTS)
    with pytest.raises(ValueError, match=r"as wide as the context. Received: prediction.units=4, .* 5"):
        keras_vattn.StochasticDecoder(UNITS, latent, attention, keras_vattn.PredictedContext(4))(INPUTS, MEMORY)
    with pytest.raises(ValueError, match="`memory_mask` needs a memory"):
        built()(INPUTS, memory_mask=MEMORY_MASK)
    with pytest.raises(ValueError, match="`latent`"):
        keras_vattn.StochasticDecoder(UNITS, 3, attention)
    with pytest.raises(ValueError, match="same `units`"):
        keras_vattn.StochasticDecoder(UNITS, latent, attention, cell=keras_vattn.LSTMCell(UNITS + 1))
