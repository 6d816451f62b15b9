"""Values and gradients of the estimators: every draw enumerated in float64, and 20,000 draws through the layers."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_vattn
from keras_vattn import LatentObjective, estimators

STEPS, SOURCE, VOCABULARY = 3, 5, 4
GENERATOR = np.random.default_rng(7)
PRIOR_LOGITS = GENERATOR.normal(size=(1, STEPS, SOURCE))
POSTERIOR_LOGITS = GENERATOR.normal(size=(1, STEPS, SOURCE), scale=1.5)
WORD_LOGITS = GENERATOR.normal(size=(1, STEPS, SOURCE, VOCABULARY), scale=1.5)
MEAN_LOGITS = GENERATOR.normal(size=(1, STEPS, VOCABULARY))
WORDS = GENERATOR.integers(0, VOCABULARY, size=(1, STEPS))
NAMES = ("prior", "posterior", "words")


def variables():
    return {name: tf.Variable(x) for name, x in zip(NAMES, (PRIOR_LOGITS, POSTERIOR_LOGITS, WORD_LOGITS))}


def parameters(given):
    """log p(y | z), log p(z) and log q(z) of all z, (1, T, S), float64."""
    words = tf.one_hot(WORDS, VOCABULARY, dtype=tf.float64)[:, :, None]
    return (
        tf.reduce_sum(tf.nn.log_softmax(given["words"]) * words, axis=-1),
        tf.nn.log_softmax(given["prior"]),
        tf.nn.log_softmax(given["posterior"]),
    )


def all_draws(values, num_samples):
    """values (1, T, S) at all S^K tuples of draws, (S^K, T, K)."""
    index = np.array(list(itertools.product(range(SOURCE), repeat=num_samples)))
    return tf.transpose(tf.gather(values[0], index, axis=1), (1, 0, 2))


def probability_of_draws(log_probability, num_samples):
    return tf.exp(tf.reduce_sum(all_draws(log_probability, num_samples), axis=-1))  # (S^K, T)


def gradients(function):
    """The gradients of the sum over the steps of a function of the parameters, a dictionary of arrays."""
    given = variables()
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(function(*parameters(given)))
    found = tape.gradient(value, given, unconnected_gradients="zero")
    return {name: tf.convert_to_tensor(x).numpy() for name, x in found.items()}


def expected_gradients(estimator, num_samples, source="posterior"):
    """The mean gradient of an estimator over all its draws."""

    def function(*values):
        drawn_from = values[1 if source == "prior" else 2]
        probability = tf.stop_gradient(probability_of_draws(drawn_from, num_samples))
        return probability * estimator(*(all_draws(x, num_samples) for x in values))

    return gradients(function)


def gradients_of_expectation(value, num_samples, source="posterior"):
    """The gradient of the mean of a value over all its draws, the probabilities of the draws differentiated too."""

    def function(*values):
        drawn_from = values[1 if source == "prior" else 2]
        return probability_of_draws(drawn_from, num_samples) * value(*(all_draws(x, num_samples) for x in values))

    return gradients(function)


def agree(first, second, atol=1e-10):
    return all(np.allclose(first[name], second[name], rtol=0, atol=atol) for name in NAMES)


def soft_baseline(_):
    return tf.constant(np.log([[[0.2], [0.5], [0.1]]]))


def leave_one_out_mean(log_likelihood):
    total = tf.reduce_sum(log_likelihood, axis=-1, keepdims=True)
    return (total - log_likelihood) / max(log_likelihood.shape[-1] - 1, 1)


BASELINES = {"none": lambda _: 0.0, "soft": soft_baseline, "leave-one-out": leave_one_out_mean}


def log_mean_weight(log_likelihood, log_prior, log_posterior):
    log_weights = log_likelihood + log_prior - log_posterior
    return tf.reduce_logsumexp(log_weights, axis=-1) - np.log(log_weights.shape[-1])


@pytest.mark.parametrize(
    ("baseline", "num_samples"), [("none", 1), ("none", 2), ("soft", 1), ("soft", 2), ("leave-one-out", 2)]
)
@pytest.mark.parametrize("source", ["posterior", "prior"])
def test_the_score_function_gradient_is_that_of_the_enumerated_expectation(source, baseline, num_samples):
    """elbo/sample from q, hard/sample from p."""

    def estimator(log_likelihood, log_prior, log_posterior):
        probability = log_prior if source == "prior" else log_posterior
        return estimators.score_function(log_likelihood, probability, BASELINES[baseline](log_likelihood))

    enumerated = gradients(lambda l, p, q: estimators.expectation(l, p if source == "prior" else q))  # noqa: E741
    assert agree(expected_gradients(estimator, num_samples, source), enumerated)


@pytest.mark.parametrize("num_samples", [1, 2, 3])
def test_the_importance_weighted_gradient_is_that_of_its_expectation(num_samples):
    found = expected_gradients(estimators.importance_weighted, num_samples)
    assert agree(found, gradients_of_expectation(log_mean_weight, num_samples))
    if num_samples == 1:

        def elbo(log_likelihood, log_prior, log_posterior):
            return tf.reduce_sum(tf.exp(log_posterior) * (log_likelihood + log_prior - log_posterior), axis=-1)

        assert agree(found, gradients(elbo))


@pytest.mark.parametrize("num_samples", [2, 3])
def test_the_wake_sleep_gradient_is_its_definition(num_samples):
    """E_q sum_k v_k (d log p(y | z_k) + d log p(z_k) + d log q(z_k)), written out in NumPy (Ba et al. 2015)."""
    log_likelihood, log_prior, log_posterior = (x.numpy()[0] for x in parameters(variables()))
    prior, posterior = np.exp(log_prior), np.exp(log_posterior)
    word = np.exp(WORD_LOGITS[0] - np.log(np.exp(WORD_LOGITS[0]).sum(-1, keepdims=True)))
    expected = {name: np.zeros_like(x[0]) for name, x in zip(NAMES, (PRIOR_LOGITS, POSTERIOR_LOGITS, WORD_LOGITS))}
    for step in range(STEPS):
        for draws in itertools.product(range(SOURCE), repeat=num_samples):
            draws = np.array(draws)
            weights = np.exp(log_likelihood[step] + log_prior[step] - log_posterior[step])[draws]
            for share, z in zip(weights / weights.sum(), draws):
                amount = posterior[step, draws].prod() * share
                expected["prior"][step] += amount * (np.eye(SOURCE)[z] - prior[step])
                expected["posterior"][step] += amount * (np.eye(SOURCE)[z] - posterior[step])
                expected["words"][step, z] += amount * (np.eye(VOCABULARY)[WORDS[0, step]] - word[step, z])
    found = expected_gradients(estimators.wake_sleep, num_samples)
    assert agree(found, {name: x[None] for name, x in expected.items()})


def reward_not_stopped(log_likelihood, log_probability, baseline):
    return tf.reduce_mean(log_likelihood + (log_likelihood - baseline) * log_probability, axis=-1)


def score_term_missing(log_likelihood, log_probability, baseline):
    return tf.reduce_mean(log_likelihood, axis=-1)


def baseline_under_q_with_gradient(log_likelihood, log_probability, baseline):
    # What the draws' distribution expects, differentiated.
    expected = tf.reduce_logsumexp(log_probability + log_likelihood, axis=-1, keepdims=True)
    reward = tf.stop_gradient(log_likelihood) - expected
    return tf.reduce_mean(log_likelihood + reward * log_probability, axis=-1)


def baseline_of_the_own_draw(log_likelihood, log_probability, baseline):
    score = log_probability - tf.stop_gradient(log_probability)
    return tf.reduce_mean(log_likelihood + tf.stop_gradient(0.5 * log_likelihood) * score, axis=-1)


def renormalised_crossentropy(log_likelihood, log_probability, baseline):
    """Softmax cross-entropy over the scored values: the score terms of all words meet in its normaliser."""
    reward = tf.stop_gradient(log_likelihood - baseline)
    scored = log_likelihood + reward * (log_probability - tf.stop_gradient(log_probability))
    others = tf.math.log1p(-tf.exp(tf.stop_gradient(log_likelihood)))
    rest = others + (tf.stop_gradient(others) - baseline) * (log_probability - tf.stop_gradient(log_probability))
    return tf.reduce_mean(scored - tf.reduce_logsumexp(tf.stack([scored, rest]), axis=0), axis=-1)


WRONG = [
    reward_not_stopped,
    score_term_missing,
    baseline_under_q_with_gradient,
    baseline_of_the_own_draw,
    renormalised_crossentropy,
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda x: x.__name__)
@pytest.mark.parametrize("source", ["posterior", "prior"])
def test_wrong_score_functions_fail_the_same_check(wrong, source):
    def estimator(log_likelihood, log_prior, log_posterior):
        return wrong(log_likelihood, log_prior if source == "prior" else log_posterior, 0.0)

    enumerated = gradients(lambda l, p, q: estimators.expectation(l, p if source == "prior" else q))  # noqa: E741
    assert not agree(expected_gradients(estimator, 1, source), enumerated, atol=1e-3)


def test_wrong_importance_weighted_estimators_fail_the_same_check():
    truth = gradients_of_expectation(log_mean_weight, 2)

    def own_draw_in_the_baseline(log_likelihood, log_prior, log_posterior):
        value = log_mean_weight(log_likelihood, log_prior, log_posterior)
        baseline = tf.reduce_mean(log_likelihood + log_prior - log_posterior, axis=-1)
        score = tf.reduce_sum(log_posterior - tf.stop_gradient(log_posterior), axis=-1)
        return value + tf.stop_gradient(value - baseline) * score

    def weights_without_q(log_likelihood, log_prior, log_posterior):
        return estimators.importance_weighted(log_likelihood, log_prior, tf.stop_gradient(log_posterior))

    for wrong in (log_mean_weight, own_draw_in_the_baseline, weights_without_q):
        assert not agree(expected_gradients(wrong, 2), truth, atol=1e-3)


def test_wrong_wake_sleep_estimators_fail_the_same_check():
    truth = expected_gradients(estimators.wake_sleep, 2)

    def weights_not_stopped(log_likelihood, log_prior, log_posterior):
        shares = tf.nn.softmax(log_likelihood + log_prior - log_posterior)
        return tf.reduce_sum(shares * (log_likelihood + log_prior + log_posterior), axis=-1)

    def equal_weights(*values):
        return tf.reduce_mean(sum(values), axis=-1)

    for wrong in (weights_not_stopped, equal_weights, estimators.importance_weighted):
        assert not agree(expected_gradients(wrong, 2), truth, atol=1e-3)


def test_the_leave_one_out_baseline_does_not_depend_on_its_own_weight():
    log_weights = tf.constant(GENERATOR.normal(size=(1, 2, 3)))
    moved = log_weights + tf.constant([0.0, 5.0, 0.0], tf.float64)
    before, after = estimators.leave_one_out(log_weights).numpy(), estimators.leave_one_out(moved).numpy()
    np.testing.assert_allclose(before[..., 1], after[..., 1])
    assert (np.abs(before[..., [0, 2]] - after[..., [0, 2]]) > 0.1).all()
    w = np.exp(log_weights.numpy()[0, 0])
    expected = [np.log((w[1] + w[2] + np.sqrt(w[1] * w[2])) / 3)]
    np.testing.assert_allclose(before[0, 0, :1], expected)


def expected_values(value, num_samples):
    values = parameters(variables())
    drawn = value(*(all_draws(x, num_samples) for x in values))
    return tf.reduce_sum(probability_of_draws(values[2], num_samples) * drawn, axis=0).numpy()


def exact_marginal():
    log_likelihood, log_prior, _ = parameters(variables())
    return estimators.marginal(log_likelihood, log_prior).numpy()[0]


def elbo():
    log_likelihood, log_prior, log_posterior = parameters(variables())
    divergence = tf.reduce_sum(tf.exp(log_posterior) * (log_posterior - log_prior), axis=-1)
    return (estimators.expectation(log_likelihood, log_posterior) - divergence).numpy()[0]


def test_in_expectation_exact_is_over_importance_weighted_is_over_elbo():
    bounds = [expected_values(estimators.importance_weighted, count) for count in (1, 2, 3, 4)]
    np.testing.assert_allclose(bounds[0], elbo())
    for smaller, larger in zip(bounds, [*bounds[1:], exact_marginal()]):
        assert (larger > smaller + 1e-3).all()
    np.testing.assert_allclose(expected_values(estimators.wake_sleep, 3), bounds[2])


def test_on_the_same_draws_the_log_of_the_mean_is_over_the_mean_of_the_logs():
    log_likelihood, log_prior, log_posterior = (all_draws(x, 3) for x in parameters(variables()))
    bound = estimators.importance_weighted(log_likelihood, log_prior, log_posterior).numpy()
    mean_of_logs = tf.reduce_mean(log_likelihood + log_prior - log_posterior, axis=-1).numpy()
    assert (bound >= mean_of_logs - 1e-12).all()
    assert (bound > mean_of_logs + 1e-3).any()


def test_at_the_true_posterior_all_bounds_are_exact():
    log_likelihood, log_prior, _ = parameters(variables())
    posterior = tf.nn.log_softmax(log_likelihood + log_prior)
    divergence = tf.reduce_sum(tf.exp(posterior) * (posterior - log_prior), axis=-1)
    bound = estimators.expectation(log_likelihood, posterior) - divergence
    np.testing.assert_allclose(bound[0], exact_marginal())
    draws = [all_draws(x, 2) for x in (log_likelihood, log_prior, posterior)]
    every_draw = np.broadcast_to(exact_marginal(), (SOURCE**2, STEPS))
    np.testing.assert_allclose(estimators.importance_weighted(*draws), every_draw)


def test_the_elbo_at_q_equal_to_p_is_the_hard_bound():
    log_likelihood, log_prior, _ = parameters(variables())
    hard = tf.reduce_sum(tf.exp(log_prior) * log_likelihood, axis=-1)
    np.testing.assert_allclose(estimators.expectation(log_likelihood, log_prior), hard)
    assert (estimators.expectation(log_likelihood, log_prior).numpy()[0] < exact_marginal()).all()


# Through the layers: the emission of this file is a matrix product, tanh and a softmax over words.


def emission(candidates, given):
    hidden = ops.tanh(candidates @ given["hidden_kernel"])
    return given["words"](hidden, given["targets"])


def through_layers(objective, batch, seed=0, training=True):
    """Gradients of the bound by the logits of p and q and by the values, one for each of `batch` equal examples."""
    generator = np.random.default_rng(3)
    logits = tf.constant(np.tile(PRIOR_LOGITS, (batch, 1, 1)), tf.float32)
    posterior_logits = tf.constant(np.tile(POSTERIOR_LOGITS, (batch, 1, 1)), tf.float32)
    kernel = tf.constant(generator.normal(size=(SOURCE, 6), scale=2.0), tf.float32)
    words = keras_vattn.TokenLogLikelihood(VOCABULARY, chunk_size=2**20)
    words.build((None, None, None, 6))
    words.kernel.assign(generator.normal(size=(6, VOCABULARY), scale=2.0))
    attention = keras_vattn.CategoricalAttention(objective=objective, kl_weight=0.0, seed=seed)
    value = tf.tile(tf.eye(SOURCE)[None], (batch, 1, 1))
    given = {"hidden_kernel": kernel, "words": words, "targets": tf.constant(np.tile(WORDS, (batch, 1)))}
    with tf.GradientTape() as tape:
        tape.watch([logits, posterior_logits, value])
        latent = attention(
            tf.zeros((batch, STEPS, 2)),
            value,
            logits=logits,
            posterior_logits=posterior_logits if attention.objective.uses_posterior else None,
            training=training,
        )
        log_likelihood = emission(latent["candidates"], given)
        bound = keras_vattn.LatentLogLikelihood(objective)(
            log_likelihood, latent["log_prior"], latent.get("log_posterior"), training=training
        )
        total = tf.reduce_sum(bound)
    return [x.numpy() for x in tape.gradient(total, [logits, posterior_logits, value], unconnected_gradients="zero")]


def within_four_standard_errors(samples, truth):
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return bool((np.abs(samples.mean(axis=0) - truth) <= 4 * error + 1e-6).all())


NUM_DRAWS = 20_000
SAMPLED = {
    "elbo-soft": (LatentObjective("elbo/sample"), "elbo/enumerate"),
    "elbo-none": (LatentObjective("elbo/sample", baseline=None), "elbo/enumerate"),
    "elbo-moving-average": (LatentObjective("elbo/sample", baseline="moving_average"), "elbo/enumerate"),
    "elbo-two-draws": (LatentObjective("elbo/sample", num_samples=2, baseline=leave_one_out_mean), "elbo/enumerate"),
    "hard-soft": (LatentObjective("hard/sample"), "hard/enumerate"),
}


@pytest.fixture(scope="module")
def enumerated():
    """The gradients without draws."""
    return {pair: [x[0] for x in through_layers(pair, 1)] for pair in ("elbo/enumerate", "hard/enumerate")}


@pytest.mark.parametrize("name", list(SAMPLED))
def test_twenty_thousand_draws_through_the_layers(name, enumerated):
    objective, pair = SAMPLED[name]
    samples = through_layers(objective, NUM_DRAWS)
    for some, exact in zip(samples, enumerated[pair], strict=True):
        assert within_four_standard_errors(some, exact)
    drawn_from = samples[0 if pair.startswith("hard") else 1]
    assert drawn_from.std(axis=0).min() > 0


@pytest.mark.parametrize("wrong", WRONG, ids=lambda x: x.__name__)
def test_wrong_estimators_through_the_layers_fail_the_same_check(wrong, enumerated, monkeypatch):
    monkeypatch.setattr(estimators, "score_function", wrong)
    samples = through_layers(LatentObjective("elbo/sample", baseline=None), NUM_DRAWS)
    passed = [within_four_standard_errors(*pair) for pair in zip(samples, enumerated["elbo/enumerate"], strict=True)]
    assert not all(passed)


def test_importance_weighted_draws_through_the_layers_are_those_of_the_formula():
    """The mean over draws against all draws enumerated with the layers' own likelihoods."""
    for name in ("importance_weighted", "wake_sleep"):
        samples = through_layers(LatentObjective(name, num_samples=2), NUM_DRAWS)
        for some, exact in zip(samples, _enumerated_by_formula(getattr(estimators, name)), strict=True):
            assert within_four_standard_errors(some, exact)


