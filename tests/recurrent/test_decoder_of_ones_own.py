"""A decoder with a latent at every step, from public parts alone, against a loop in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from scipy.special import expit, softmax
from tensorflow_probability.python import distributions as tfd

import keras_vattn
from keras_vattn import recurrent


@keras.saving.register_keras_serializable(package="tests")
class LatentDecoder(recurrent.RecurrentDecoder):
    """p(z_t | h_{t-1}), q(z_t | h_{t-1}, c_t), h_t = LSTM(x_t, [z_t, f(z_t)])."""

    gives = ("hidden", "context", "latent", "latent_prior", "latent_posterior")

    def __init__(self, units, latent_units, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.units, self.latent_units, self.seed = units, latent_units, seed
        self.attention = keras_vattn.Attention("additive")
        self.prior = keras.layers.Dense(2 * latent_units)
        self.latent = keras_vattn.GaussianLatent(latent_units, seed=seed, name="z")
        self.function = keras.layers.Dense(units, activation="tanh")
        self.cell = keras_vattn.LSTMCell(units)

    def build(self, inputs_shape, memory_shape):
        self.attention.build((*inputs_shape[:2], self.units), memory_shape)
        self.prior.build((None, self.units))
        self.latent.build((None, self.units + memory_shape[-1]))
        self.function.build((None, self.latent_units))
        self.cell.build(inputs_shape, (None, self.latent_units + self.units))

    def parts(self):
        def before(given, state):
            return state["cells"][0]

        def seen(given, state):
            return ops.concatenate([before(given, state), given["context"]], axis=-1)

        def entering(given, state):
            return ops.concatenate([given["latent"], self.function(given["latent"])], axis=-1)

        return [
            recurrent.AttentionPart(self.attention, query=before),
            recurrent.LatentPart(self.latent, seen, prior=lambda given, state: self.prior(before(given, state))),
            recurrent.CellsPart([self.cell], context=entering),
        ]

    def get_config(self):
        return {**super().get_config(), "units": self.units, "latent_units": self.latent_units, "seed": self.seed}


GENERATOR = np.random.default_rng(5)
BATCH, STEPS, SOURCE, UNITS, WIDTH = 3, 4, 5, 6, 2
INPUTS = GENERATOR.normal(size=(BATCH, STEPS, 4)).astype("float32")
MEMORY = GENERATOR.normal(size=(BATCH, SOURCE, 5)).astype("float32")
INPUTS_MASK = np.array([[True, True, True, True], [True, True, False, False], [True, False, True, True]])
MEMORY_MASK = np.arange(SOURCE) < np.array([5, 3, 1])[:, None]
MASKS = {"inputs_mask": INPUTS_MASK, "memory_mask": MEMORY_MASK}


def weights(layer, *names):
    return [getattr(layer, name).numpy() for name in names]


def loop_in_numpy(decoder, noise):
    """The decoder under the masks, with draws from q; returns what it gives of each step, and the KL of each step."""
    score, cell, latent = decoder.attention.score, decoder.cell, decoder.latent
    w1, w2, b, v = weights(score, "query_kernel", "key_kernel", "bias", "scale")
    kernel, context_kernel, recurrent_kernel, bias = weights(
        cell, "kernel", "context_kernel", "recurrent_kernel", "bias"
    )
    mean_kernel, mean_bias, scale_kernel, scale_bias = weights(
        latent, "mean_kernel", "mean_bias", "log_scale_kernel", "log_scale_bias"
    )
    prior_kernel, prior_bias = weights(decoder.prior, "kernel", "bias")
    function_kernel, function_bias = weights(decoder.function, "kernel", "bias")
    h, c, results = np.zeros((BATCH, UNITS)), np.zeros((BATCH, UNITS)), []
    for t in range(STEPS):
        logits = (np.tanh((h @ w1)[:, None] + MEMORY @ w2 + b) @ v)[..., 0]
        context = np.einsum("bs,bsd->bd", softmax(np.where(MEMORY_MASK, logits, -np.inf), axis=-1), MEMORY)
        p_mean, p_log_scale = np.split(h @ prior_kernel + prior_bias, 2, axis=-1)
        seen = np.concatenate([h, context], axis=-1)
        q_mean, q_log_scale = seen @ mean_kernel + mean_bias, seen @ scale_kernel + scale_bias
        z = q_mean + np.exp(q_log_scale) * noise[:, t]
        q, p = tfd.Normal(q_mean, np.exp(q_log_scale)), tfd.Normal(p_mean, np.exp(p_log_scale))
        entering = np.concatenate([z, np.tanh(z @ function_kernel + function_bias)], axis=-1)
        gates = INPUTS[:, t] @ kernel + entering @ context_kernel + h @ recurrent_kernel + bias
        i, f, g, o = np.split(gates, 4, axis=-1)
        new_c = expit(f) * c + expit(i) * np.tanh(g)
        new_h = expit(o) * np.tanh(new_c)
        densities = [np.sum(x.log_prob(z), axis=-1) for x in (q, p)]
        results.append((new_h, context, z, tfd.kl_divergence(q, p).numpy().sum(-1), *densities))
        valid = INPUTS_MASK[:, t, None]
        h, c = np.where(valid, new_h, h), np.where(valid, new_c, c)
    return [np.stack(x, axis=1) for x in zip(*results)]


def built(**options):
    decoder = LatentDecoder(UNITS, WIDTH, seed=1, **options)
    decoder.build(INPUTS.shape, MEMORY.shape)
    for weight in decoder.trainable_weights:
        weight.assign_add(0.3 * GENERATOR.normal(size=weight.shape))
    return decoder


def test_its_outputs_densities_and_divergence_are_those_of_numpy(monkeypatch):
    noise = GENERATOR.normal(size=(BATCH, STEPS, WIDTH)).astype("float32")
    monkeypatch.setattr(keras_vattn.random, "normal", lambda shape, seed: tf.constant(noise))
    decoder = built()
    for training in (True, False):
        decoded = decoder(INPUTS, MEMORY, **MASKS, training=training)
        hidden, context, z, divergence, log_q, log_p = loop_in_numpy(decoder, noise if training else 0.0 * noise)
        for name, expected in (("hidden", hidden), ("context", context), ("latent", z)):
            np.testing.assert_allclose(decoded[name], expected, rtol=1e-4, atol=1e-5)
        for name, expected in (("latent_posterior", log_q), ("latent_prior", log_p)):
            distribution = tfd.MultivariateNormalDiag(decoded[name]["mean"], tf.exp(decoded[name]["log_scale"]))
            np.testing.assert_allclose(distribution.log_prob(decoded["latent"]), expected, rtol=1e-4, atol=1e-4)
        # One loss, and masked steps add nothing to it.
        expected = divergence[INPUTS_MASK].sum() / BATCH
        assert [float(loss) for loss in decoder.losses] == pytest.approx([expected], rel=1e-4)


def test_unknown_sizes_and_gradients():
    """Values and gradients in a graph of unknown batch and lengths are those of an eager call, and none is 0."""
    decoder = built()

    def value_and_gradients(inputs, memory, inputs_mask, memory_mask):
        with tf.GradientTape() as tape:
            decoded = decoder(inputs, memory, inputs_mask=inputs_mask, memory_mask=memory_mask, training=False)
            value = tf.reduce_sum(decoded["hidden"] ** 2) + sum(decoder.losses)
        return value, tape.gradient(value, [w.value for w in decoder.trainable_weights])

    signature = [tf.TensorSpec((None, None, 4)), tf.TensorSpec((None, None, 5))] + 2 * [
        tf.TensorSpec((None, None), tf.bool)
    ]
    graph = tf.function(value_and_gradients, input_signature=signature)
    for rows, steps in ((BATCH, STEPS), (2, 3)):
        arguments = (INPUTS[:rows, :steps], MEMORY[:rows], INPUTS_MASK[:rows, :steps], MEMORY_MASK[:rows])
        expected, gradients = value_and_gradients(*arguments)
        value, of_graph = graph(*(tf.constant(x) for x in arguments))
        assert float(value) == pytest.approx(float(expected), rel=1e-5)
        for weight, one, two in zip(decoder.trainable_weights, gradients, of_graph, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)
            assert np.any(one != 0), weight.path


def test_masked_steps_hold_the_state_and_add_no_divergence():
    decoder = built()
    _, state = decoder.run({"inputs": INPUTS}, MEMORY, None, INPUTS_MASK, MEMORY_MASK, training=False)
    total = BATCH * float(decoder.losses[0])
    for row, mask in enumerate(INPUTS_MASK):
        one = slice(row, row + 1)
        _, short = decoder.run({"inputs": INPUTS[one, mask]}, MEMORY[one], memory_mask=MEMORY_MASK[one], training=False)
        total -= float(decoder.losses[0])
        for held, expected in zip(state["cells"], short["cells"], strict=True):
            np.testing.assert_allclose(held[one], expected, atol=1e-5)
    assert total == pytest.approx(0.0, abs=1e-3)


def test_step_equals_the_loop():
    """At the mean and with slices of the noise of `posterior_draws`: what decodes is what is trained."""
    decoder = built()
    with keras_vattn.posterior_draws(decoder, seed=3):
        drawn = decoder(INPUTS, MEMORY)
        memory = decoder.prepare_memory(MEMORY)
        noise = decoder.draw_noise(BATCH, STEPS, memory)
    for expected, noise_of in ((decoder(INPUTS, MEMORY), None), (drawn, noise)):
        state = decoder.start(BATCH, memory)
        for t in range(STEPS):
            now = None if noise_of is None else keras.tree.map_structure(lambda x, t=t: x[:, t], noise_of)
            outputs, state = decoder.step(INPUTS[:, t], state, memory, now)
            for name in ("hidden", "context", "latent"):
                np.testing.assert_allclose(outputs[name], expected[name][:, t], atol=1e-5)
    assert np.any(drawn["latent"] != decoder(INPUTS, MEMORY)["latent"])


def test_it_is_trained_and_saved_like_a_layer_of_keras(tmp_path):
    inputs, memory = keras.Input((None, 4)), keras.Input((None, 5))
    decoded = LatentDecoder(UNITS, WIDTH, seed=1)(inputs, memory)
    model = keras.Model([inputs, memory], keras.layers.Dense(1)(decoded["hidden"]))
    model.compile("sgd", "mse")
    history = model.fit([INPUTS, MEMORY], np.zeros((BATCH, STEPS, 1)), verbose=0).history
    assert set(history) == {"loss", "z_kl"}
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(copy([INPUTS, MEMORY]), model([INPUTS, MEMORY]))


class Prior(LatentDecoder):
    """Without a posterior: what generates."""

    def parts(self):
        attention, latent, cells = super().parts()
        return [attention, recurrent.LatentPart(self.latent, lambda given, state: None, latent.prior), cells]


def test_without_a_posterior_it_draws_from_the_prior():
    decoder = Prior(UNITS, WIDTH, seed=1)
    decoder.gives = ("hidden", "latent", "latent_prior")
    decoded = decoder(INPUTS, MEMORY)
    assert decoder.losses == []
    np.testing.assert_array_equal(decoded["latent"], decoded["latent_prior"]["mean"])
    drawn = decoder(INPUTS, MEMORY, training=True)
    assert np.all(drawn["latent"] != drawn["latent_prior"]["mean"])


class Standard(LatentDecoder):
    """Without a posterior and without a network of the prior."""

    def parts(self):
        attention, _, cells = super().parts()
        return [attention, recurrent.LatentPart(self.latent, lambda given, state: None), cells]


def test_without_a_posterior_and_a_prior_it_draws_from_the_standard_normal(monkeypatch):
    decoder = Standard(UNITS, WIDTH, seed=1)
    decoder.gives = ("hidden", "latent")
    np.testing.assert_array_equal(decoder(INPUTS, MEMORY)["latent"], np.zeros((BATCH, STEPS, WIDTH)))
    noise = GENERATOR.normal(size=(BATCH, STEPS, WIDTH)).astype("float32")
    monkeypatch.setattr(keras_vattn.random, "normal", lambda shape, seed: tf.constant(noise))
    np.testing.assert_array_equal(decoder(INPUTS, MEMORY, training=True)["latent"], noise)
    assert decoder.losses == []
    # Where nothing else is given, the batch is that of the state.
    part = recurrent.LatentPart(decoder.latent, lambda given, state: None)
    state = {"cells": [tf.zeros((BATCH, UNITS))]}
    gives, _ = part.step({}, state, {}, {"latent": {"latent": noise[:, 0]}}, training=True)
    np.testing.assert_array_equal(gives["latent"], noise[:, 0])
