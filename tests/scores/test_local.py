"""Tests local attention (Luong et al. 2015, section 3.2): windows against NumPy and against an equivalent mask."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vattn import (
    Attention,
    AttentionDecoder,
    CategoricalAttention,
    Local,
    RewardToGo,
)

B, T, S = 3, 6, 7
generator = np.random.default_rng(0)
QUERY = generator.normal(size=(B, T, 4)).astype("float32")
VALUE = generator.normal(size=(B, S, 6)).astype("float32")
MASK = np.arange(S) < np.array([7, 4, 1])[:, None]
# In the first example every window has a valid key. In the others the windows of the last queries are empty.
WINDOW = np.abs(np.arange(S) - np.arange(T)[:, None]) <= 2


def centre_of(score, query, lengths):
    """Return the centre p_t of each window, counted from 0."""
    if score.position == "monotonic":
        return np.arange(query.shape[1], dtype=float)[None, :]
    logits = np.tanh(query @ score.position_kernel.numpy()) @ score.position_scale.numpy()
    return lengths[:, None] / (1.0 + np.exp(-logits[..., 0]))


def luong(score, query, value, mask):
    """Return the weights of Luong et al. 2015, section 3.2: softmax in the window, times the Gaussian of eq. 10."""
    logits = np.einsum("btd,kd,bsk->bts", query, score.inner.kernel.numpy(), value)
    distance = np.arange(value.shape[1]) - centre_of(score, query, mask.sum(axis=1))[..., None]
    inside = (np.abs(distance) <= score.window) & mask[:, None]
    weights = np.where(inside, np.exp(logits), 0.0)
    if score.position == "predictive":
        weights *= np.exp(-(distance**2) / (2 * (score.window / 2) ** 2))
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(total > 0.0, weights / np.where(total > 0.0, total, 1.0), 0.0)


def attention(position, window=2, **options):
    keras.utils.set_random_seed(1)
    layer = Attention(Local("bilinear", window, position), **options)
    layer.build(QUERY.shape, VALUE.shape)
    if position == "predictive":
        # Spread the centres p_t over the source.
        layer.score.position_scale.assign(3.0 * layer.score.position_scale)
    return layer


@pytest.mark.parametrize("position", ["monotonic", "predictive"])
def test_the_weights_are_proportional_to_the_paper(position):
    layer = attention(position)
    context, weights = layer(QUERY, VALUE, value_mask=MASK, return_attention_scores=True)
    expected = luong(layer.score, QUERY, VALUE, MASK)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_array_equal(weights == 0.0, expected == 0.0)
    np.testing.assert_allclose(context, np.einsum("bts,bsd->btd", expected, VALUE), atol=5e-6)
    assert (expected > 0.0).any(axis=-1).all() == (position == "predictive")


@pytest.mark.parametrize("position", ["monotonic", "predictive"])
@pytest.mark.parametrize("length", [1, 0])
def test_a_source_of_one_word_or_none(position, length):
    layer = attention(position)
    context, weights = layer(QUERY, VALUE[:, :length], return_attention_scores=True)
    sees = np.arange(T) <= 2 if position == "monotonic" else np.full(T, True)
    np.testing.assert_array_equal(weights, np.broadcast_to(sees[:, None], (B, T, length)))
    expected = VALUE[:, :1] * sees[:, None] if length else np.zeros((B, T, 6))
    np.testing.assert_allclose(context, expected, rtol=1e-6)


def test_the_length_excludes_padding():
    """Padding does not change the result, with a mask for all queries or a mask per query."""
    layer = attention("predictive")
    padded = layer(QUERY, VALUE, value_mask=MASK)
    by_query = layer(QUERY, VALUE, attention_mask=np.repeat(MASK[:, None], T, axis=1))
    for row, length in enumerate(MASK.sum(axis=1)):
        alone = layer(QUERY[row : row + 1], VALUE[row : row + 1, :length])
        np.testing.assert_allclose(padded[row], alone[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(by_query[row], alone[0], rtol=1e-5, atol=1e-6)
    before = np.flip(MASK, axis=1)
    prepared = layer.score.project_memory(tf.constant(VALUE), layer.prepare_memory(VALUE, mask=before[:, None])["keys"])
    np.testing.assert_array_equal(prepared["length"][:, 0, 0], [S, S, S])


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_positions_far_from_the_start_are_exact(policy):
    layer = Attention(Local(window=1, dtype=policy), dtype=policy)
    _, weights = layer(tf.zeros((1, 600, 2)), tf.zeros((1, 600, 2)), return_attention_scores=True)
    steps = np.arange(600)
    np.testing.assert_array_equal(weights[0] > 0.0, np.abs(steps - steps[:, None]) <= 1)


KLS = [
    {"alignment": "weibull", "prior": "contextual"},
    {"alignment": "dirichlet", "prior": "contextual"},
    {"alignment": "gumbel_softmax", "prior": "contextual"},
    {"alignment": "weibull", "prior": "contextual", "kl_reduction": "mean"},
    {"alignment": "dirichlet"},
    {"alignment": "weibull", "context": "gaussian"},
    {"context": "gaussian"},
]


@pytest.mark.parametrize("options", KLS, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize("training", [True, False])
def test_a_window_is_a_mask(options, training):
    """A window gives the same draws, KL and gradients as a mask, even in rows without a key."""
    layers = [Attention(score, seed=1, **options) for score in (Local("bilinear", window=2), "bilinear")]
    masks = [MASK[:, None], MASK[:, None] & WINDOW]
    posterior = {"posterior_logits": generator.normal(size=(B, T, S))} if options == {"alignment": "dirichlet"} else {}
    results = []
    for layer, mask in zip(layers, masks, strict=True):
        layer.build(QUERY.shape, VALUE.shape)
        layer.set_weights(layers[0].get_weights())
        with tf.GradientTape() as tape:
            result = layer(
                QUERY, VALUE, attention_mask=mask, training=training, return_attention_scores=True, **posterior
            )
            loss = sum(layer.losses) + tf.reduce_sum(result[0] ** 2)
        results.append([*result, loss, *tape.gradient(loss, [x.value for x in layer.trainable_weights])])
    assert len(layers[0].losses) == 1
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_a_window_is_a_mask_in_latent_alignment():
    posterior = generator.normal(size=(B, T, S)).astype("float32")
    layers = [CategoricalAttention(score, "elbo") for score in (Local("bilinear", window=2), "bilinear")]
    options = {"posterior_logits": posterior, "return_attention_scores": True}
    expected = layers[1](QUERY, VALUE, attention_mask=MASK[:, None] & WINDOW, **options)
    layers[0].build(QUERY.shape, VALUE.shape)
    layers[0].set_weights(layers[1].get_weights())
    latent = layers[0](QUERY, VALUE, value_mask=MASK, **options)
    for name in ("log_prior", "log_posterior", "weights", "posterior_weights"):
        np.testing.assert_allclose(latent[name], expected[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layers[0].losses[0], layers[1].losses[0], rtol=1e-6)


def decoder_of(position, alignment="softmax", query="current", feeding="sampled", **options):
    keras.utils.set_random_seed(1)
    attention = Attention(Local("bilinear", 2, position), alignment, **options)
    return AttentionDecoder(5, attention, query=query, feeding=feeding)


@pytest.mark.parametrize("position", ["monotonic", "predictive"])
@pytest.mark.parametrize(("query", "feeding"), [("current", "sampled"), ("previous", "off"), ("current", "off")])
def test_each_decoder_step_has_its_own_window(position, query, feeding):
    decoder = decoder_of(position, query=query, feeding=feeding)
    options = {"memory_mask": MASK, "return_attention_scores": True, "return_logits": True}
    expected = decoder(QUERY, VALUE, **options)
    weights = luong(decoder.attention.score, expected["query"].numpy(), VALUE, MASK)
    np.testing.assert_allclose(expected["weights"], weights, atol=1e-5)
    memory = decoder.prepare_memory(VALUE, MASK)
    state = decoder.start(B, memory)
    for t in range(T):
        outputs, state = decoder.step(QUERY[:, t], state, memory)
        for name in ("hidden", "context", "weights", "logits"):
            np.testing.assert_allclose(outputs[name], expected[name][:, t], atol=1e-5)


def test_masked_steps_are_not_counted():
    decoder = decoder_of("monotonic")
    valid_steps = np.array([True, False, True, True, False, True])
    masked = decoder(QUERY, VALUE, inputs_mask=np.tile(valid_steps, (B, 1)), return_attention_scores=True)
    short = decoder(QUERY[:, valid_steps], VALUE, return_attention_scores=True)
    np.testing.assert_allclose(masked["weights"].numpy()[:, valid_steps], short["weights"], atol=1e-6)


def test_the_gradient_of_draws_is_finite_for_an_empty_window():
    decoder, reward = decoder_of("monotonic", alignment="hard", seed=1), RewardToGo(entropy_weight=0.1)
    with tf.GradientTape() as tape:
        options = {"return_attention_scores": True, "return_logits": True, "training": True}
        decoded = decoder(QUERY, VALUE, memory_mask=MASK, **options)
        likelihood = -tf.reduce_sum(decoded["context"] ** 2, axis=-1)
        value = reward(likelihood, decoded["weights"], decoded["logits"], value_mask=MASK, training=True)
        loss = tf.reduce_sum(value)
    gradients = tape.gradient(loss, [decoder.attention.score.inner.kernel.value])
    assert np.isfinite(gradients[0]).all() and np.any(gradients[0])


def test_one_dtype():
    with pytest.raises(ValueError, match=r"Received: inner\.compute_dtype=float32, dtype=bfloat16"):
        Local(keras.saving.serialize_keras_object(Local()), dtype="mixed_bfloat16")
