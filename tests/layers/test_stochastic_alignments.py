"""Tests attention and its decoder with stochastic alignments: KLs, samples, and finite results."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import STOCHASTIC, WITH_CLOSED_DIVERGENCE
from twins import twin_divergence

import keras_vattn
from keras_vattn import (
    Attention,
    AttentionDecoder,
    BayesianAttention,
    DirichletAttention,
    GammaPrior,
)

generator = np.random.default_rng(0)
B, T, S, D = 4, 3, 5, 6
QUERY = tf.constant(generator.normal(size=(B, T, D)), tf.float32)
VALUE = tf.constant(generator.normal(size=(B, S, D)), tf.float32)
POSTERIOR = tf.constant(generator.normal(size=(B, T, S)), tf.float32)


def loss_of(layer, *arguments, **options):
    layer(*arguments, **options)
    return float(layer.losses[0])


def test_lemma_1_semi_analytic_equals_joint():
    """The second of two layers attends to samples of the first. The mean of the sum of both KLs is the KL of the joint
    distributions."""
    num_samples = 20_000
    prior = GammaPrior(beta=2.0)
    first, second = (BayesianAttention(k=2.0, prior=prior.from_config(prior.get_config()), seed=i) for i in (1, 2))
    query, value = (tf.repeat(x[:1], num_samples, axis=0) for x in (QUERY, VALUE))
    drawn = first(query, value, training=True)
    second(drawn, drawn, training=True)
    assert len(first.losses) == len(second.losses) == 1
    semi_analytic = float(first.losses[0] + second.losses[0])

    def joint(layer, *arguments):
        q, p = layer.posterior_distribution(*arguments), layer.prior_distribution(*arguments)
        weights = q.sample(seed=(3, layer.seed))
        ratio = tf.reduce_sum(q.log_prob(weights) - p.log_prob(weights), axis=1)
        normalised = weights / tf.reduce_sum(weights, axis=-1, keepdims=True)
        return ratio, normalised @ arguments[1]

    one, drawn = joint(first, query, value)
    two, _ = joint(second, drawn, drawn)
    total = (one + two).numpy()
    error = total.std() / np.sqrt(num_samples)
    assert abs(total.mean() - semi_analytic) < 4 * error
    assert loss_of(first, query, value, training=True) == pytest.approx(float(first.losses[0]))


@pytest.mark.parametrize("alignment", STOCHASTIC)
def test_posterior_logits_draw_and_the_scores_predict(alignment):
    layer = Attention(alignment=alignment, seed=1)
    deterministic = Attention()(QUERY, VALUE)
    tolerance = 1e-2 if alignment == "dirichlet" else 1e-5
    np.testing.assert_allclose(layer(QUERY, VALUE), deterministic, atol=tolerance)
    assert not layer.losses
    context, weights = layer(QUERY, VALUE, posterior_logits=POSTERIOR, return_attention_scores=True)
    np.testing.assert_allclose(weights, tf.nn.softmax(POSTERIOR), atol=tolerance)
    np.testing.assert_allclose(context, weights @ VALUE, rtol=1e-4, atol=1e-5)
    assert len(layer.losses) == 1
    scores = QUERY @ tf.transpose(VALUE, (0, 2, 1))
    q, p = (layer.alignment.posterior(x, keras_vattn.DenseKeys()) for x in (POSTERIOR, scores))
    expected = q.kl_divergence(p) if alignment in WITH_CLOSED_DIVERGENCE else twin_divergence(q, p)
    assert float(layer.losses[0]) == pytest.approx(float(tf.reduce_sum(expected)) / B, rel=1e-5)
    same = layer(QUERY, VALUE, posterior_logits=scores)
    np.testing.assert_allclose(same, deterministic, atol=tolerance)
    assert float(layer.losses[0]) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("alignment", STOCHASTIC)
def test_gradient_of_the_divergence_reaches_q_and_p(alignment):
    layer = Attention("bilinear", alignment=alignment)
    layer(QUERY, VALUE)
    posterior = tf.Variable(POSTERIOR)
    with tf.GradientTape() as tape:
        layer(QUERY, VALUE, posterior_logits=posterior)
        loss = layer.losses[0]
    for gradient in tape.gradient(loss, [posterior, layer.score.kernel.value]):
        assert np.abs(gradient).max() > 1e-3


@pytest.mark.parametrize("alignment", STOCHASTIC)
def test_warm_start_draws_from_p_without_a_divergence(alignment):
    layer = Attention(alignment=alignment, warm_start_steps=2, seed=1)
    uniform = tf.zeros((B, T, S))
    spike = tf.constant([[[0.0, 0.0, 0.0, 0.0, 9.0]]]) + uniform
    query, value = tf.linalg.diag(tf.ones((B, S)))[:, :1] * 9.0, tf.linalg.diag(tf.ones((B, S)))
    query = tf.repeat(query, T, axis=1)
    for call in range(4):
        _, weights = layer(query, value, posterior_logits=spike, return_attention_scores=True, training=True)
        chosen = 0 if call < 2 else S - 1
        assert (np.argmax(weights, axis=-1) == chosen).all()
        assert (float(layer.losses[0]) < 1e-4) == (call < 2)
    assert int(layer.training_calls) == 4
    _, weights = layer(query, value, posterior_logits=spike, return_attention_scores=True, training=False)
    assert (np.argmax(weights, axis=-1) == S - 1).all()


def test_annealing_begins_after_the_warm_start():
    layer = DirichletAttention(warm_start_steps=2, kl_annealing=keras_vattn.LinearAnnealing(2), seed=1)
    losses = [loss_of(layer, QUERY, VALUE, posterior_logits=POSTERIOR, training=True) for _ in range(5)]
    full = loss_of(layer, QUERY, VALUE, posterior_logits=POSTERIOR)
    np.testing.assert_allclose(losses, [0.0, 0.0, 0.0, 0.5 * full, full], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alignment", STOCHASTIC)
def test_masked_posterior_logits_may_be_anything(alignment):
    posterior = tf.concat([POSTERIOR[..., :-1], tf.fill((B, T, 1), float("nan"))], axis=-1)
    layer = Attention(alignment=alignment, seed=1)
    mask = tf.constant([[True] * (S - 1) + [False]] * B)
    with tf.GradientTape() as tape:
        tape.watch(posterior)
        context = layer(QUERY, VALUE, value_mask=mask, posterior_logits=posterior, training=True)
        total = tf.reduce_sum(tf.square(context)) + layer.losses[0]
    gradient = tape.gradient(total, posterior).numpy()
    assert np.isfinite(total)
    assert np.isfinite(gradient).all()
    assert (gradient[..., -1] == 0.0).all()


def test_dirichlet_samples_of_the_distribution_have_a_gradient_at_the_smallest_concentration():
    layer = DirichletAttention()
    layer(QUERY, VALUE)
    posterior = tf.constant(np.where(np.arange(S) < 3, -1e3, 0.0) + np.zeros((B, T, S)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(posterior)
        weights = layer.posterior_distribution(QUERY, VALUE, posterior_logits=posterior).sample(5, seed=(1, 2))
        total = tf.reduce_sum(tf.square(weights))
    assert np.isfinite(tape.gradient(total, posterior)).all()
    np.testing.assert_allclose(tf.reduce_sum(weights, axis=-1), 1.0, rtol=1e-5)


def test_divergence_and_context_divergence_add_up():
    both = Attention(alignment="weibull", prior="contextual", context="gaussian", kl_reduction="mean")
    loss = loss_of(both, QUERY, VALUE)
    weibull = Attention(alignment="weibull", prior="contextual")
    weibull(QUERY, VALUE)
    weibull.prior.set_weights(both.prior.get_weights())
    gaussian = Attention(context="gaussian")
    gaussian(QUERY, VALUE)
    gaussian.context.set_weights(both.context.get_weights())
    total = loss_of(weibull, QUERY, VALUE) + loss_of(gaussian, QUERY, VALUE)
    assert loss == pytest.approx(total * B / (B * T * (S + D)), rel=1e-5)


def test_reductions_count_valid_query_key_pairs():
    query_mask = np.arange(T) < np.array([3, 2, 1, 3])[:, None]
    value_mask = np.arange(S) < np.array([5, 4, 1, 2])[:, None]
    totals = {}
    for kl_reduction in ("sum", "query_mean", "mean"):
        layer = BayesianAttention(prior="fixed", kl_reduction=kl_reduction)
        totals[kl_reduction] = loss_of(layer, QUERY, VALUE, query_mask=query_mask, value_mask=value_mask)
    pairs = (query_mask.sum(1) * value_mask.sum(1)).sum()
    assert totals["query_mean"] == pytest.approx(totals["sum"] * B / query_mask.sum(), rel=1e-5)
    assert totals["mean"] == pytest.approx(totals["sum"] * B / pairs, rel=1e-5)


def test_the_prior_is_normalised_over_the_valid_keys_of_each_query():
    layer = BayesianAttention(prior="contextual")
    layer(QUERY[:, :T], VALUE[:, :T])
    p = layer.prior_distribution(QUERY, VALUE[:, :T], use_causal_mask=True)
    means = np.where(np.tril(np.ones((T, T))), p.mean(), 0.0)
    np.testing.assert_allclose(means.sum(-1), 1.0, rtol=1e-5)
    masked = layer.prior_distribution(QUERY, VALUE, value_mask=np.arange(S) < np.array([5, 4, 1, 2])[:, None])
    means = np.where(np.arange(S) < np.array([5, 4, 1, 2])[:, None, None], masked.mean(), 0.0)
    np.testing.assert_allclose(means.sum(-1), 1.0, rtol=1e-5)


def test_alignment_statistics():
    noisy, quiet = BayesianAttention(k=1.0), BayesianAttention(k=1e5)
    for layer in (noisy, quiet):
        layer(QUERY, VALUE)
    statistics = noisy.alignment_statistics(QUERY, VALUE, num_samples=64)
    weights = tf.nn.softmax(QUERY @ tf.transpose(VALUE, (0, 2, 1)))
    entropy = -np.sum(weights * np.log(weights), axis=-1)
    np.testing.assert_allclose(statistics["posterior_entropy"], entropy, rtol=1e-4)
    assert statistics["prior_entropy"].shape == (B, 1)
    assert (statistics["prior_entropy"] <= np.log(S) + 1e-5).numpy().all()
    assert (statistics["weights_sd"] > 1e-2).numpy().any()
    assert (quiet.alignment_statistics(QUERY, VALUE)["weights_sd"] < 1e-3).numpy().all()
    repeated = [noisy.alignment_statistics(QUERY, VALUE, sample_seed=seed)["weights_sd"] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(repeated[0], repeated[1])
    assert np.any(repeated[0] != repeated[2])
    fixed = BayesianAttention(prior="fixed")
    fixed(QUERY, VALUE)
    assert "prior_entropy" not in fixed.alignment_statistics(QUERY, VALUE)


def test_errors():
    for options, message in (
        ({"prior": "contextual"}, "stochastic alignment.*Received: prior='contextual', alignment=Softmax"),
        ({"alignment": "weibul"}, '"weibull".*"gumbel_softmax".*Received: alignment="weibul"'),
        ({"alignment": "weibull", "prior": "uniform"}, '"fixed", "contextual".*Received: prior="uniform"'),
    ):
        with pytest.raises(ValueError, match=message):
            Attention(**options)
    for options in ({"warm_start_steps": 3}, {"warm_start_steps": 3, "alignment": "weibull", "prior": "fixed"}):
        with pytest.raises(ValueError, match=r"needs posterior logits.*Received: warm_start_steps=3"):
            Attention(**options)
    with pytest.raises(ValueError, match=r"needs keras_vattn.MultiHeadAttention. Received: prior.num_heads=4"):
        Attention(alignment="weibull", prior=GammaPrior(num_heads=4))
    with pytest.raises(ValueError, match=r"must have prior=None.*Received: posterior_logits.shape=\(4, 3, 5\)"):
        Attention(alignment="weibull", prior="fixed")(QUERY, VALUE, posterior_logits=POSTERIOR)
    for alignment in ("softmax", "hard"):
        with pytest.raises(
            ValueError, match=rf"need an alignment that supports a KL.*Received: alignment=(?i:{alignment})"
        ):
            Attention(alignment=alignment)(QUERY, VALUE, posterior_logits=POSTERIOR)
    with pytest.raises(ValueError, match=r"Hard accepts no prior. Received: prior='contextual'"):
        Attention(alignment="hard", prior="contextual")
    for wrong in (POSTERIOR[:, :2], POSTERIOR[..., :4], POSTERIOR[0]):
        with pytest.raises(ValueError, match=r"\(B, T, S\)\. Expected: \(4, 3, 5\).*Received: posterior_logits.shape="):
            Attention(alignment="weibull")(QUERY, VALUE, posterior_logits=wrong)
    with pytest.raises(ValueError, match=r"requires keras_vattn.AttentionDecoder.*Received: score=LocationSensitive"):
        Attention(score="location_sensitive")(QUERY, VALUE)
    layer = Attention(alignment="weibull")
    layer(QUERY, VALUE)
    with pytest.raises(ValueError, match=r"no prior.*Received: alignment=Weibull, prior=None"):
        layer.prior_distribution(QUERY, VALUE)
    with pytest.raises(ValueError, match=r"have the same compute dtype.*Received: score.compute_dtype=bfloat16"):
        Attention(score=keras_vattn.DotProduct(dtype="mixed_bfloat16"))


def test_the_mask_of_the_inputs_reaches_the_latent_alignment():
    """Padded target words must not add to the KL of the layer that reads the decoder's queries and logits."""
    ids = np.array([[3, 4, 5, 0], [6, 7, 0, 0]])
    embedded = keras.layers.Embedding(9, 3, mask_zero=True)(ids)
    memory = tf.constant(generator.normal(size=(2, 7, D)), tf.float32)
    decoded = AttentionDecoder(D, keras_vattn.DeterministicAttention())(embedded, memory, return_logits=True)
    latent = keras_vattn.CategoricalAttention(objective="elbo/enumerate")
    posterior = tf.constant(generator.normal(size=(2, 4, 7)), tf.float32)
    arguments = {"posterior_logits": posterior, "logits": decoded["logits"], "training": True}
    latent(decoded["query"], memory, **arguments)
    by_masks = float(latent.losses[0])
    latent(tf.convert_to_tensor(decoded["query"].numpy()), memory, query_mask=tf.constant(ids != 0), **arguments)
    assert by_masks == pytest.approx(float(latent.losses[0]), rel=1e-5)
    latent(tf.convert_to_tensor(decoded["query"].numpy()), memory, **arguments)
    assert by_masks < 0.9 * float(latent.losses[0])
