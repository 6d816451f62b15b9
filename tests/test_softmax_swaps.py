"""The softmax in an attention, drawn: in models of KerasHub and of one's own, by `to_bayesian` and by hand."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from conversion_cases import TOKENS, keras_hub, outputs_of, randomized
from tiers import slow_after

import keras_vattn
from keras_vattn import to_bayesian, to_deterministic

SIZES = {"vocabulary_size": 30, "num_layers": 2, "hidden_dim": 16, "intermediate_dim": 16}
GROUPED = {**SIZES, "num_query_heads": 4, "num_key_value_heads": 2}
HUB = {
    "llama": lambda: keras_hub.models.LlamaBackbone(**GROUPED),
    "gemma": lambda: keras_hub.models.GemmaBackbone(**GROUPED, head_dim=4, attention_logit_soft_cap=20.0),
    "mistral": lambda: keras_hub.models.MistralBackbone(**GROUPED, sliding_window=3),
    "qwen": lambda: keras_hub.models.QwenBackbone(**GROUPED),
    "qwen3": lambda: keras_hub.models.Qwen3Backbone(**GROUPED, head_dim=4),
    "phi3": lambda: keras_hub.models.Phi3Backbone(**GROUPED),
    "falcon": lambda: keras_hub.models.FalconBackbone(**SIZES, num_attention_heads=2),
    "bloom": lambda: keras_hub.models.BloomBackbone(**SIZES, num_heads=2),
    "gpt_neo_x": lambda: keras_hub.models.GPTNeoXBackbone(**SIZES, num_heads=2),
    "deberta_v3": lambda: keras_hub.models.DebertaV3Backbone(**SIZES, num_heads=2, bucket_size=4),
}
hub_models = pytest.mark.parametrize("name", slow_after(HUB, 2))
LOAD = """
import pathlib, sys, keras, keras_hub, keras_vattn, numpy as np
for path in pathlib.Path(sys.argv[1]).glob("*.keras"):
    model = keras.saving.load_model(path)
    np.save(path.with_suffix(".npy"), model(dict(np.load(path.with_suffix(".npz")))))
    print(len(keras_vattn.stochastic_layers(model)), end=" ")
"""


@pytest.fixture(scope="module")
def backbones():
    made = {}

    def make(name):
        if name not in made:
            made[name] = randomized(HUB[name]())
        return made[name]

    return make


def tokens_of(model):
    return {x.name: TOKENS[x.name] for x in model.inputs}


# The kernel that Llama reads words off with is no part of what a backbone returns.
@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables:UserWarning")
@hub_models
def test_a_model_of_keras_hub(name, backbones):
    """The same weights and predictions; each block draws; a step of training with one KL a block; and back."""
    model, prior = backbones(name), None if name == "gemma" else "fixed"
    tokens, expected = tokens_of(model), outputs_of(model, TOKENS)
    bayesian = to_bayesian(model, "lognormal", prior=prior, seed=1)
    assert type(bayesian).__bases__[-1] is type(model) and len(keras_vattn.stochastic_layers(bayesian)) == 2
    np.testing.assert_allclose(outputs_of(bayesian, TOKENS), expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(bayesian.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    draws = keras_vattn.posterior_predictive(bayesian, tokens, num_samples=3, seed=1)
    assert (draws.std(axis=0) > 1e-6).any()
    bayesian.compile("sgd", "mse")
    history = bayesian.fit(tokens, np.zeros_like(expected), verbose=0).history
    divergences = [values[0] for key, values in history.items() if key.endswith("_kl")]
    assert len(divergences) == (2 if prior else 0) and np.isfinite([*divergences, history["loss"][0]]).all()
    restored = to_deterministic(bayesian)
    assert type(restored) is type(model) and not keras_vattn.stochastic_layers(restored)
    np.testing.assert_allclose(outputs_of(restored, TOKENS), outputs_of(bayesian, TOKENS), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_files(backbones, tmp_path):
    """.keras in another process, and a SavedModel of the first, each with a model around what is converted."""
    expected = {}
    for name in HUB:
        inside = to_bayesian(backbones(name), prior="fixed")
        output = inside(inside.input)
        output = output["sequence_output"] if isinstance(output, dict) else output
        model = keras.Model(inside.input, keras.layers.Dense(2)(output))
        model.save(tmp_path / f"{name}.keras")
        np.savez(tmp_path / f"{name}.npz", **tokens_of(model))
        expected[name] = np.asarray(model(tokens_of(model)))
    printed = subprocess.run([sys.executable, "-c", LOAD, tmp_path], capture_output=True, text=True, check=True).stdout
    assert printed.split()[-len(HUB) :] == ["2"] * len(HUB)
    for name, output in expected.items():
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), output, rtol=1e-5, atol=1e-5)


def test_export(backbones, tmp_path):
    inside = to_bayesian(backbones("llama"), prior="fixed")
    model = keras.Model(inside.input, keras.layers.Dense(2)(inside(inside.input)))
    tokens = tokens_of(model)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    served = exported.serve({key: tf.constant(x) for key, x in tokens.items()})
    np.testing.assert_allclose(served, model(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_generation_with_a_cache(backbones):
    model = keras_hub.models.LlamaCausalLM(backbone=backbones("llama"), preprocessor=None)
    prompt, found = {key: TOKENS[key] for key in ("token_ids", "padding_mask")}, []
    for language_model in (model, to_bayesian(model, prior=None)):
        language_model.compile(sampler="greedy")
        found.append(language_model.generate(prompt, stop_token_ids=None)["token_ids"])
    np.testing.assert_array_equal(*found)


def test_a_prior_that_reads_keys_is_refused(backbones):
    with pytest.raises(ValueError, match=r'sees no keys.*take None, "fixed".*self_attention/softmax'):
        to_bayesian(backbones("llama"))


@keras.saving.register_keras_serializable(package="tests")
class AttentionClassifier(keras.layers.Layer):
    """Its softmax is over classes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.heads = keras.layers.MultiHeadAttention(2, 4)
        self.classes, self.softmax = keras.layers.Dense(3), keras.layers.Softmax()

    def build(self, shape):
        self.heads.build(shape, shape)
        self.classes.build(shape)

    def call(self, x):
        return self.softmax(self.classes(self.heads(x, x)))


