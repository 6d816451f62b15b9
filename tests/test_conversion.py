"""Tests that `to_bayesian` and `to_deterministic` keep the predictions, for attention anywhere in a model."""

import keras
import keras_hub
import numpy as np
import pytest
from conversion_cases import (
    MODELS,
    TOKENS,
    Block,
    LinearAttention,
    Subclassed,
    X,
    backbone,
    bayesian_of,
    functional_model,
    nested_model,
    outputs_of,
)
from keras import layers, ops
from tiers import slow_after

import keras_vattn
from keras_vattn import to_deterministic


@pytest.mark.parametrize("name", slow_after(MODELS, 2))
def test_predictions_are_unchanged_by_both_conversions(name):
    make, inputs, count = MODELS[name]
    model = make()
    expected, weights = outputs_of(model, inputs), model.get_weights()
    bayesian = bayesian_of(model, keras_vattn.Weibull(3.0), seed=1)
    assert isinstance(bayesian, type(model)) and bayesian is not model
    assert len(keras_vattn.stochastic_layers(bayesian)) == count
    np.testing.assert_allclose(outputs_of(bayesian, inputs), expected, rtol=1e-5, atol=1e-5)
    drawn = outputs_of(bayesian, inputs, training=True)
    assert np.abs(drawn - expected).max() > 1e-3
    # The original does not change.
    assert not keras_vattn.stochastic_layers(model)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(outputs_of(model, inputs), expected)
    bayesian.trainable_weights[0].assign_add(0.1 * ops.ones_like(bayesian.trainable_weights[0]))
    restored = to_deterministic(bayesian)
    assert type(restored) is type(model) and not keras_vattn.stochastic_layers(restored)
    assert [w.shape for w in restored.weights] == [w.shape for w in model.weights]
    np.testing.assert_allclose(outputs_of(restored, inputs), outputs_of(bayesian, inputs), rtol=1e-5, atol=1e-5)
    assert restored.get_config() == model.get_config()


def test_without_noise_training_is_the_original():
    """In training without noise, all three Keras attention layers, with masks, return the outputs of the original."""
    model = functional_model()
    bayesian = bayesian_of(model, keras_vattn.Weibull(1e7))
    np.testing.assert_allclose(bayesian(X, training=True), model(X), rtol=1e-3, atol=1e-3)


