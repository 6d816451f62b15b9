"""Tests captioning models against their equations, their causality, and the gradients against enumeration."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from captioning_cases import EVERY_MODEL, captions_of, run_of

import keras_vattn
from applications.captioning.decode import Captioner
from applications.captioning.model import GaussianWeights, SelfCriticalDecoder
from applications.text.text import PAD

every_model = pytest.mark.parametrize("model", EVERY_MODEL)


def softmax(x):
    exponential = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponential / exponential.sum(axis=-1, keepdims=True)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def recomputed(run, regions, num_regions, target_input, target):
    """Compute log p of each word, (B, T), and p(region | word), (B, T, R), with NumPy."""
    weights = {weight.path: weight.numpy().astype("float64") for weight in run.models.training.weights}
    layer_weights = lambda name: (weights[f"{name}/kernel"], weights[f"{name}/bias"])  # noqa: E731
    kernel, bias = layer_weights("regions_embedded")
    memory = np.maximum(regions @ kernel + bias, 0.0)
    words = np.maximum(weights["words_embedded/embeddings"][target_input], 0.0)
    score = {
        name: weights[f"decoder/attention/score/{name}"] for name in ("query_kernel", "key_kernel", "bias", "scale")
    }
    cell = {
        name: weights[f"decoder/cell_0/{name}"] for name in ("kernel", "context_kernel", "recurrent_kernel", "bias")
    }
    is_region = np.arange(regions.shape[1]) < num_regions[:, None]
    hidden = state = np.zeros((len(regions), memory.shape[-1]))
    log_words, posterior = [], []
    for step in range(target.shape[1]):
        score_hidden = np.tanh((hidden @ score["query_kernel"])[:, None] + memory @ score["key_kernel"] + score["bias"])
        p = softmax(np.where(is_region, (score_hidden @ score["scale"])[..., 0], -np.inf))
        context = np.einsum("br,brd->bd", p, memory)
        gates = words[:, step] @ cell["kernel"] + hidden @ cell["recurrent_kernel"] + cell["bias"]
        i, f, o, input_a, input_b = np.split(gates, 5, axis=-1)
        context_a, context_b = np.split(context @ cell["context_kernel"], 2, axis=-1)
        state = sigmoid(f) * state + sigmoid(i) * np.maximum(input_a + context_a, input_b + context_b)
        hidden = sigmoid(o) * np.tanh(state)
        rows = np.arange(len(target))
        if run.options.model == "categorical":
            region_hidden = memory @ weights["region_projection/kernel"]
            kernel, bias = layer_weights("hidden_projection")
            candidates = np.tanh((hidden @ kernel + bias)[:, None] + region_hidden)
            word_probabilities = softmax(candidates @ weights["words/kernel"] + weights["words/bias"])
            joint = p * word_probabilities[rows, :, target[:, step]]
        else:
            joint = p * softmax(hidden @ weights["words/kernel"] + weights["words/bias"])[rows, target[:, step], None]
        log_words.append(np.log(joint.sum(axis=-1)))
        posterior.append(joint / joint.sum(axis=-1, keepdims=True))
    return np.where(target != PAD, np.stack(log_words, axis=1), 0.0), np.stack(posterior, axis=1)


@every_model
def test_values_match_the_equations(run_of_model, eagerly, model):
    """With mean weights, models equal the network of Rennie et al. 2017. A latent region is summed out."""
    run = run_of_model(model)
    regions, _, target_input, target = captions_of(run)
    num_regions = np.arange(len(regions), dtype=np.int32) % 3 + 2
    expected, posterior = recomputed(run, regions, num_regions, target_input, target)
    figures = Captioner(run).read(regions, num_regions, target_input, target)
    np.testing.assert_allclose(figures["log_likelihood"], expected, rtol=1e-4, atol=1e-4)
    assert ("posterior" in figures) == (model == "categorical")
    if "posterior" in figures:
        is_word = np.arange(target.shape[1]) < np.count_nonzero(target, axis=1)[:, None]
        np.testing.assert_allclose(figures["posterior"].numpy()[is_word], posterior[is_word], atol=1e-4)
        assert np.abs(posterior - figures["weights"])[is_word].max() > 0.1
    inputs = {"regions": regions, "num_regions": num_regions, "target_input": target_input, "target": target}
    bound = np.where(target != PAD, run.models.training(inputs), 0.0)
    np.testing.assert_allclose(bound, expected, rtol=1e-4, atol=1e-4)


@every_model
def test_causality_and_padding_of_regions(run_of_model, eagerly, model):
    run = run_of_model(model)
    regions, num_regions, target_input, target = captions_of(run, count=4)
    num_regions = np.full_like(num_regions, 3)
    captioner = Captioner(run)
    before = captioner.read(regions, num_regions, target_input, target)
    padded, swapped = regions.copy(), target_input.copy()
    padded[:, 3:] = 17.0
    swapped[:, 3] = 4 + (swapped[:, 3] + 1) % 8
    after = captioner.read(padded, num_regions, swapped, target)
    np.testing.assert_array_equal(after["log_likelihood"][:, :3], before["log_likelihood"][:, :3])
    np.testing.assert_array_equal(after["weights"][:, :4], before["weights"][:, :4])
    assert (np.abs(after["log_likelihood"] - before["log_likelihood"])[:, 3] > 1e-6).all()
    assert (after["weights"].numpy()[:, :, 3:] == 0.0).all()
    np.testing.assert_allclose(tf.reduce_sum(after["weights"], axis=-1), 1.0, rtol=1e-5)


def test_self_critical_decoder(run_of_model):
    """In training, `expected` contains the states without sampling and `hidden` the states with sampling."""
    run = run_of_model("hard")
    decoder = run.models.decoder
    assert isinstance(decoder, SelfCriticalDecoder)
    words, memory = keras.random.normal((3, 5, 4), seed=1), keras.random.normal((3, 4, 8), seed=2)
    arguments = {"return_attention_scores": True, "return_logits": True}
    inputs = keras.Input((5, 4)), keras.Input((4, 8))
    decoded = keras.Model(inputs, decoder(*inputs, **arguments))((words, memory), training=True)
    at_mean = decoder(words, memory, **arguments)
    np.testing.assert_allclose(decoded["expected"], at_mean["hidden"], rtol=1e-5, atol=1e-6)
    assert (np.abs(decoded["hidden"] - at_mean["hidden"]) > 1e-3).any()
    assert set(np.unique(decoded["weights"])) == {0.0, 1.0}
    np.testing.assert_array_equal(at_mean["expected"], at_mean["hidden"])


@pytest.mark.parametrize("baseline", ["soft", "none"])
def test_the_score_function_gradient(tmp_path, eagerly, monkeypatch, baseline):
    """For two words and two regions, the gradient estimate summed over all region paths equals the gradient of the
    expected log-likelihood, for any baseline."""
    run = run_of(tmp_path, model="hard", dropout=0.0, baseline=baseline)
    models, paths = run.models, np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    drawn = {"gumbel": tf.constant(1e6 * np.eye(4, dtype="float32")[paths])}
    monkeypatch.setattr(models.decoder.attention.alignment, "noise", lambda shape, seed: drawn)
    regions, _, target_input, target = (np.repeat(x, len(paths), axis=0) for x in captions_of(run, count=1))
    target_input, target, is_region = target_input[:, :2], target[:, :2], np.arange(4) < np.full((len(paths), 1), 2)
    num_regions = np.full(len(paths), 2, np.int32)
    inputs = {"regions": regions, "num_regions": num_regions, "target_input": target_input, "target": target}
    variables = [weight.value for weight in models.training.trainable_weights]
    with tf.GradientTape(persistent=True) as tape:
        memory, words = models.encoder(regions), models.embedding(target_input)
        arguments = {"return_attention_scores": True, "return_logits": True}
        decoded = models.decoder(words, memory, memory_mask=is_region, **arguments, training=True)
        log_p = tf.nn.log_softmax(tf.where(is_region[:, None], decoded["logits"], -1e9), axis=-1)
        p = tf.exp(tf.reduce_sum(decoded["weights"] * log_p, axis=(1, 2)))
        log_likelihood = models.emission.words(decoded["hidden"][:, :, None], target)[..., 0]
        expectation = tf.reduce_sum(p * tf.reduce_sum(log_likelihood, axis=1))
        bound = tf.reduce_sum(tf.stop_gradient(p) * tf.reduce_sum(models.training(inputs, training=True), axis=1))
    assert float(tf.reduce_sum(p)) == pytest.approx(1.0, rel=1e-5)
    assert float(bound) == pytest.approx(float(expectation), rel=1e-5)
    for weight, gradient, expected in zip(
        models.training.trainable_weights,
        tape.gradient(bound, variables, unconnected_gradients="zero"),
        tape.gradient(expectation, variables, unconnected_gradients="zero"),
        strict=True,
    ):
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), tf.convert_to_tensor(expected), rtol=1e-3, atol=2e-5, err_msg=weight.path
        )
        if "score/scale" in weight.path:
            assert np.abs(expected).max() > 1e-3


def test_gaussian_weights():
    """Sampled weights are normal around the softmax, may be negative, do not sum to 1, and are 0 at masked regions."""
    logits = np.array([1.0, 0.0, -1.0, 3.0], "float32")
    query, keys = np.ones((4000, 1, 1), "float32"), np.tile(logits[:, None], (4000, 1, 1))
    mask = np.tile([True, True, True, False], (4000, 1))
    layer = keras_vattn.Attention("dot_product", GaussianWeights(), seed=1)
    _, drawn = layer(query, keys, value_mask=mask, return_attention_scores=True, training=True)
    weights, p = np.array(drawn)[:, 0], softmax(logits[:3])
    assert (weights[:, 3] == 0).all() and (weights < 0).any() and np.std(weights.sum(axis=1)) > 0.1
    np.testing.assert_allclose(weights[:, :3].mean(axis=0), p, atol=4 * 0.1 / np.sqrt(4000))
    np.testing.assert_allclose(weights[:, :3].std(axis=0), 0.1, rtol=0.05)