def test_a_softmax_that_is_no_attention_stays():
    inputs = keras.Input((5, 8))
    bayesian = to_bayesian(keras.Model(inputs, AttentionClassifier()(inputs)))
    assert [type(layer).__name__ for layer in keras_vattn.stochastic_layers(bayesian)] == ["MultiHeadAttention"]


def test_a_prior_for_each_head_is_refused(backbones):
    with pytest.raises(ValueError, match=r"no prior for each head. Received: per_head_prior=True, .*softmax"):
        to_bayesian(backbones("llama"), prior="fixed", per_head_prior=True)


def test_names_in_the_log_are_those_of_the_blocks(backbones):
    names = [layer._logged_name for layer in keras_vattn.stochastic_layers(to_bayesian(backbones("gemma"), prior=None))]
    assert len(set(names)) == 2 and all(name.endswith("_softmax_kl") for name in names)


@keras.saving.register_keras_serializable(package="tests")
class SwappedHeads(keras.layers.MultiHeadAttention):
    """Keras's attention with another softmax inside, which it asks where it returns the weights."""

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self._softmax = keras_vattn.StochasticSoftmax("weibull", prior="fixed", seed=1, name="softmax")


def test_the_softmax_of_keras_s_multi_head_attention(tmp_path):
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    mask = np.arange(5) < np.array([5, 3, 2])[:, None]
    plain, swapped = (kind(2, 4, name="heads") for kind in (keras.layers.MultiHeadAttention, SwappedHeads))
    whole = keras_vattn.MultiHeadAttention(2, 4, alignment="weibull", prior="fixed")
    for layer in (plain, swapped, whole):
        layer.build(x.shape, x.shape)
    for layer in (swapped, whole):
        layer.set_weights(plain.get_weights())
    options = {"value_mask": tf.constant(mask), "return_attention_scores": True}
    for found, expected in zip(swapped(x, x, **options), plain(x, x, **options), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    whole(x, x, **options)
    np.testing.assert_allclose(swapped.losses[0], whole.losses[0], rtol=1e-5)
    assert (np.abs(swapped(x, x, training=True, **options)[1] - plain(x, x, **options)[1]) > 1e-3).any()
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, swapped(inputs, inputs, return_attention_scores=True))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(x)[0], model(x)[0], rtol=1e-5, atol=1e-6)
    assert len(keras_vattn.stochastic_layers(loaded)) == 1
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(exported.serve(tf.constant(x))[0], model(x)[0], rtol=1e-5, atol=1e-6)


@keras.saving.register_keras_serializable(package="tests")
class OneHeadAttention(keras.layers.Layer):
    """One's own, beside the values of a functional model, with a softmax among its layers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.softmax = keras.layers.Softmax()

    def call(self, x):
        return keras.ops.matmul(self.softmax(keras.ops.matmul(x, keras.ops.transpose(x, (0, 2, 1)))), x)


def test_an_attention_of_ones_own(tmp_path):
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, OneHeadAttention(name="own")(inputs))
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    bayesian = to_bayesian(model, prior=None)
    np.testing.assert_allclose(bayesian(x), model(x), rtol=1e-5, atol=1e-6)
    assert (np.abs(bayesian(x, training=True) - model(x)) > 1e-3).any()
    bayesian.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(keras_vattn.stochastic_layers(loaded)) == 1
    restored = to_deterministic(loaded)
    assert type(restored.layers[1]) is OneHeadAttention and not keras_vattn.stochastic_layers(restored)
    assert to_deterministic(bayesian).get_config() == model.get_config()
