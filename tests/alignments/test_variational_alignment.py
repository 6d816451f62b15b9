"""Tests VariationalAlignment, which combines an alignment with its prior in every attention layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import STOCHASTIC
from tensorflow_probability.python import distributions as tfd

import keras_vattn
from keras_vattn import (
    Attention,
    BayesianAttention,
    Dirichlet,
    DirichletPrior,
    GammaPrior,
    LogNormal,
    LogNormalPrior,
    MultiHeadAttention,
    Weibull,
)

GENERATOR = np.random.default_rng(0)
QUERY = GENERATOR.normal(size=(3, 2, 4)).astype("float32")
VALUE = GENERATOR.normal(size=(3, 5, 4)).astype("float32")
MASK = np.arange(5) < np.array([5, 3, 1])[:, None]


def entropy(weights):
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=-1)


def test_statistics_describe_the_weights_instead_of_a_softmax():
    """A Dirichlet clamps concentrations at e^10, so the entropy of weights is not the entropy of a softmax."""
    layer = Attention(alignment=Dirichlet())
    query = 60.0 * QUERY
    _, weights = layer(query, VALUE, value_mask=MASK, return_attention_scores=True)
    statistics = layer.alignment_statistics(query, VALUE, value_mask=MASK)
    np.testing.assert_allclose(statistics["posterior_entropy"], entropy(weights.numpy()), rtol=1e-4, atol=1e-6)
    softmax = entropy(tf.nn.softmax(tf.where(MASK[:, None], query @ VALUE.transpose(0, 2, 1), -1e9)).numpy())
    assert (np.abs(statistics["posterior_entropy"] - softmax) > 0.1).any()


@keras.saving.register_keras_serializable(package="tests")
class Halves(LogNormal):
    """Assigns the same weight to all valid keys."""

    def normalize(self, perturbed, noise, keys):
        return keys.softmax(0.0 * perturbed)


def test_statistics_use_a_custom_normalize():
    for layer in (Attention(alignment=Halves()), MultiHeadAttention(2, 3, alignment=Halves())):
        layer(QUERY, VALUE, value_mask=MASK)
        statistics = layer.alignment_statistics(QUERY, VALUE, value_mask=MASK, num_samples=3)
        entropies = np.log(MASK.sum(-1)) + np.zeros_like(np.moveaxis(statistics["posterior_entropy"], 0, -1))
        np.testing.assert_allclose(np.moveaxis(statistics["posterior_entropy"], 0, -1), entropies, atol=1e-6)
        np.testing.assert_allclose(statistics["weights_sd"], 0.0, atol=1e-7)


@pytest.mark.slow
def test_the_deviation_matches_the_draws():
    """Standard deviations of 400 samples match within 6 standard errors, which are sd / sqrt(2 n) per weight."""
    layer = Attention(alignment="weibull", seed=1)
    layer(QUERY, VALUE, value_mask=MASK)
    statistics = layer.alignment_statistics(QUERY, VALUE, value_mask=MASK, num_samples=400)
    one_by_one = np.stack(
        [layer(QUERY, VALUE, value_mask=MASK, training=True, return_attention_scores=True)[1] for _ in range(400)]
    ).std(0)
    expected = np.where(MASK[:, None], one_by_one, 0.0).sum(-1) / MASK.sum(-1)[:, None]
    np.testing.assert_allclose(statistics["weights_sd"], expected, rtol=6 / np.sqrt(800), atol=1e-7)


class Opaque(tfd.Distribution):
    """A lognormal distribution without a registered KL."""

    def __init__(self, loc, scale):
        self.plain, self.loc = tfd.LogNormal(loc, scale), loc
        super().__init__(
            dtype=self.plain.dtype,
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
        )

    def _batch_shape(self):
        return self.plain.batch_shape

    def _event_shape(self):
        return self.plain.event_shape

    def _log_prob(self, value):
        return self.plain.log_prob(value)

    def _sample_n(self, n, seed=None):
        return self.plain.sample(n, seed=seed)


@keras.saving.register_keras_serializable(package="tests")
class DrawnLogNormal(LogNormal):
    """A LogNormal alignment whose KL is estimated from one sample."""

    def posterior(self, logits, keys):
        return Opaque(super().posterior(logits, keys).loc, self.sigma)


class TestAFamilyWithoutAClosedForm:
    """The estimated KL is log q(S) - log p(S) at a sample S. Its expectation is the analytic KL."""

    @pytest.mark.parametrize("arguments", [{"prior": "contextual"}, {"prior": "fixed"}, {}])
    def test_the_mean_is_the_closed_form(self, arguments):
        """The mean of 2,000 estimates is within 4 standard errors of the analytic KL."""
        posterior = {} if arguments else {"posterior_logits": GENERATOR.normal(size=(3, 2, 5)).astype("float32")}
        drawn, closed = (Attention(alignment=x(0.7), seed=1, **arguments) for x in (DrawnLogNormal, LogNormal))
        for layer in (drawn, closed):
            layer(QUERY, VALUE, value_mask=MASK, **posterior)
        drawn.set_weights(closed.get_weights())
        closed(QUERY, VALUE, value_mask=MASK, **posterior)

        @tf.function
        def estimate():
            drawn(QUERY, VALUE, value_mask=MASK, training=True, **posterior)
            return drawn.losses[0]

        estimates = np.array([estimate() for _ in range(2000)])
        assert np.abs(estimates.mean() - closed.losses[0]) < 4 * estimates.std() / np.sqrt(2000)
        assert estimates.std() > 0
        assert drawn.estimates_divergence and not closed.estimates_divergence

    def test_evaluation_averages_sixteen_fixed_draws(self):
        layer, losses = Attention(alignment=DrawnLogNormal(0.7), prior="contextual"), []
        for _ in range(2):
            layer(QUERY, VALUE, training=False)
            losses.append(float(layer.losses[0]))
        q, p = layer.posterior_distribution(QUERY, VALUE), layer.prior_distribution(QUERY, VALUE)
        seeds = [keras_vattn.random.fold_in(keras_vattn.random.as_seed(0), i) for i in range(16)]
        draws = tf.stack([q.sample(seed=seed) for seed in seeds])
        rows = tf.reduce_mean(tf.reduce_sum(q.log_prob(draws), axis=-1) - p.log_prob(draws), axis=0)
        assert losses[0] == losses[1] == pytest.approx(float(tf.reduce_sum(rows)) / 3, rel=1e-5)

    def test_draws_use_the_schedule_of_the_training_calls(self):
        """The width halves with every training call. The KL at inference uses the width after these calls."""

        class Narrowing(DrawnLogNormal):
            def at_step(self, step):
                return {"width": 2.0 ** -tf.cast(step, tf.float32)}

            def perturb(self, logits, noise, keys):
                return logits if noise is None else logits + noise["width"] * noise["normal"]

            def noise(self, shape, seed):
                return {"normal": keras_vattn.random.normal(shape, seed)}

            def posterior(self, logits, keys, width):
                return Opaque(keys.log_softmax(logits), width)

        class Standard(keras_vattn.Prior):
            def distribution(self, alignment, log_psi, logits, keys, width):
                return Opaque(tf.zeros_like(logits), 1.0)

        layer = Attention(alignment=Narrowing(), prior=Standard(), seed=1)
        for calls in range(4):
            layer(QUERY, VALUE)
            log_p = np.log(tf.nn.softmax(QUERY @ VALUE.transpose(0, 2, 1)))
            width = 2.0**-calls
            exact = np.sum(-np.log(width) + 0.5 * (width**2 + log_p**2 - 1.0)) / 3
            # The KL is a mean over 16 samples. Each of their 30 entries adds a variance below log_p^2 width^2 + 1/2.
            error = np.sqrt((np.sum(log_p**2) * width**2 + 0.5 * log_p.size) / 16) / 3
            assert float(layer.losses[0]) == pytest.approx(exact, abs=float(5 * error))
            layer(QUERY, VALUE, training=True)

    def test_draws_without_a_gradient_raise_an_error(self):
        class Counted(DrawnLogNormal):
            def posterior(self, logits, keys):
                return tfd.Poisson(log_rate=logits)

        with pytest.raises(ValueError, match=r"need a gradient: .*Received: q=Poisson, p=LogNormal"):
            Attention(alignment=Counted(), prior="fixed")(QUERY, VALUE)


def test_a_custom_prior_needs_only_log_psi():
    @keras.saving.register_keras_serializable(package="tests")
    class Last(keras_vattn.Prior):
        """A prior whose Psi is largest at the last valid key."""

        def log_psi(self, key, keys):
            return keys.log_softmax(keys.per_entry(tf.cast(tf.range(tf.shape(key)[1]), "float32") + 0.0 * key[..., 0]))

    for alignment in STOCHASTIC:
        layer = Attention(alignment=alignment, prior=Last())
        layer(QUERY, VALUE, value_mask=MASK, training=True)
        assert np.isfinite(layer.losses[0])
        copy = Attention.from_config(layer.get_config())
        assert type(copy.prior) is Last


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GammaPrior(2.0, scale="paper"), "scale would .*GammaPrior.*Received: alpha=2.0, scale='paper'"),
        (lambda: GammaPrior(2.0, hidden_units=3), "hidden_units would .*Received: alpha=2.0, hidden_units=3"),
        (lambda: LogNormalPrior(0.0, num_heads=2, scale="paper"), "scale and num_heads .*Received: mean=0.0, scale="),
        (lambda: DirichletPrior(0.5, beta=2.0), "beta would .*Received: alpha=0.5, beta=2.0"),
        (lambda: DirichletPrior(beta=2.0, scale="paper"), "beta would .*Received: alpha=None, beta=2.0"),
        (lambda: Weibull(parameterization="raw", kl_of="weights"), "Received: kl_of='weights', parameterization='raw'"),
        (lambda: Weibull(kl_estimator="sampled", kl_of="weights"), "Received: kl_of='weights', kl_estimator='sampled'"),
        (lambda: LogNormal(parameterization="raw", kl_of="weights"), "parameterization would .*LogNormal"),
        (lambda: on_simplex(Weibull, GammaPrior(2.0, beta=3.0)), "beta would .*GammaPrior.*alpha=2.0, beta=3.0"),
        (lambda: on_simplex(Weibull, GammaPrior(beta=3.0, scale="paper")), "Received: alpha=None, beta=3.0"),
        (lambda: on_simplex(LogNormal, LogNormalPrior(1.0)), "mean would .*Received: sigma=1.0, mean=1.0"),
        (lambda: Attention(alignment="dirichlet", prior=GammaPrior(2.0, beta=3.0)), "beta would .*GammaPrior"),
    ],
)
def test_arguments_without_effect_raise_an_error(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def on_simplex(kind, prior):
    return Attention(alignment=kind(kl_of="weights"), prior=prior)


def test_a_dirichlet_prior_has_the_range_of_the_alignment():
    layer = Attention(alignment=Dirichlet(-2.0, 2.0), prior=DirichletPrior(1e4))
    layer(QUERY, VALUE)
    q, p = (x(1e4 * QUERY, VALUE).concentration for x in (layer.posterior_distribution, layer.prior_distribution))
    np.testing.assert_allclose(np.max(p), np.exp(2.0), rtol=1e-2)
    np.testing.assert_allclose(np.max(q), np.exp(2.0), rtol=1e-2)


@pytest.mark.parametrize("prior", ["contextual", keras_vattn.ContextualPrior()])
@pytest.mark.parametrize("kind", [LogNormal, keras_vattn.Weibull])
def test_the_divergence_of_weights_is_at_most_the_divergence_of_draws(kind, prior):
    """Compares the mean losses of 400 training calls. The tolerance is 4 standard errors."""

    def make(kl_of):
        layer_prior = prior if isinstance(prior, str) else type(prior).from_config(prior.get_config())
        layer = Attention(alignment=kind(2.0, kl_of=kl_of), prior=layer_prior, seed=1)
        layer(QUERY, VALUE, value_mask=MASK)
        return layer

    draws_layer, weights_layer = make("draws"), make("weights")
    weights_layer.set_weights(draws_layer.get_weights())
    draws_layer(QUERY, VALUE, value_mask=MASK)

    @tf.function
    def loss():
        weights_layer(QUERY, VALUE, value_mask=MASK, training=True)
        return weights_layer.losses[0]

    losses = np.array([loss() for _ in range(400)])
    assert losses.mean() < float(draws_layer.losses[0]) + 4 * losses.std() / 20
    assert weights_layer.estimates_divergence == (kind is keras_vattn.Weibull)
    for distribution in (weights_layer.posterior_distribution, weights_layer.prior_distribution):
        assert distribution(QUERY, VALUE, value_mask=MASK).on_simplex


def test_a_prior_of_the_weights_needs_their_divergence():
    with pytest.raises(ValueError, match=r'kl_of="weights".*Received: alignment=Weibull.*prior=DirichletPrior'):
        Attention(alignment="weibull", prior=DirichletPrior())(QUERY, VALUE)


@pytest.mark.parametrize(("distribution", "unread"), [("weibull", {"sigma": 9.0}), ("lognormal", {"k": 9.0})])
def test_the_parameter_of_the_other_distribution_raises_an_error(distribution, unread):
    with pytest.raises(ValueError, match=rf"\"{distribution}\" does not use .*Received: {next(iter(unread))}=9.0"):
        BayesianAttention(distribution=distribution, **unread)
