"""The stochastic alignments of MultiHeadAttention; what it shares with Keras is in test_multi_head_of_keras.py."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from multi_head_cases import (
    GENERATOR,
    HEAD_MASK,
    HEADS,
    POSTERIOR,
    QUERY,
    QUERY_MASK,
    STOCHASTIC,
    VALUE,
    VALUE_MASK,
    WIDTH,
    KerasAttention,
    assert_close,
    copy_keras_weights,
    model_of,
    pair,
)
from scipy.special import log_softmax
from tensorflow_probability.python import distributions as tfd

import keras_vattn
from keras_vattn import (
    Alignment,
    ContextualPrior,
    FixedPrior,
    GumbelSoftmax,
    LinearAnnealing,
    LogNormal,
    MultiHeadAttention,
    Weibull,
)


def projections(layer, query=QUERY, value=VALUE):
    """Logits (B, H, T, S) and projected keys (B, S, H, D) by hand, in float64."""
    wq, bq = (np.float64(w) for w in layer.query_dense.get_weights())
    wk, bk = (np.float64(w) for w in layer.key_dense.get_weights())
    keys = np.einsum("bsd,dhe->bshe", value, wk) + bk
    queries = np.einsum("btd,dhe->bthe", query, wq) + bq
    return np.einsum("bthe,bshe->bhts", queries, keys) / np.sqrt(WIDTH), keys


def log_psi(layer, keys, mask):
    """log Psi (B, H, T, S) by hand."""
    hidden, bias, output = (np.float64(w) for w in layer.prior.get_weights())
    if layer.per_head_prior:
        hidden_layer = np.maximum(np.einsum("bshe,hek->bshk", keys, hidden) + bias[:, 0], 0.0)
        logits = np.einsum("bshk,hk->bhs", hidden_layer, output[..., 0])
    else:
        logits = np.einsum("bshk,k->bhs", np.maximum(keys @ hidden + bias, 0.0), output[:, 0])
    return log_softmax(np.where(mask, logits[:, :, None], -np.inf), axis=-1)


@pytest.mark.parametrize("reduction", ["sum", "query_mean", "mean"])
@pytest.mark.parametrize("per_head_prior", [False, True])
def test_divergence_is_the_sum_over_heads_queries_and_keys(per_head_prior, reduction):
    k, beta = 3.0, 2.0
    layer = MultiHeadAttention(
        HEADS,
        WIDTH,
        alignment=Weibull(k),
        prior=ContextualPrior(beta=beta, num_heads=HEADS if per_head_prior else None),
        kl_reduction=reduction,
        kl_weight=0.5,
        bias_initializer="random_normal",
    )
    masks = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK, "attention_mask": HEAD_MASK}
    layer(QUERY, VALUE, **masks)
    logits, keys = projections(layer)
    mask = np.broadcast_to(VALUE_MASK[:, None, None] & HEAD_MASK, logits.shape)
    phi = np.where(mask, log_softmax(np.where(mask, logits, -np.inf), axis=-1), 0.0)
    psi = np.where(mask, log_psi(layer, keys, mask), 0.0)
    total = 0.0
    for index in np.argwhere(mask & QUERY_MASK[:, None, :, None]):
        index = tuple(index)
        scale = np.exp(phi[index]) / np.exp(tf.math.lgamma(np.float64(1.0 + 1.0 / k)))
        q = tfd.Weibull(np.float64(k), scale)
        total += float(tfd.kl_divergence(q, tfd.Gamma(beta * np.exp(psi[index]), np.float64(beta))))
    valid = mask & QUERY_MASK[:, None, :, None]
    counts = {"sum": len(QUERY), "query_mean": valid.any(axis=(1, 3)).sum(), "mean": valid.sum()}
    assert len(layer.losses) == 1
    assert float(layer.losses[0]) == pytest.approx(0.5 * total / counts[reduction], rel=1e-5)
    layer(QUERY, VALUE, **masks, training=False)
    assert float(layer.kl_tracker.result()) == pytest.approx(total / len(QUERY), rel=1e-5)


@pytest.mark.parametrize(("masks", "num_keys"), [({}, 15), ({"value_mask": VALUE_MASK}, VALUE_MASK.sum())])
def test_reductions_count_queries_and_entries_of_all_heads(masks, num_keys):
    losses = {}
    for reduction in ("sum", "query_mean", "mean"):
        keras.utils.set_random_seed(1)
        layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual", kl_reduction=reduction)
        layer(QUERY, VALUE, **masks)
        losses[reduction] = float(layer.losses[0])
    assert losses["query_mean"] == pytest.approx(losses["sum"] / 4, rel=1e-5)
    assert losses["mean"] == pytest.approx(3 * losses["sum"] / (HEADS * 4 * num_keys), rel=1e-5)


class OneNat(Alignment):
    """Its KL is 1 everywhere, also in a row that has no key."""

    is_stochastic = True

    def prior_parameters(self, prior, log_psi):
        return {}

    def divergence(self, logits, p, keys, noise=None):
        return ops.ones_like(logits[..., 0])


def test_a_head_without_a_valid_key_adds_no_divergence():
    mask = np.ones((3, HEADS, 4, 5), bool)
    mask[0, 0] = mask[1, :, :2] = False
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=OneNat(), prior="fixed")
    layer(QUERY, VALUE, attention_mask=mask)
    assert float(layer.losses[0]) == pytest.approx((HEADS * 4 * 3 - 4 - HEADS * 2) / 3, rel=1e-6)


def test_the_query_mask_of_keras_counts_as_a_given_one():
    layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual")
    layer(QUERY, VALUE, query_mask=QUERY_MASK, value_mask=VALUE_MASK)
    given = float(layer.losses[0])
    query, value = tf.constant(QUERY), tf.constant(VALUE)
    query._keras_mask, value._keras_mask = tf.constant(QUERY_MASK), tf.constant(VALUE_MASK)
    layer(query, value)
    assert float(layer.losses[0]) == pytest.approx(given, rel=1e-6)
    layer(QUERY, VALUE, value_mask=VALUE_MASK)
    assert float(layer.losses[0]) > given


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_a_masked_key_has_no_weight_no_gradient_and_no_divergence_in_any_head(alignment):
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, prior="contextual", seed=1)
    layer.build(QUERY.shape, VALUE.shape)
    value = tf.constant(VALUE)
    seed_state = layer.seed_generator.state.numpy()
    results = []
    for shift in (0.0, 30.0):
        layer.seed_generator.state.assign(seed_state)
        moved = tf.where(VALUE_MASK[..., None], value, value + shift)
        with tf.GradientTape() as tape:
            tape.watch(moved)
            output, weights = layer(
                QUERY,
                moved,
                value_mask=VALUE_MASK,
                attention_mask=HEAD_MASK,
                return_attention_scores=True,
                training=True,
            )
            loss = layer.losses[0]
            objective = tf.reduce_sum(output**2) + loss
        results.append([output, weights, loss])
        gradient = tape.gradient(objective, moved).numpy()
        assert (gradient[~VALUE_MASK] == 0.0).all()
        assert (gradient[VALUE_MASK] != 0.0).any(axis=-1).all()
    assert_close(*results, rtol=0, atol=0)
    mask = VALUE_MASK[:, None, None] & HEAD_MASK
    assert (weights.numpy()[~mask] == 0.0).all()
    assert (weights.numpy()[mask] > 0.0).all()
    np.testing.assert_allclose(weights.numpy().sum(axis=-1), 1.0, rtol=1e-5)


NOTHING = np.array([[True] * 5, [False] * 5, [True] * 5])


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
@pytest.mark.parametrize("training", [False, True])
def test_rows_without_a_valid_key_have_no_weight_and_no_divergence(alignment, training):
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, prior="contextual")
    layer.build(QUERY.shape, VALUE.shape)
    layer.output_dense.bias.assign(tf.ones(6))
    value = tf.constant(VALUE)
    with tf.GradientTape() as tape:
        tape.watch(value)
        output, weights = layer(QUERY, value, value_mask=NOTHING, return_attention_scores=True, training=training)
        objective = tf.reduce_sum(output**2) + layer.losses[0]
    assert (weights.numpy()[1] == 0.0).all()
    assert (output.numpy()[1] == 1.0).all()
    gradients = tape.gradient(objective, [value, *layer.trainable_weights])
    assert all(np.isfinite(x).all() for x in gradients)
    assert (gradients[0].numpy()[1] == 0.0).all()
    layer(QUERY[1:2], VALUE[1:2], value_mask=NOTHING[1:2], training=training)
    assert float(layer.losses[0]) == 0.0


@pytest.mark.parametrize("alignment", [Weibull(1e7), LogNormal(1e-6)], ids=["weibull", "lognormal"])
def test_without_noise_training_is_softmax(alignment):
    layers = pair(alignment=alignment)
    assert_close(*(layer(QUERY, VALUE, training=True) for layer in layers), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_heads_queries_and_examples_draw_for_themselves(alignment):
    """Where all see the same, only the noise makes weights differ; it is uncorrelated within 5 standard errors."""
    layer = MultiHeadAttention(4, 3, alignment=alignment, seed=3)
    query, value = np.ones((5, 6, 2), "float32"), np.ones((5, 50, 2), "float32")
    _, weights = layer(query, value, return_attention_scores=True, training=True)
    rows = np.log(np.maximum(weights.numpy(), 1e-30)).reshape(-1, 50)
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(correlations).max() < 5.0 / np.sqrt(50)


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_the_mean_of_the_draws_of_a_seed_is_not_the_draw(alignment):
    first, same, other = (MultiHeadAttention(HEADS, WIDTH, alignment=alignment, seed=seed) for seed in (1, 1, 2))
    for layer in (first, same, other):
        layer.build(QUERY.shape, VALUE.shape)
        copy_keras_weights(layer, first)
    draws = [layer(QUERY, VALUE, training=True).numpy() for layer in (first, same, other)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.any(draws[0] != draws[2])
    mean = first(QUERY, VALUE).numpy()
    assert np.any(draws[0] != mean)
    with keras_vattn.posterior_draws(first, seed=5):
        drawn = first(QUERY, VALUE).numpy()
        np.testing.assert_array_equal(first(QUERY, VALUE), drawn)
    assert np.any(drawn != mean)
    np.testing.assert_array_equal(first(QUERY, VALUE), mean)


def test_dropout_falls_on_the_drawn_weights():
    """The share of dropped weights is 0.3 within 4 standard errors; the kept ones are weights / 0.7; seed 5."""
    layer = MultiHeadAttention(1, 25, value_dim=25, dropout=0.3, alignment="weibull", use_bias=False, seed=5)
    query = GENERATOR.normal(size=(50, 8, 25)).astype("float32")
    value = np.broadcast_to(np.eye(25, dtype="float32"), (50, 25, 25))
    layer.build(query.shape, value.shape)
    layer.value_dense.kernel.assign(np.eye(25)[:, None])
    layer.output_dense.kernel.assign(np.eye(25)[None])
    kept, weights = layer(query, value, return_attention_scores=True, training=True)
    kept, weights = kept.numpy(), weights.numpy()[:, 0]
    dropped = kept == 0.0
    assert abs(dropped.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / dropped.size)
    np.testing.assert_allclose(kept[~dropped], weights[~dropped] / 0.7, rtol=1e-5)
    with keras_vattn.posterior_draws(layer):
        kept, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(kept, weights[:, 0], rtol=1e-5)


def test_a_prior_of_each_head_has_a_network_of_each_head():
    shared, own = (
        MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual", per_head_prior=per_head)
        for per_head in (False, True)
    )
    for layer in (shared, own):
        layer.build(QUERY.shape, VALUE.shape)
        kernel, bias = layer.key_dense.get_weights()
        layer.key_dense.set_weights([np.repeat(kernel[:, :1], HEADS, axis=1), bias])
    assert [w.shape for w in shared.prior.weights] == [(3, 10), (10,), (10, 1)]
    assert [w.shape for w in own.prior.weights] == [(2, 3, 10), (2, 1, 10), (2, 10, 1)]
    means = [layer.prior_distribution(QUERY, VALUE).mean().numpy() for layer in (shared, own)]
    np.testing.assert_allclose(means[0].sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(means[0][:, 0], means[0][:, 1], rtol=1e-5)
    assert np.abs(means[1][:, 0] - means[1][:, 1]).max() > 1e-3


def test_psi_is_normalised_over_the_keys_that_a_query_sees():
    layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual")
    layer(QUERY, VALUE)
    arguments = {"value_mask": VALUE_MASK, "use_causal_mask": True}
    mask = np.broadcast_to(VALUE_MASK[:, None, None] & np.tril(np.ones((4, 5), bool)), (3, HEADS, 4, 5))
    psi = layer.prior_distribution(QUERY, VALUE, **arguments).mean().numpy()
    np.testing.assert_allclose(np.where(mask, psi, 0.0).sum(axis=-1), 1.0, rtol=1e-5)
    expected = log_psi(layer, projections(layer)[1], mask)
    np.testing.assert_allclose(psi[mask], np.exp(expected[mask]), rtol=1e-5)


@pytest.mark.parametrize("posterior", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_two_attention_axes_are_one_long_axis(training, posterior):
    query = GENERATOR.normal(size=(2, 3, 4, 6)).astype("float32")
    value = GENERATOR.normal(size=(2, 2, 5, 6)).astype("float32")
    arguments = {
        "attention_mask": GENERATOR.random((2, 3, 4, 2, 5)) < 0.8,
        "query_mask": GENERATOR.random((2, 3, 4)) < 0.8,
    }
    if posterior:
        arguments["posterior_logits"] = GENERATOR.normal(size=(2, 3, 4, 2, 5)).astype("float32")
    flat_arguments = {name: x.reshape(2, 12, -1) for name, x in arguments.items()}
    flat_arguments["query_mask"] = arguments["query_mask"].reshape(2, 12)
    options = {"alignment": "weibull", "prior": None if posterior else "contextual", "seed": 2}
    high, flat = MultiHeadAttention(HEADS, WIDTH, **options), MultiHeadAttention(HEADS, WIDTH, **options)
    high.build(query.shape, value.shape)
    flat.build((2, 12, 6), (2, 10, 6))
    copy_keras_weights(flat, high)
    if not posterior:
        flat.prior.set_weights(high.prior.get_weights())
    output, weights = high(query, value, **arguments, return_attention_scores=True, training=training)
    query, value = query.reshape(2, 12, 6), value.reshape(2, 10, 6)
    expected = flat(query, value, **flat_arguments, return_attention_scores=True, training=training)
    assert weights.shape == (2, HEADS, 3, 4, 2, 5)
    assert_close([tf.reshape(output, (2, 12, 6)), tf.reshape(weights, (2, HEADS, 12, 10))], expected)
    assert_close(high.losses, flat.losses)


def test_an_axis_beside_the_attention_is_one_of_the_batch():
    x = GENERATOR.normal(size=(2, 3, 4, 6)).astype("float32")
    query_mask = GENERATOR.random((2, 3, 4)) < 0.8
    options = {"alignment": "weibull", "prior": "contextual"}
    high, flat = (
        MultiHeadAttention(HEADS, WIDTH, attention_axes=2, **options),
        MultiHeadAttention(HEADS, WIDTH, **options),
    )
    high.build(x.shape, x.shape)
    flat.build((6, 4, 6), (6, 4, 6))
    copy_keras_weights(flat, high)
    flat.prior.set_weights(high.prior.get_weights())
    output = high(x, x, query_mask=query_mask)
    expected = flat(x.reshape(6, 4, 6), x.reshape(6, 4, 6), query_mask=query_mask.reshape(6, 4))
    assert_close(tf.reshape(output, (6, 4, 6)), expected)
    assert float(high.losses[0]) == pytest.approx(3 * float(flat.losses[0]), rel=1e-5)
    with pytest.raises(ValueError, match=r"`query_mask`.*Received: query_mask\.shape=\(2, 3\)"):
        high(x, x, query_mask=query_mask[..., 0])


def test_with_posterior_logits_the_scores_are_the_prior():
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=LogNormal(0.7))
    output, weights = layer(QUERY, VALUE, posterior_logits=POSTERIOR, return_attention_scores=True)
    np.testing.assert_allclose(weights, tf.nn.softmax(POSTERIOR), rtol=1e-5)
    logits, _ = projections(layer)
    divergence = np.sum((log_softmax(POSTERIOR, axis=-1) - log_softmax(logits, axis=-1)) ** 2) / (2 * 0.7**2)
    assert float(layer.losses[0]) == pytest.approx(divergence / 3, rel=1e-4)
    q, p = (
        f(QUERY, VALUE, posterior_logits=POSTERIOR) for f in (layer.posterior_distribution, layer.prior_distribution)
    )
    assert float(layer.losses[0]) == pytest.approx(tfd.kl_divergence(q, p).numpy().sum() / 3, rel=1e-4)
    assert np.any(output != layer(QUERY, VALUE))
    assert not layer.losses
    np.testing.assert_allclose(
        layer(QUERY, VALUE, return_attention_scores=True)[1], tf.nn.softmax(logits), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_posterior_logits_for_all_heads(alignment):
    shared = POSTERIOR[:, :1]
    losses, draws = [], []
    for logits in (np.repeat(shared, HEADS, axis=1), shared, shared[:, 0]):
        keras.utils.set_random_seed(1)
        layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, seed=1)
        draws.append(layer(QUERY, VALUE, posterior_logits=logits, return_attention_scores=True, training=True)[1])
        losses.append(float(layer.losses[0]))
    assert losses[1:] == losses[:1] * 2
    assert_close(draws[1:], draws[:1] * 2)
    assert np.any(draws[0][:, 0].numpy() != draws[0][:, 1].numpy())


def test_posterior_logits_in_a_model():
    inputs = {
        "query": keras.Input((None, 6), name="query"),
        "value": keras.Input((None, 7), name="value"),
        "posterior_logits": keras.Input((HEADS, None, None), name="posterior_logits"),
    }
    layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", name="attention")
    model = keras.Model(inputs, layer(**inputs))
    model.compile("sgd", "mse")
    history = model.fit({"query": QUERY, "value": VALUE, "posterior_logits": POSTERIOR}, QUERY, verbose=0).history
    assert history["attention_kl"][0] > 0
    assert int(layer.training_calls.value) == 1


@pytest.mark.parametrize("prior", [None, "contextual"])
def test_training_calls_are_counted_and_anneal_the_weight(prior):
    layer = MultiHeadAttention(
        HEADS,
        WIDTH,
        alignment="weibull",
        prior=prior,
        kl_annealing=LinearAnnealing(4, final_value=0.5),
        name="attention",
    )
    model = model_of(layer)
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    history = model.fit([QUERY, VALUE], QUERY, epochs=3, batch_size=3, verbose=0).history
    assert int(layer.training_calls.value) == 3
    assert ("attention_kl" in history) == (prior is not None)
    layer(QUERY, VALUE, training=False)
    weights = [0.5] if prior else []
    assert [float(x) for x in layer.losses] == [
        pytest.approx(w * history["attention_kl"][0], rel=1e-5) for w in weights
    ]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("alignment", ["weibull", "lognormal", "gumbel_softmax"])
def test_graph_and_jit_draw_what_eager_draws(alignment, jit_compile):
    layers = [
        MultiHeadAttention(HEADS, WIDTH, alignment=alignment, prior="contextual", dropout=0.25, seed=7)
        for _ in range(2)
    ]
    for layer in layers:
        layer.build(QUERY.shape, VALUE.shape)
        copy_keras_weights(layer, layers[0])
        layer.prior.set_weights(layers[0].prior.get_weights())

    def call(layer, query, value, mask):
        output, weights = layer(query, value, value_mask=mask, return_attention_scores=True, training=True)
        return output, weights, layer.losses[0]

    specs = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, 7)), tf.TensorSpec((None, None), tf.bool)]
    compiled = tf.function(
        lambda *arguments: call(layers[1], *arguments), jit_compile=jit_compile, input_signature=specs
    )
    for size in (3, 2):
        arguments = [tf.constant(x[:size]) for x in (QUERY, VALUE, VALUE_MASK)]
        assert_close(compiled(*arguments), call(layers[0], *arguments), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "alignment", [*STOCHASTIC.values(), lambda: Weibull(0.5, "raw"), lambda: LogNormal(2.0, "raw")]
)
def test_extreme_logits(alignment):
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment(), prior="contextual")
    layer.build(QUERY.shape, VALUE.shape)
    largest = np.abs(projections(layer)[0]).max()
    layer.query_dense.kernel.assign(layer.query_dense.kernel * (1e4 / largest))
    value = tf.constant(VALUE)
    for training in (False, True):
        with tf.GradientTape() as tape:
            tape.watch(value)
            output, weights = layer(
                QUERY, value, value_mask=VALUE_MASK, return_attention_scores=True, training=training
            )
            objective = tf.reduce_sum(output) + layer.losses[0]
        assert np.isfinite(objective)
        np.testing.assert_allclose(weights.numpy().sum(axis=-1), 1.0, rtol=1e-5)
        assert all(np.isfinite(x).all() for x in tape.gradient(objective, [value, *layer.trainable_weights]))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_dtypes(policy):
    reference = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual")
    single = reference(QUERY, VALUE)
    layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual", dtype=policy)
    layer.build(QUERY.shape, VALUE.shape)
    layer.set_weights(reference.get_weights())
    output, weights = layer(QUERY, VALUE, return_attention_scores=True)
    assert output.dtype == weights.dtype == layer.compute_dtype
    assert layer.losses[0].dtype == tf.float32
    np.testing.assert_allclose(ops.cast(output, "float32"), single, atol=0.05)
    np.testing.assert_allclose(layer.losses[0], reference.losses[0], rtol=0.02)
    assert layer(QUERY, VALUE, training=True).dtype == layer.compute_dtype


def test_replicas_draw_for_themselves(two_replicas):
    with two_replicas.scope():
        layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual", seed=1)
        layer.build((1, 4, 6), (1, 5, 7))
    query, value = tf.constant(QUERY[:1]), tf.constant(VALUE[:1])
    run = tf.function(lambda: two_replicas.run(lambda: (layer(query, value, training=True), layer.losses[0])))
    outputs, losses = (two_replicas.experimental_local_results(x) for x in run())
    assert np.any(outputs[0].numpy() != outputs[1].numpy())
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)


def test_an_export_draws_from_the_seed_it_is_given(tmp_path):
    model = model_of(MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual"))
    exported = tf.Module()
    exported.model = model
    signature = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, 7)), tf.TensorSpec((), tf.int32)]

    @tf.function(input_signature=signature)
    def sample(query, value, seed):
        with keras_vattn.posterior_draws(model, seed=seed):
            return model([query, value])

    exported.sample = sample
    tf.saved_model.save(exported, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    first, same, other = (loaded.sample(QUERY, VALUE, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert np.any(first != other)
    with keras_vattn.posterior_draws(model, seed=1):
        assert_close(model([QUERY, VALUE]), first)


class Sharper(Alignment):
    def perturb(self, logits, noise, keys):
        return 2.0 * logits


def test_a_deterministic_alignment_of_ones_own():
    layers = pair(alignment=Sharper())
    layers[0].query_dense.set_weights([2.0 * w for w in layers[0].query_dense.get_weights()])
    for training in (False, True):
        assert_close(*(layer(QUERY, VALUE, value_mask=VALUE_MASK, training=training) for layer in layers))
    assert not layers[1].losses


def test_identifiers():
    config = keras.saving.serialize_keras_object(Weibull(5.0))
    prior = keras.saving.serialize_keras_object(ContextualPrior(beta=3.0))
    prior_instance = FixedPrior()
    assert MultiHeadAttention(2, 3, alignment=config, prior=prior).alignment.k == 5.0
    assert MultiHeadAttention(2, 3, alignment=Weibull, prior=prior).prior.beta == 3.0
    assert MultiHeadAttention(2, 3, alignment="weibull", prior=prior_instance).prior is prior_instance
    assert (
        MultiHeadAttention(2, 3, alignment="weibull", prior=ContextualPrior, per_head_prior=True).prior.num_heads == 2
    )
    assert MultiHeadAttention(2, 3, alignment="weibull", prior=ContextualPrior(num_heads=2)).per_head_prior


def test_config_is_that_of_keras_and_more():
    options = {"num_heads": 2, "key_dim": 3, "value_dim": 5, "use_gate": True, "sliding_window": 4, "seed": 3}
    keras_config = KerasAttention(**options, name="attention").get_config()
    layer = MultiHeadAttention(
        **options, name="attention", alignment=Weibull(4.0), prior="contextual", per_head_prior=True, kl_weight=0.3
    )
    config = json.loads(json.dumps(layer.get_config()))
    assert {name: config[name] for name in keras_config} == json.loads(json.dumps(keras_config))
    copy = MultiHeadAttention.from_config(config)
    assert json.loads(json.dumps(copy.get_config())) == config
    assert (copy.alignment.k, copy.prior.num_heads, copy.per_head_prior, copy.kl_weight) == (4.0, 2, True, 0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alignment": "hardmax"}, r'"weibull".*Received: alignment="hardmax"'),
        ({"alignment": "softmax", "prior": "contextual"}, "A prior needs a stochastic alignment.*Received"),
        ({"alignment": "weibull", "prior": "uniform"}, r'"contextual".*Received: prior="uniform"'),
        ({"alignment": "weibull", "per_head_prior": True}, "for each head.*Received: prior=None"),
        ({"alignment": "weibull", "prior": "fixed", "per_head_prior": True}, "for each head.*Received"),
        ({"alignment": "weibull", "prior": ContextualPrior(num_heads=3)}, "for each head.*num_heads=3"),
        ({"alignment": "weibull", "prior": ContextualPrior(), "per_head_prior": True}, "for each head.*Received"),
        ({"alignment": "weibull", "flash_attention": True}, "Flash attention.*Received: flash_attention=True"),
        ({"kl_weight": -1.0}, "Received: kl_weight=-1.0"),
        ({"kl_annealing": 0.5}, "Received: kl_annealing=0.5"),
        ({"kl_reduction": "max"}, "Received: kl_reduction='max'"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(HEADS, WIDTH, **options)


@pytest.mark.parametrize(
    ("options", "logits", "message"),
    [
        ({}, POSTERIOR, "need a stochastic alignment.*Received: alignment=Softmax"),
        ({"alignment": "weibull", "prior": "fixed"}, POSTERIOR, "no other beside them.*prior=FixedPrior"),
        (
            {"alignment": "weibull"},
            POSTERIOR[:, :, :3],
            r"\(3, 2, 4, 5\).*Received: posterior_logits.shape=\(3, 2, 3, 5\)",
        ),
        ({"alignment": "weibull"}, POSTERIOR[0, 0], r"Received: posterior_logits.shape=\(4, 5\)"),
        ({"alignment": "weibull"}, np.repeat(POSTERIOR, 2, axis=1), r"Received: posterior_logits.shape=\(3, 4, 4, 5\)"),
    ],
)
def test_posterior_logits_that_are_refused(options, logits, message):
    layer = MultiHeadAttention(HEADS, WIDTH, **options)
    with pytest.raises(ValueError, match=message):
        layer(QUERY, VALUE, posterior_logits=logits)
    with pytest.raises(ValueError, match=message):
        layer(*(keras.KerasTensor(x.shape) for x in (QUERY, VALUE)), posterior_logits=keras.KerasTensor(logits.shape))


def test_distributions_and_statistics():
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=Weibull(4.0))
    with pytest.raises(ValueError, match="Call the layer once"):
        layer.posterior_distribution(QUERY, VALUE)
    _, weights = layer(QUERY, VALUE, value_mask=VALUE_MASK, return_attention_scores=True)
    q = layer.posterior_distribution(QUERY, VALUE, value_mask=VALUE_MASK)
    mask = np.broadcast_to(VALUE_MASK[:, None, None], weights.shape)
    np.testing.assert_allclose(q.mean().numpy()[mask], weights.numpy()[mask], rtol=1e-5)
    with pytest.raises(ValueError, match=r"has no prior.*Received: alignment=Weibull"):
        layer.prior_distribution(QUERY, VALUE)
    with pytest.raises(ValueError, match=r"has no prior.*Received: alignment=Softmax"):
        pair()[1].prior_distribution(QUERY, VALUE)
    np.testing.assert_allclose(
        pair()[1].posterior_distribution(QUERY, VALUE).mean(),
        pair()[0](QUERY, VALUE, return_attention_scores=True)[1],
        rtol=1e-5,
    )


def test_statistics_tell_how_random_the_weights_are():
    annealed = GumbelSoftmax(keras.optimizers.schedules.ExponentialDecay(1.0, 9, 0.5))
    deviations = []
    for alignment in (Weibull(2.0), Weibull(200.0), annealed):
        layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, prior="contextual")
        layer(QUERY, VALUE)
        statistics = layer.alignment_statistics(QUERY, VALUE, value_mask=VALUE_MASK)
        assert [statistics[name].shape for name in ("posterior_entropy", "prior_entropy", "weights_sd")] == [
            (3, HEADS, 4),
            (3, HEADS, 1),
            (3, HEADS, 4),
        ]
        deviations.append(float(ops.mean(statistics["weights_sd"])))
    assert deviations[0] > 20 * deviations[1] > 0
    assert deviations[2] > 0
