import keras
import numpy as np
import pytest
import tensorflow as tf
from twins import twin_divergence

from keras_vattn import Attention, GaussianAttention, GaussianContext, LinearAnnealing, summary

GENERATOR = np.random.default_rng(1)
QUERY = GENERATOR.normal(size=(4, 3, 5)).astype("float32")
VALUE = GENERATOR.normal(size=(4, 6, 5)).astype("float32")
VALUE_MASK = np.arange(6) < np.array([6, 4, 1, 3])[:, None]
QUERY_MASK = np.arange(3) < np.array([3, 2, 1, 3])[:, None]


def divergences(layer, **masks):
    q, p = layer.posterior_distribution(QUERY, VALUE, **masks), layer.prior_distribution(QUERY, VALUE, **masks)
    return twin_divergence(q, p)


@pytest.mark.parametrize("prior", ["standard", "mean"])
def test_it_is_an_attention_with_a_gaussian_context(prior):
    layer, attention = GaussianAttention("bilinear", prior), Attention("bilinear", context=GaussianContext(prior))
    layer(QUERY, VALUE)
    attention(QUERY, VALUE)
    attention.set_weights(layer.get_weights())
    np.testing.assert_array_equal(layer(QUERY, VALUE), attention(QUERY, VALUE))
    assert float(layer.losses[0]) == float(attention.losses[0])


def test_causal_mask_with_the_mean_prior():
    """The context and the prior of query t use only positions 0 to t."""
    layer = GaussianAttention(context_prior="mean")
    context = layer(QUERY, VALUE, use_causal_mask=True)
    np.testing.assert_allclose(context[:, 0], VALUE[:, 0], rtol=1e-5, atol=1e-6)
    prior_mean = layer.prior_distribution(QUERY, VALUE, use_causal_mask=True).mean()
    for t in range(3):
        np.testing.assert_allclose(prior_mean[:, t], VALUE[:, : t + 1].mean(1), rtol=1e-5, atol=1e-6)
    expected = divergences(layer, use_causal_mask=True).sum() / 4
    assert float(layer.losses[0]) == pytest.approx(expected, rel=1e-5)
    changed = np.concatenate([VALUE[:, :2], VALUE[:, 2:] + 9.0], axis=1)
    np.testing.assert_array_equal(layer(QUERY, changed, use_causal_mask=True)[:, :2], context[:, :2])


@pytest.mark.parametrize("kl_reduction", ["sum", "query_mean", "mean"])
def test_reductions(kl_reduction):
    layer = GaussianAttention(kl_reduction=kl_reduction, kl_weight=0.5)
    layer(QUERY, VALUE, query_mask=QUERY_MASK, value_mask=VALUE_MASK)
    total = divergences(layer, value_mask=VALUE_MASK)[QUERY_MASK].sum()
    denominator = {"sum": 4, "query_mean": QUERY_MASK.sum(), "mean": QUERY_MASK.sum() * 5}[kl_reduction]
    assert float(layer.losses[0]) == pytest.approx(0.5 * total / denominator, rel=1e-5)


def test_the_weight_is_annealed_with_the_calls_of_the_layer():
    layer = GaussianAttention(kl_weight=0.5, kl_annealing=LinearAnnealing(4, final_value=0.8), seed=1)
    full = divergences_after_build(layer)
    for step in range(6):
        layer(QUERY, VALUE, training=True)
        assert int(layer.training_calls) == step + 1
        assert float(layer.losses[0]) == pytest.approx(0.5 * 0.8 * min(step / 4, 1.0) * full, rel=1e-5, abs=1e-7)
        layer(QUERY, VALUE, training=False)
        assert float(layer.losses[0]) == pytest.approx(0.5 * 0.8 * full, rel=1e-5)
        assert int(layer.training_calls) == step + 1


def divergences_after_build(layer):
    layer(QUERY, VALUE)
    return divergences(layer).sum() / 4


def test_a_schedule_of_keras_has_a_final_value():
    schedule = keras.optimizers.schedules.PolynomialDecay(0.2, 10, 0.6)
    layer = GaussianAttention(kl_annealing=schedule)
    full = divergences_after_build(layer)
    assert float(layer.losses[0]) == pytest.approx(0.6 * full, rel=1e-5)
    with pytest.raises(ValueError, match=r"define `final_value` in the class.*Received: schedule=<.*ExponentialDecay"):
        GaussianAttention(kl_annealing=keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5))
    layer(QUERY, VALUE, training=True)
    assert float(layer.losses[0]) == pytest.approx(0.2 * full, rel=1e-5)


def test_annealing_and_the_log_in_fit():
    """With frozen weights, the logged KL is the closed form, and the loss is the epoch mean of the weighted KL."""
    inputs = keras.Input((3, 5)), keras.Input((6, 5))
    layer = GaussianAttention(kl_weight=0.5, kl_annealing=LinearAnnealing(8), name="attention", seed=1)
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(*inputs)))
    model.compile(
        keras.optimizers.SGD(0.0),
        lambda y_true, y_pred: 0.0 * y_pred,
        steps_per_execution=2,
        jit_compile=False,
    )
    full = divergences(layer).sum() / 4
    data = [np.tile(x, (4, 1, 1)) for x in (QUERY, VALUE)]
    history = model.fit(data, np.zeros((16, 3, 1)), batch_size=4, epochs=2, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["attention_kl"], [full, full], rtol=1e-4)
    weights = np.arange(8).reshape(2, 4) / 8
    np.testing.assert_allclose(history["loss"], 0.5 * full * weights.mean(1), rtol=1e-4)
    assert int(layer.training_calls) == 8
    logs = model.evaluate(data, np.zeros((16, 3, 1)), batch_size=4, verbose=0, return_dict=True)
    assert logs["loss"] == pytest.approx(0.5 * full, rel=1e-4)
    assert logs["attention_kl"] == pytest.approx(full, rel=1e-4)
    assert int(layer.training_calls) == 8


def test_the_log_weighs_batches_by_their_size():
    inputs = keras.Input((3, 5)), keras.Input((6, 5))
    layer = GaussianAttention(name="attention")
    model = keras.Model(inputs, layer(*inputs))
    model.compile("sgd", "mse")
    expected = divergences(layer).sum() / 4
    logs = model.evaluate([QUERY, VALUE], np.zeros((4, 3, 5)), batch_size=3, verbose=0, return_dict=True)
    assert logs["attention_kl"] == pytest.approx(expected, rel=1e-5)


def test_masked_values_may_be_nan():
    layer = GaussianAttention("bilinear", "mean", seed=1)
    context = layer(QUERY, VALUE, value_mask=VALUE_MASK)
    loss = float(layer.losses[0])
    query, value = tf.constant(QUERY), tf.constant(np.where(VALUE_MASK[..., None], VALUE, np.float32("nan")))
    with tf.GradientTape() as tape:
        tape.watch([query, value])
        spoiled = layer(query, value, value_mask=VALUE_MASK)
        total = tf.reduce_sum(spoiled) + layer.losses[0]
    np.testing.assert_array_equal(spoiled, context)
    assert float(layer.losses[0]) == loss
    for gradient in tape.gradient(total, [query, value, *layer.trainable_weights], unconnected_gradients="zero"):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_the_summary_shows_the_prior_of_the_context():
    lines = []
    layer = GaussianAttention(context_prior="mean", kl_weight=0.5, name="attention")
    layer(QUERY, VALUE)
    summary(layer, lines.append)
    assert lines[1].split() == ["attention", "GaussianAttention", "mean", "0.5", "sum", "None"]