def test_a_model_that_is_called_on_its_own_input():
    """The inner and the outer model share an input, but the converted models do not."""
    inner = functional_model()
    model = keras.Model(inner.input, layers.Dense(3)(inner(inner.input)))
    bayesian = bayesian_of(model, prior="fixed")
    np.testing.assert_allclose(bayesian(X), model(X), rtol=1e-5, atol=1e-5)
    assert len(keras_vattn.stochastic_layers(bayesian)) == 3
    np.testing.assert_allclose(to_deterministic(bayesian)(X), model(X), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_fit():
    """Each attention layer logs a KL under its own name. The layer that is called twice logs the sum of two KLs."""
    bayesian = bayesian_of(functional_model(), kl_reduction="query_mean", kl_weight=0.1)
    before = [w.numpy() for w in bayesian.trainable_weights]
    bayesian.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    history = bayesian.fit(X, np.ones(bayesian(X).shape), verbose=0).history
    assert len([key for key in history if key.endswith("_kl")]) == 3
    assert np.isfinite(history["loss"][0])
    changed = [np.any(w.numpy() != old) for w, old in zip(bayesian.trainable_weights, before, strict=True)]
    assert np.mean(changed) > 0.7
    prior = next(w for w in bayesian.trainable_weights if "prior/output_kernel" in w.path)
    assert changed[[w is prior for w in bayesian.trainable_weights].index(True)]


def test_options_reach_every_attention():
    annealing = keras_vattn.LinearAnnealing(10)
    bayesian = bayesian_of(
        functional_model(),
        keras_vattn.LogNormal(0.3),
        keras_vattn.LogNormalPrior(sigma=2.0, hidden_units=3),
        kl_weight=0.5,
        kl_annealing=annealing,
        kl_reduction="mean",
        seed=5,
        per_head_prior=False,
    )
    drawing_layers = keras_vattn.stochastic_layers(bayesian)
    assert [layer.name for layer in drawing_layers] == ["heads", "scores", "additive"]
    assert [layer.seed for layer in drawing_layers] == [5, 6, 7]
    for layer in drawing_layers:
        assert isinstance(layer.alignment, keras_vattn.LogNormal) and layer.alignment.sigma == 0.3
        assert layer.prior.hidden_units == 3 and layer.prior.sigma == 2.0
        assert (layer.kl_weight, layer.kl_reduction) == (0.5, "mean")
        assert layer.kl_annealing.get_config() == annealing.get_config()
    assert len({id(layer.prior) for layer in drawing_layers}) == 3


@pytest.mark.parametrize("name", ["albert", "gpt2"])
def test_padding_adds_no_divergence(name):
    bayesian = bayesian_of(backbone(name))
    short = {key: x[:1, :4] for key, x in TOKENS.items()}
    short["padding_mask"] = np.ones_like(short["padding_mask"])
    padded = {key: x[:1].copy() for key, x in TOKENS.items()}
    padded["padding_mask"][:, 4:] = 0
    outputs_of(bayesian, short)
    expected = [float(loss) for loss in bayesian.losses]
    outputs_of(bayesian, padded)
    np.testing.assert_allclose([float(loss) for loss in bayesian.losses], expected, rtol=1e-5)


def test_two_attentions_to_one_masked_memory():
    """Both layers ignore the padding of the memory, although the first `call` removes the memory's Keras mask."""
    ids, query = keras.Input((None,), dtype="int32"), keras.Input((3, 8))
    memory = layers.Embedding(10, 8, mask_zero=True, name="words")(ids)
    attended = layers.MultiHeadAttention(2, 4)(layers.MultiHeadAttention(2, 4)(query, memory), memory)
    bayesian = bayesian_of(keras.Model([ids, query], attended))
    inputs = np.array([[3, 4, 0, 0], [5, 6, 7, 0], [1, 0, 0, 0]]), X[:, :3]
    before = bayesian(inputs)
    table = bayesian.get_layer("words").embeddings
    table.assign(table + 3.0 * ops.one_hot([0], 10)[0][:, None])
    np.testing.assert_array_equal(bayesian(inputs), before)


def test_keras_attention_has_the_kl_of_our_attention():
    """The KL equals that of our layer: `keras.layers.Attention` with scale 1 is unscaled dot-product attention."""
    query, value = keras.Input((4, 8)), keras.Input((5, 8))
    model = keras.Model([query, value], layers.Attention(name="scores")([query, value]))
    ours = keras_vattn.Attention("dot_product", "weibull", prior=keras_vattn.GammaPrior(0.3))
    bayesian = bayesian_of(model, prior=keras_vattn.GammaPrior(0.3))
    inputs = [X[:, :4], X]
    bayesian(inputs)
    ours.score.scaled = False
    ours(*inputs)
    layer = bayesian.get_layer("scores")
    np.testing.assert_allclose(layer.losses[0], ours.losses[0], rtol=1e-5)
    q = layer.posterior_distribution(inputs)
    assert (q.batch_shape, q.event_shape) == ((3, 4), (5,))
    assert layer.alignment_statistics(inputs)["posterior_entropy"].shape == (3, 4)


def test_a_masked_query_and_key_of_scores():
    layer = next(x for x in keras_vattn.stochastic_layers(bayesian_of(functional_model())) if x.name == "scores")
    query_mask = np.array([[True, True, False, False, False]] * 3)
    value_mask = np.array([[True, True, True, False, False]] * 3)
    output, weights = layer([X, X], mask=[query_mask, value_mask], return_attention_scores=True, training=True)
    assert (weights.numpy()[:, :, 3:] == 0.0).all() and (output.numpy()[:, 2:] == 0.0).all()
    masked = float(layer.losses[0])
    layer([X[:, :2], X[:, :3]], training=True)
    np.testing.assert_allclose(masked, layer.losses[0], rtol=1e-5)


@pytest.mark.slow
def test_a_cache_of_keys():
    """Generation with cached keys returns the tokens of the original model."""
    model = keras_hub.models.GPT2CausalLM(backbone=backbone("gpt2"), preprocessor=None)
    bayesian = bayesian_of(model)
    prompt = {"token_ids": np.array([[1, 2, 3, 0, 0, 0]]), "padding_mask": np.array([[1, 1, 1, 0, 0, 0]])}
    generated = []
    for each in (model, bayesian):
        each.compile(sampler="greedy")
        generated.append(each.generate(prompt, stop_token_ids=None)["token_ids"])
    np.testing.assert_array_equal(*generated)


def test_stochastic_layers_are_unchanged():
    inputs = keras.Input((5, 8))
    x = keras_vattn.MultiHeadAttention(2, 4, alignment="lognormal", name="ours")(inputs, inputs)
    model = keras.Model(inputs, layers.MultiHeadAttention(2, 4, name="of_keras")(x, x))
    bayesian = bayesian_of(model)
    assert isinstance(bayesian.get_layer("ours").alignment, keras_vattn.LogNormal)
    assert isinstance(bayesian.get_layer("of_keras").alignment, keras_vattn.Weibull)
    restored = to_deterministic(bayesian)
    assert type(restored.get_layer("of_keras")) is layers.MultiHeadAttention
    assert isinstance(restored.get_layer("ours").alignment, keras_vattn.LogNormal)


@keras.saving.register_keras_serializable(package="tests")
class ScaledAttention(layers.MultiHeadAttention):
    """A subclass that computes attention differently, so it cannot be converted."""

    def _compute_attention(self, *arguments, **options):
        output, weights = super()._compute_attention(*arguments, **options)
        return 2.0 * output, weights


@keras.saving.register_keras_serializable(package="tests")
class RelativeAttention(layers.MultiHeadAttention):
    """A subclass that uses only the projections of Keras, so it cannot be converted."""

    def call(self, query, value, key=None, **options):
        return self.output_dense(self.value_dense(value))


def test_unknown_attention():
    inputs = keras.Input((5, 8))
    x = layers.MultiHeadAttention(2, 4, name="known")(inputs, inputs)
    x = RelativeAttention(2, 4, name="relative")(ScaledAttention(2, 4, name="own")(x, x), x)
    x = LinearAttention(name="linear")(x)
    model = keras.Model(inputs, x)
    with pytest.raises(ValueError, match=r"ScaledAttention\(path='own'\), Relat.*='relative'\), Lin.*='linear'\)"):
        bayesian_of(model)
    # With `skip_unknown`, a fraction in `layers` counts only the attention layers that can be converted.
    for bayesian in (bayesian_of(model, skip_unknown=True), keras_vattn.to_bayesian(model, skip_unknown=True)):
        assert [layer.name for layer in keras_vattn.stochastic_layers(bayesian)] == ["known"]
        np.testing.assert_allclose(bayesian(X), model(X), rtol=1e-5, atol=1e-5)
    reference = keras.Model(inputs, LinearAttention(name="alone")(inputs))
    with pytest.raises(
        ValueError, match=r"MultiHeadMixin.*skip_unknown=True, attention layers LinearAttention\(path='alone'\)"
    ):
        bayesian_of(reference, skip_unknown=True)


class NoConfig(Subclassed):
    def __init__(self, block):
        keras.Model.__init__(self)
        self.block, self.dense = block, layers.Dense(2)

    def get_config(self):
        return keras.Model.get_config(self)


class WithoutGetConfig(keras.Model):
    def __init__(self, num_heads):
        super().__init__()
        self.heads = layers.MultiHeadAttention(num_heads, 4)

    def call(self, x):
        return self.heads(x, x)


def without_get_config():
    model = WithoutGetConfig(2)
    model(X)
    return model


def without_config():
    model = NoConfig(Block())
    model(X)
    return model


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Subclassed, {}, "needs a built keras.Model.*built=False"),
        (lambda: layers.MultiHeadAttention(2, 4), {}, "needs a built keras.Model.*MultiHeadAttention"),
        (
            lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)]),
            {},
            "needs a model with attention.*, no layer",
        ),
        (functional_model, {"alignment": "softmax"}, "stochastic alignment.*Softmax"),
        (functional_model, {"prior": keras_vattn.GammaPrior(num_heads=2)}, "num_heads"),
        (nested_model, {"prior": "fixed", "per_head_prior": True}, "per_head_prior"),
        (without_config, {}, "cannot be rebuilt from its config"),
        (without_get_config, {}, "no `get_config` that returns them.*Received: WithoutGetConfig"),
    ],
)
def test_errors(make, options, message):
    with pytest.raises(ValueError, match=message):
        bayesian_of(make(), **options)