def plain_log_words(contexts):
    """log p of the words of the target given contexts (..., S), by the emission of `through_layers`, in float64."""
    generator = np.random.default_rng(3)
    kernel, output = generator.normal(size=(SOURCE, 6), scale=2.0), generator.normal(size=(6, VOCABULARY), scale=2.0)
    return tf.nn.log_softmax(tf.tanh(contexts @ kernel) @ output)


def _enumerated_by_formula(estimator):
    watched = [tf.constant(PRIOR_LOGITS), tf.constant(POSTERIOR_LOGITS), tf.eye(SOURCE, dtype=tf.float64)]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        log_likelihood = tf.transpose(tf.gather(plain_log_words(watched[2]), WORDS[0], axis=1))[None]  # (1, T, S)
        prior, posterior = (tf.nn.log_softmax(x) for x in watched[:2])
        probability = tf.stop_gradient(probability_of_draws(posterior, 2))
        value = estimator(*(all_draws(x, 2) for x in (log_likelihood, prior, posterior)))
        total = tf.reduce_sum(probability * value)
    by_prior, by_posterior, by_value = tape.gradient(total, watched)
    return [by_prior[0].numpy(), by_posterior[0].numpy(), by_value.numpy()]


def test_the_gumbel_gradient_is_that_of_its_definition(monkeypatch):
    """candidate = sum_s softmax((log q + g) / tau)_s x_s: value and gradient for a given g, in plain TensorFlow."""
    noise = np.random.default_rng(5).uniform(0.05, 0.95, size=(1, STEPS, SOURCE)).astype("float32")
    monkeypatch.setattr(keras_vattn.random, "uniform", lambda shape, seed: tf.constant(noise))
    found = through_layers(LatentObjective("elbo/gumbel", tau=0.7), 1)[1]
    logits = tf.constant(POSTERIOR_LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        gumbel = -tf.math.log(-tf.math.log(tf.cast(noise, tf.float64)))
        weights = tf.nn.softmax((tf.nn.log_softmax(logits) + gumbel) / 0.7)
        total = tf.reduce_sum(tf.gather(plain_log_words(weights), WORDS, batch_dims=2))
    np.testing.assert_allclose(found, tape.gradient(total, logits), rtol=1e-3, atol=1e-5)


def test_k_max():
    """Renormalised K-max is exact at K = S, and not monotone before."""
    prior = tf.constant([[[0.6, 0.3, 0.1]]])
    log_likelihood = ops.log(tf.constant([[[0.5, 0.1, 0.9]]]))
    values = []
    for top_k in (1, 2, 3, 7):
        objective = LatentObjective("marginal", "top_k", top_k=top_k)
        attention = keras_vattn.CategoricalAttention(objective=objective)
        latent = attention(tf.zeros((1, 1, 2)), tf.eye(3)[None], logits=ops.log(prior))
        kept = ops.log(latent["candidates"] @ tf.exp(log_likelihood[0, 0])[:, None])[..., 0]
        bound = keras_vattn.LatentLogLikelihood(objective)(kept, latent["log_prior"])
        values.append(float(ops.exp(bound)[0, 0]))
    np.testing.assert_allclose(values, [0.5, 1.1 / 3, 0.42, 0.42], rtol=1e-5)


def proposition_1(inputs, bias, prior):
    """|p(y) - p_soft(y)| through the layers, and c, the largest curvature of p(y | z) over a grid of the simplex."""
    num_keys, num_words = inputs.shape
    words = keras_vattn.TokenLogLikelihood(num_words, kernel_initializer="identity")
    words.build((1, 1, None, num_words))
    words.bias.assign(bias)
    logits, values_of_keys = np.log(prior)[None, None].astype("float32"), inputs[None].astype("float32")
    differences = []
    for y in range(num_words):
        values = []
        for pair in ("marginal", "soft"):
            attention = keras_vattn.CategoricalAttention(objective=pair)
            latent = attention(tf.zeros((1, 1, 2)), values_of_keys, logits=logits)
            log_likelihood = words(latent["candidates"], tf.fill((1, 1), y))
            bound = keras_vattn.LatentLogLikelihood(pair)(log_likelihood, latent["log_prior"], latent["log_posterior"])
            values.append(float(ops.exp(bound)[0, 0]))
        differences.append(abs(values[0] - values[1]))
    steps = np.linspace(0, 1, 21)
    grid = [z for z in itertools.product(steps, repeat=num_keys - 1) if sum(z) <= 1 + 1e-9]
    z = tf.constant([[*point, 1 - sum(point)] for point in grid], tf.float64)
    curvature = 0.0
    for y in range(num_words):
        with tf.GradientTape() as outer:
            outer.watch(z)
            with tf.GradientTape() as inner:
                inner.watch(z)
                value = tf.nn.softmax(z @ inputs + bias)[:, y]
            gradient = inner.gradient(value, z)
        hessian = outer.batch_jacobian(gradient, z)
        curvature = max(curvature, np.linalg.norm(hessian.numpy(), ord=2, axis=(1, 2)).max())
    return max(differences), curvature


def test_proposition_1():
    """|p - p_soft| <= c always, and within a factor of 10 of it where the curvature is even."""
    generator = np.random.default_rng(0)
    for scale in (0.3, 1.0, 3.0):
        for _ in range(3):
            inputs, bias = generator.normal(size=(3, 3), scale=scale), generator.normal(size=3)
            difference, curvature = proposition_1(inputs, bias, generator.dirichlet(np.ones(3)))
            assert difference <= curvature
    inputs = np.array([[0.5, 0.0], [-0.5, 0.0]])
    difference, curvature = proposition_1(inputs, np.array([-1.3, 0.0]), np.array([0.5, 0.5]))
    assert curvature / 10 <= difference <= curvature


def test_without_entropy_soft_attention_is_the_marginal():
    """Where p(z) is certain, E[f(z)] = f(E[z]) (section 2.2)."""
    inputs = np.random.default_rng(1).normal(size=(3, 3))
    difference, _ = proposition_1(inputs, np.zeros(3), np.array([1.0, 1e-30, 1e-30]))
    assert difference < 1e-6


def test_rows_without_a_valid_key_have_the_likelihood_of_the_empty_context():
    log_zero = tf.fill((1, 1, 3), np.float64(keras_vattn.categorical.LOG_ZERO))
    log_likelihood = tf.fill((1, 1, 3), tf.constant(-2.5, tf.float64))
    for value in (
        estimators.marginal(log_likelihood, log_zero),
        estimators.expectation(log_likelihood, log_zero),
        estimators.score_function(log_likelihood, log_zero, -2.5),
        estimators.importance_weighted(log_likelihood, log_zero, log_zero),
        estimators.wake_sleep(log_likelihood, log_zero, log_zero),
    ):
        np.testing.assert_allclose(value, [[-2.5]])