def test_nothing_to_undo():
    with pytest.raises(ValueError, match=r"undoes `to_bayesian`.*Received: model="):
        to_deterministic(functional_model())


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_padding_adds_no_divergence_under_casts(policy):
    """A position that no query sees counts as padding, even if Keras casts query and value to different objects."""
    inputs, mask = keras.Input((6, 8)), keras.Input((6, 6), dtype="bool")
    attended = layers.MultiHeadAttention(2, 4, dtype=policy)(inputs, inputs, attention_mask=mask)
    bayesian = bayesian_of(keras.Model([inputs, mask], attended), keras_vattn.Weibull(3.0))
    x, visible = np.tile(X[:1, :1], (1, 6, 1)), np.arange(6) < 2
    full_divergence = float(sum(kl_losses(bayesian, [x, np.ones((1, 6, 6), bool)])))
    masked_divergence = float(sum(kl_losses(bayesian, [x, (visible & visible[:, None])[None]])))
    # All visible positions are equal, so the reference needs only two queries and two keys.
    two = keras.Input((2, 8))
    reference = bayesian_of(
        keras.Model(two, layers.MultiHeadAttention(2, 4, dtype=policy)(two, two)), keras_vattn.Weibull(3.0)
    )
    reference.set_weights(bayesian.get_weights())
    np.testing.assert_allclose(masked_divergence, float(sum(kl_losses(reference, x[:, :2]))), rtol=2e-2)
    assert masked_divergence < 0.5 * full_divergence


def kl_losses(model, inputs):
    model(inputs)
    return model.losses


@pytest.mark.parametrize("make_model", slow_after([functional_model, nested_model]))
def test_kl_weights_are_saved(make_model, tmp_path):
    """The current weight of each layer is saved, even if some attention layers do not draw."""
    bayesian = bayesian_of(make_model(), layers=2)
    for number, layer in enumerate(keras_vattn.stochastic_layers(bayesian)):
        layer.kl_weight = 0.1 * (number + 1)
    for _ in range(2):
        bayesian.save(tmp_path / "model.keras")
        bayesian = keras.saving.load_model(tmp_path / "model.keras")
    assert [layer.kl_weight for layer in keras_vattn.stochastic_layers(bayesian)] == [0.1, 0.2]
