import json

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras import ops
from latent_cases import BATCH, OBJECTIVES, SOURCE, STEPS, WIDTH, arrays, emit, layers, model, run, tensors
from scipy.special import log_softmax, softmax
from tensorflow_probability.python.distributions import kl_divergence

import keras_vattn
from keras_vattn import CategoricalAttention, LatentObjective, LinearAnnealing, NegativeBound

every_objective = pytest.mark.parametrize("objective", list(OBJECTIVES.values()), ids=list(OBJECTIVES))
INPUTS = arrays()
MASKED = arrays(masked=True)
COUNTS = {  # candidates, and log probabilities, in training and at evaluation
    "soft": (1, 1, 1, 1),
    "marginal": (SOURCE,) * 4,
    "top_k": (2, 2, 2, 2),
    "elbo-sample": (2, 1, SOURCE, SOURCE),
    "elbo-sample-3": (3, 3, SOURCE, SOURCE),
    "elbo-moving-average": (1, 1, SOURCE, SOURCE),
    "elbo-enumerate": (SOURCE,) * 4,
    "elbo-gumbel": (1, 1, SOURCE, SOURCE),
    "hard-sample": (2, 1, SOURCE, SOURCE),
    "hard-enumerate": (SOURCE,) * 4,
    "importance-weighted": (3, 3, SOURCE, SOURCE),
    "wake-sleep": (3, 3, SOURCE, SOURCE),
}


def call(layer, inputs=INPUTS, posterior=True, **options):
    logits = inputs["posterior_logits"] if posterior and layer.objective.uses_posterior else None
    return layer(
        inputs["query"], inputs["memory"], value_mask=inputs["memory_mask"], posterior_logits=logits, **options
    )


def valid_keys(inputs):
    return np.broadcast_to(inputs["memory_mask"][:, None], (BATCH, STEPS, SOURCE))


def kl(layer, inputs, **masks):
    options = {"value_mask": inputs["memory_mask"], "posterior_logits": inputs["posterior_logits"], **masks}
    posterior = layer.posterior_distribution(inputs["query"], inputs["memory"], **options)
    return kl_divergence(posterior, layer.prior_distribution(inputs["query"], inputs["memory"], **options)).numpy()


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_what_comes_out(name):
    layer = CategoricalAttention(objective=OBJECTIVES[name])
    for training, counts in ((True, COUNTS[name][:2]), (False, COUNTS[name][2:])):
        latent = call(layer, training=training)
        assert {key: tuple(x.shape) for key, x in latent.items()} == {
            "candidates": (BATCH, STEPS, counts[0], WIDTH),
            "log_prior": (BATCH, STEPS, counts[1]),
            "log_weights": (BATCH, STEPS, counts[0]),
            "log_posterior": (BATCH, STEPS, counts[1]),
        }
        # Whatever the candidates are, they mix to one prediction.
        np.testing.assert_allclose(ops.sum(ops.exp(latent["log_weights"]), axis=-1), 1.0, rtol=1e-5)
        at_evaluation = layer.objective.at_inference.objective == "elbo"
        assert len(layer.losses) == (layer.objective.objective == "elbo" if training else at_evaluation)


@every_objective
def test_a_prediction_has_no_posterior(objective):
    """Without posterior logits: the marginal over all keys, or over the most probable ones."""
    layer = CategoricalAttention(objective=objective)
    latent = call(layer, posterior=False)
    assert ("log_posterior" in latent) == (not objective.uses_posterior)
    if objective.uses_posterior:
        np.testing.assert_allclose(ops.logsumexp(latent["log_prior"], axis=-1), np.zeros((BATCH, STEPS)), atol=1e-6)
        assert layer.losses == []
        with pytest.raises(ValueError, match="Received: posterior_logits=None, training=True"):
            call(layer, posterior=False, training=True)


def test_what_a_draw_counts_in_a_prediction():
    """1/K for draws from p, p / q for draws from q, nothing for the baseline."""
    latent = call(CategoricalAttention(objective=LatentObjective("hard/sample", num_samples=4)), training=True)
    log_weights = latent["log_weights"].numpy()
    np.testing.assert_allclose(log_weights[..., :4], -np.log(4.0), rtol=1e-6)
    assert (log_weights[..., 4] == -1e30).all()
    latent = call(CategoricalAttention(objective=LatentObjective("wake_sleep", num_samples=4)), training=True)
    ratios = np.exp(latent["log_prior"].numpy() - latent["log_posterior"].numpy())
    np.testing.assert_allclose(np.exp(latent["log_weights"]), ratios / ratios.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("name", ["elbo-sample", "elbo-gumbel", "hard-sample", "importance-weighted", "wake-sleep"])
def test_a_prediction_model_draws_from_p(name):
    """Under `posterior_draws` without posterior logits q is p: the words of each draw are a distribution, draws differ,
    and their average is the marginal."""
    objective = OBJECTIVES[name]
    parts = layers(objective)
    inputs = {"query": keras.Input((None, WIDTH), name="query"), "memory": keras.Input((None, WIDTH), name="memory")}
    latent = parts["attention"](inputs["query"], parts["value"](inputs["memory"]))
    words = ops.exp(parts["words"](emit(parts, inputs, latent), log_weights=latent["log_weights"]))
    prediction = keras.Model(inputs, words)
    arrays = {name: INPUTS[name] for name in inputs}
    count = 2000 // objective.num_samples
    draws = keras_vattn.posterior_predictive(prediction, arrays, num_samples=count, seed=1)
    np.testing.assert_allclose(draws.sum(-1), 1.0, rtol=1e-4)
    assert (draws[0] != draws[1]).any()
    if name != "elbo-gumbel":
        exact = keras.Model(inputs, words).predict(arrays, verbose=0)
        error = draws.std(axis=0) / np.sqrt(count)
        assert (np.abs(draws.mean(axis=0) - exact) < 5 * error + 1e-6).all()
    with keras_vattn.posterior_draws(prediction, seed=2):
        latent = parts["attention"](INPUTS["query"], parts["value"](INPUTS["memory"]))
        log_likelihood = parts["words"](emit(parts, INPUTS, latent), INPUTS["targets"])
        assert parts["attention"].losses == []
        with keras_vattn.posterior_draws(parts["bound"]):
            value = parts["bound"](log_likelihood, latent["log_prior"])
    likelihoods = log_likelihood.numpy()
    takes_log_mean = name in ("importance-weighted", "wake-sleep")
    expected = np.log(np.exp(likelihoods).mean(-1)) if takes_log_mean else likelihoods.mean(-1)
    np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_scores_on_request():
    layer = CategoricalAttention(objective="elbo/sample")
    latent = call(layer, MASKED, return_attention_scores=True)
    options = {"value_mask": MASKED["memory_mask"], "posterior_logits": MASKED["posterior_logits"]}
    for name, distribution in (
        ("weights", layer.prior_distribution(MASKED["query"], MASKED["memory"], **options)),
        ("posterior_weights", layer.posterior_distribution(MASKED["query"], MASKED["memory"], **options)),
    ):
        found, valid = latent[name].numpy(), valid_keys(MASKED)
        assert (found[~valid] == 0).all()
        np.testing.assert_allclose(found[valid], distribution.probs_parameter().numpy()[valid], rtol=1e-5)
    assert "posterior_weights" not in call(layer, posterior=False, return_attention_scores=True)
    symbolic = layer(keras.Input((3, WIDTH)), keras.Input((SOURCE, WIDTH)), return_attention_scores=True)
    assert symbolic["weights"].shape == (None, 3, SOURCE)


def test_k_max_at_evaluation():
    """`top_k` makes the prediction K-max, whatever the training."""
    for objective in (LatentObjective("elbo", top_k=3), LatentObjective("marginal", top_k=3)):
        latent = call(CategoricalAttention(objective=objective), posterior=False)
        assert latent["candidates"].shape[2] == 3
    latent = call(CategoricalAttention(objective=LatentObjective("soft", inference="marginal/top_k", top_k=2)))
    assert latent["candidates"].shape[2] == 2


def test_probabilities_and_candidates():
    logits = np.einsum("btd,bsd->bts", MASKED["query"], MASKED["memory"])
    valid = valid_keys(MASKED)
    log_prior = log_softmax(np.where(valid, logits, -np.inf).astype("float64")[[0, 1, 3]], axis=-1)
    latent = call(CategoricalAttention(objective="elbo/enumerate"), MASKED)
    found = latent["log_prior"].numpy()
    np.testing.assert_allclose(found[[0, 1, 3]][valid[[0, 1, 3]]], log_prior[valid[[0, 1, 3]]], rtol=1e-5, atol=1e-5)
    for name in ("log_prior", "log_posterior"):
        assert latent[name].dtype == tf.float32
        assert (np.exp(latent[name].numpy())[~valid] == 0).all()
        assert np.isfinite(latent[name]).all()
    candidates = latent["candidates"].numpy()
    assert (candidates[~valid] == 0).all()
    np.testing.assert_array_equal(candidates[0, 1], MASKED["memory"][0])
    soft = call(CategoricalAttention(objective="soft"), MASKED)["candidates"][:, :, 0]
    attention = keras_vattn.DeterministicAttention()
    expected = attention(MASKED["query"], MASKED["memory"], value_mask=MASKED["memory_mask"])
    np.testing.assert_allclose(soft, expected, rtol=1e-5, atol=1e-6)


def test_the_soft_baseline_is_under_p():
    latent = call(CategoricalAttention(objective="elbo/sample"), MASKED, training=True)
    soft = call(CategoricalAttention(objective="soft"), MASKED)
    np.testing.assert_allclose(latent["candidates"][:, :, -1:], soft["candidates"], rtol=1e-5, atol=1e-6)


def test_k_max_keeps_the_most_probable_keys():
    latent = call(CategoricalAttention(objective=LatentObjective("marginal", "top_k", top_k=2)), MASKED)
    logits = np.einsum("btd,bsd->bts", MASKED["query"], MASKED["memory"])
    best = np.argsort(-logits[0, 0])[:2]
    np.testing.assert_allclose(latent["candidates"][0, 0], MASKED["memory"][0][best], rtol=1e-6)
    np.testing.assert_allclose(ops.exp(latent["log_prior"])[0, 0], softmax(logits[0, 0][best]), rtol=1e-5)
    # One valid key: the other place is empty.
    np.testing.assert_allclose(ops.exp(latent["log_prior"])[3], np.tile([1.0, 0.0], (STEPS, 1)))
    assert (latent["candidates"].numpy()[3, :, 1] == 0).all()


def draws_of(latent, count):
    """Which key each draw is, from candidates that are one-hot."""
    candidates = latent["candidates"].numpy()[:, :, :count]
    assert (candidates.sum(-1) == 1).all() and set(np.unique(candidates)) == {0.0, 1.0}
    return candidates.argmax(-1)


def many(objective, batch=20_000, seed=3, training=True):
    """Draws for `batch` equal examples of one-hot values, and softmax of the logits drawn from."""
    generator = np.random.default_rng(0)
    logits, posterior = generator.normal(size=(2, 1, STEPS, SOURCE)).astype("float32")
    layer = CategoricalAttention(objective=objective, seed=seed)
    value = tf.tile(tf.eye(SOURCE)[None], (batch, 1, 1))
    options = {"posterior_logits": np.tile(posterior, (batch, 1, 1))} if layer.objective.uses_posterior else {}
    latent = layer(
        tf.zeros((batch, STEPS, 2)), value, logits=np.tile(logits, (batch, 1, 1)), training=training, **options
    )
    return latent, softmax(logits[0], -1), softmax(posterior[0], -1)


@pytest.mark.parametrize("objective", ["elbo/sample", "hard/sample", "importance_weighted", "wake_sleep"])
def test_draws(objective):
    """Frequencies within 4.5 standard errors of q (hard: of p); the two draws of a query are independent."""
    objective = LatentObjective(objective, num_samples=2)
    latent, prior, posterior = many(objective)
    probability = prior if objective.objective == "hard" else posterior
    draws = draws_of(latent, 2)
    count = len(draws)
    for k in range(2):
        frequency = np.stack([(draws[..., k] == s).mean(0) for s in range(SOURCE)], axis=-1)
        error = np.sqrt(probability * (1 - probability) / count)
        assert (np.abs(frequency - probability) < 4.5 * error).all()
    same = (draws[..., 0] == draws[..., 1]).mean(0)
    expected = (probability**2).sum(-1)
    assert (np.abs(same - expected) < 4.5 * np.sqrt(expected * (1 - expected) / count)).all()
    steps = (draws[:, 0, 0] == draws[:, 1, 0]).mean()
    expected = (probability[0] * probability[1]).sum()
    assert abs(steps - expected) < 4.5 * np.sqrt(expected * (1 - expected) / count)
    for name, exact in (("log_prior", prior), ("log_posterior", probability)):
        at_draws = np.take_along_axis(np.log(np.broadcast_to(exact, (count, STEPS, SOURCE))), draws, axis=-1)
        np.testing.assert_allclose(latent[name], at_draws, rtol=1e-4, atol=1e-5)


def test_the_gumbel_candidate():
    """For a small tau it is a draw from q; its weights are on the simplex for any."""
    latent, _, posterior = many(LatentObjective("elbo/gumbel", tau=1e-3))
    weights = latent["candidates"].numpy()[:, :, 0]
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
    assert (weights.max(-1) > 0.99).mean() > 0.98
    error = np.sqrt(posterior * (1 - posterior) / len(weights))
    assert (np.abs(weights.mean(0) - posterior) < 4.5 * error).all()
    smooth = many(LatentObjective("elbo/gumbel", tau=5.0))[0]["candidates"].numpy()
    assert smooth.max() < 0.9


def test_seeds():
    first, same, other = (many("elbo/sample", 50, seed)[0]["candidates"].numpy() for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()
    layer = CategoricalAttention(objective="elbo/sample", seed=1)
    one, two = (call(layer, training=True)["candidates"].numpy() for _ in range(2))
    assert (one != two).any()


@every_objective
def test_inference_has_no_noise(objective):
    layer = CategoricalAttention(objective=objective)
    first, second = call(layer), call(layer, training=False)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_inference_that_draws():
    """The importance-weighted bound, asked for at evaluation, draws wherever it is evaluated."""
    layer = CategoricalAttention(
        objective=LatentObjective("elbo", num_samples=4, inference="importance_weighted/sample")
    )
    first, second = call(layer), call(layer)
    assert first["candidates"].shape[2] == 4
    assert (first["candidates"].numpy() != second["candidates"].numpy()).any()
    assert layer.is_stochastic


def test_posterior_draws():
    parts = layers(OBJECTIVES["elbo-sample"])
    inputs = tensors(INPUTS)
    quiet, _ = run(parts, inputs)
    network = model(OBJECTIVES["elbo-sample"])
    with keras_vattn.posterior_draws(network, seed=1):
        drawn, again = network(inputs), network(inputs)
        assert network.get_layer("attention").draws is not None
    np.testing.assert_array_equal(drawn, again)
    assert (drawn.numpy() != network(inputs).numpy()).any()
    with keras_vattn.posterior_draws(network, seed=2):
        assert (network(inputs).numpy() != drawn.numpy()).any()
    assert quiet.shape == drawn.shape
    draws = keras_vattn.posterior_predictive(network, INPUTS, num_samples=3, seed=1)
    assert draws.shape == (3, BATCH, STEPS)
    assert (draws[0] != draws[1]).any()
    with pytest.raises(ValueError, match="stochastic layer"):
        keras_vattn.posterior_draws(model(OBJECTIVES["marginal"])).__enter__()


@pytest.mark.parametrize("kl_reduction", ["sum", "query_mean", "mean"])
def test_divergence(kl_reduction):
    """Against TensorFlow Probability, over valid queries and keys, in training and at evaluation."""
    layer = CategoricalAttention(objective="elbo/sample", kl_weight=0.5, kl_reduction=kl_reduction)
    query_mask = np.arange(STEPS) < np.array([3, 2, 3, 0])[:, None]
    call(layer, MASKED)
    valid = query_mask & MASKED["memory_mask"].any(-1, keepdims=True)
    total = kl(layer, MASKED)[valid].sum()
    entries = (valid[..., None] & valid_keys(MASKED)).sum()
    expected = 0.5 * total / {"sum": BATCH, "query_mean": valid.sum(), "mean": entries}[kl_reduction]
    for training in (True, False):
        call(layer, MASKED, query_mask=query_mask, training=training)
        assert layer.losses[0].dtype == tf.float32
        np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)


def test_the_divergence_is_never_negative():
    layer = CategoricalAttention(objective="elbo/enumerate")
    generator = np.random.default_rng(0)
    for scale in (0.0, 1e-4, 1e-3, 1.0):
        logits = generator.normal(size=(500, 1, SOURCE)).astype("float32")
        moved = (logits + scale * generator.normal(size=logits.shape)).astype("float32")
        value = np.zeros((500, SOURCE, 1), "float32")
        layer(np.zeros((500, 1, 1), "float32"), value, logits=logits, posterior_logits=moved)
        assert float(layer.losses[0]) >= 0.0
        assert scale or float(layer.losses[0]) == 0.0


def test_detach_prior():
    """The KL moves both q and p, or with `detach_prior` q alone."""
    for detach in (False, True):
        layer = CategoricalAttention(objective=LatentObjective("elbo/enumerate", detach_prior=detach))
        inputs = tensors(INPUTS)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            call(layer, inputs)
            divergence = layer.losses[0]
        by_query, by_logits = tape.gradient(divergence, [inputs["query"], inputs["posterior_logits"]])
        assert (by_query is None) == detach
        assert np.abs(by_logits).max() > 0


def test_annealing():
    layer = CategoricalAttention(objective="elbo/sample", kl_annealing=LinearAnnealing(4))
    call(layer)
    full = kl(layer, INPUTS).sum() / BATCH
    for step in range(6):
        call(layer, training=True)
        assert float(layer.losses[0]) == pytest.approx(min(step / 4, 1.0) * full, rel=1e-5, abs=1e-7)


def value_and_gradients(objective, inputs, seed=1, training=True):
    parts = layers(objective, seed)
    run(parts, INPUTS)
    state = np.random.default_rng(0)
    for name in ("attention", "value", "query", "words"):
        weights = parts[name].trainable_weights
        for weight in weights:
            weight.assign(state.normal(size=weight.shape))
    inputs = tensors(inputs)
    watched = {name: x for name, x in inputs.items() if x.dtype.is_floating}
    with tf.GradientTape() as tape:
        tape.watch(list(watched.values()))
        bound, latent = run(parts, inputs, training=training)
        loss = NegativeBound(ignore_class=0)(inputs["targets"], bound) + sum(parts["attention"].losses)
    weights = [w.value for part in parts.values() for w in part.trainable_weights]
    gradients = tape.gradient(loss, [*watched.values(), *weights], unconnected_gradients="zero")
    gradients = [tf.convert_to_tensor(x).numpy() for x in gradients]
    return bound.numpy(), float(loss), dict(zip(watched, gradients)), gradients[len(watched) :], latent


@every_objective
def test_masked_keys_and_queries_change_nothing(objective):
    """Whatever stands there, infinities and NaN too; rows without a valid key are finite."""
    bound, loss, by_input, by_weight, _ = value_and_gradients(objective, MASKED)
    assert np.isfinite(bound).all() and all(np.isfinite(x).all() for x in [*by_input.values(), *by_weight])
    masked_keys, masked_queries = ~MASKED["memory_mask"], MASKED["targets"] == 0
    assert (by_input["memory"][masked_keys] == 0).all()
    assert (by_input["posterior_logits"][masked_queries] == 0).all()
    assert (by_input["posterior_logits"][~valid_keys(MASKED)] == 0).all()
    spoiled = {name: x.copy() for name, x in MASKED.items()}
    spoiled["memory"][masked_keys] = 1e3
    spoiled["posterior_logits"][~valid_keys(MASKED)] = np.nan
    other = value_and_gradients(objective, spoiled)
    counted = ~masked_queries
    np.testing.assert_allclose(other[0][counted], bound[counted], rtol=1e-5, atol=1e-6)
    assert other[1] == pytest.approx(loss, rel=1e-5)
    for one, two in zip(by_weight, other[3], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@every_objective
def test_a_row_without_a_valid_key(objective):
    """Its candidates are zeros, its value the likelihood under the empty context, and it has no KL."""
    parts = layers(objective)
    bound, latent = run(parts, MASKED, training=True)
    assert (latent["candidates"].numpy()[2] == 0).all()
    empty = {**latent, "candidates": tf.zeros_like(latent["candidates"][:, :, :1])}
    expected = parts["words"](emit(parts, MASKED, empty), MASKED["targets"])[..., 0]
    np.testing.assert_allclose(bound[2], expected[2], rtol=1e-5)
    only = {name: x[2:3] for name, x in MASKED.items()}
    run(parts, only, training=True)
    assert all(float(loss) == 0.0 for loss in parts["attention"].losses)


@every_objective
def test_extreme_logits(objective):
    inputs = {**INPUTS, "posterior_logits": 1e4 * np.sign(INPUTS["posterior_logits"])}
    inputs["query"] = 1e4 * inputs["query"]
    layer = CategoricalAttention(objective=objective, seed=1)
    tensor_inputs = tensors(inputs)
    with tf.GradientTape() as tape:
        tape.watch(tensor_inputs)
        latent = call(layer, tensor_inputs, training=True)
        log_likelihood = -ops.mean(ops.square(latent["candidates"]), axis=-1)
        bound = keras_vattn.LatentLogLikelihood(objective)(
            log_likelihood, latent["log_prior"], latent["log_posterior"], training=True
        )
        total = tf.reduce_sum(bound) + sum(layer.losses, tf.zeros(()))
    assert np.isfinite(bound).all() and np.isfinite(total)
    watched = [tensor_inputs[name] for name in ("query", "memory", "posterior_logits")]
    for gradient in tape.gradient(total, watched, unconnected_gradients="zero"):
        assert np.isfinite(gradient).all()


@every_objective
def test_one_key(objective):
    inputs = arrays(source=1)
    bound, latent = run(layers(objective), inputs, training=True)
    expected, _ = run(layers("soft"), inputs)
    assert bound.shape == expected.shape
    np.testing.assert_allclose(latent["log_prior"], np.zeros_like(latent["log_prior"]), atol=1e-6)
    spread = latent["candidates"].numpy() - latent["candidates"].numpy()[:, :, :1]
    np.testing.assert_allclose(spread, np.zeros_like(spread), atol=1e-6)


def test_a_single_query():
    """As in question answering about an image: T is 1."""
    inputs = arrays(steps=1)
    bound, _ = run(layers(OBJECTIVES["elbo-sample"]), inputs, training=True)
    assert bound.shape == (BATCH, 1)


def test_a_causal_mask():
    layer = CategoricalAttention(objective="marginal")
    query = arrays(steps=SOURCE)["query"]
    latent = layer(query, INPUTS["memory"], use_causal_mask=True)
    visible = np.tri(SOURCE, dtype=bool)
    assert (np.exp(latent["log_prior"].numpy())[:, ~visible] == 0).all()
    assert (latent["candidates"].numpy()[:, ~visible] == 0).all()
    changed = INPUTS["memory"].copy()
    changed[:, 3:] = np.nan
    other = layer(query[:, :3], changed, use_causal_mask=True)
    np.testing.assert_array_equal(other["candidates"], latent["candidates"][:, :3])
    masked = layer(query, INPUTS["memory"], attention_mask=np.broadcast_to(visible, (BATCH, SOURCE, SOURCE)))
    np.testing.assert_array_equal(masked["log_prior"], latent["log_prior"])


@st.composite
def masked_calls(draw):
    batch, steps, source, width = (draw(st.integers(1, 4)) for _ in range(4))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    scale = draw(st.sampled_from([0.0, 1.0, 1e4]))
    floats = {
        "query": generator.normal(size=(batch, steps, width)),
        "value": generator.normal(size=(batch, source, width)),
        "logits": scale * generator.normal(size=(batch, steps, source)),
        "posterior_logits": scale * generator.normal(size=(batch, steps, source)),
    }
    masks = {
        "value_mask": draw(hnp.arrays(bool, (batch, source))),
        "attention_mask": draw(hnp.arrays(bool, (batch, steps, source))),
        "query_mask": draw(hnp.arrays(bool, (batch, steps))),
    }
    return {name: tf.constant(x, tf.float32) for name, x in floats.items()}, masks


@hypothesis.settings(deadline=None, derandomize=True, max_examples=25)
@hypothesis.given(masked_calls(), st.sampled_from(["elbo/enumerate", "elbo/sample", "elbo/gumbel"]))
def test_masks_are_exact_and_everything_is_finite(arguments, objective):
    floats, masks = arguments
    layer = CategoricalAttention(objective=objective, seed=1)
    with tf.GradientTape() as tape:
        tape.watch(floats)
        latent = layer(**floats, **masks, training=True)
        weights = ops.exp(latent["log_prior"])
        total = ops.sum(latent["candidates"]) + ops.sum(weights * latent["log_posterior"]) + layer.losses[0]
    gradients = tape.gradient(total, floats, unconnected_gradients="zero")
    valid = masks["attention_mask"] & masks["value_mask"][:, None]
    for x in [*latent.values(), total, *gradients.values()]:
        assert np.isfinite(tf.convert_to_tensor(x)).all()
    assert float(layer.losses[0]) >= 0
    empty = ~valid.any(-1)
    assert (latent["candidates"].numpy()[empty] == 0).all()
    assert (gradients["logits"].numpy()[~valid] == 0).all()
    assert (gradients["posterior_logits"].numpy()[~valid] == 0).all()
    assert (gradients["value"].numpy()[~valid.any(1)] == 0).all()
    if objective == "elbo/enumerate":
        assert (weights.numpy()[~valid] == 0).all()
        np.testing.assert_allclose(weights.numpy().sum(-1), ~empty, atol=1e-5)
    if not (masks["query_mask"] & ~empty).any():
        assert float(layer.losses[0]) == 0


def test_the_logits_of_a_decoder():
    """Candidates from the score and the logits that feed the decoder, instead of scoring again."""
    attention = keras_vattn.DeterministicAttention(score="additive")
    decoder = keras_vattn.AttentionDecoder(WIDTH, attention, feeding="expected")
    decoded = decoder(INPUTS["query"], INPUTS["memory"], memory_mask=MASKED["memory_mask"], return_logits=True)
    layer = CategoricalAttention(score="additive", objective="marginal")
    latent = layer(decoded["query"], INPUTS["memory"], value_mask=MASKED["memory_mask"], logits=decoded["logits"])
    assert layer.weights == []
    expected = tf.einsum("btk,btkd->btd", ops.exp(latent["log_prior"]), latent["candidates"])
    np.testing.assert_allclose(expected, decoded["context"], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="Received: logits=None"):
        layer(decoded["query"], INPUTS["memory"])


def test_no_word_is_predicted_from_a_later_one():
    """p(y_t | y_<t) of a decoder does not change when later words are permuted; the posterior sees them."""
    vocabulary, words = 8, np.array([[1, 4, 2, 7, 5, 3]])
    embedding, width = keras.layers.Embedding(vocabulary, WIDTH), WIDTH
    decoder = keras_vattn.AttentionDecoder(width, keras_vattn.DeterministicAttention("additive"), feeding="expected")
    attention = CategoricalAttention(objective=LatentObjective("elbo/sample", top_k=4))
    bilinear = keras_vattn.Bilinear()
    output = keras_vattn.TokenLogLikelihood(vocabulary)
    inference = keras.layers.Bidirectional(keras.layers.GRU(width, return_sequences=True))
    memory = INPUTS["memory"][:1]

    def hidden_of(decoded, latent):
        return ops.tanh(decoded["query"][:, :, None] + latent["candidates"])

    def predict(words):
        decoded = decoder(embedding(words[:, :-1]), memory, return_logits=True)
        latent = attention(decoded["query"], memory, logits=decoded["logits"])
        return output(hidden_of(decoded, latent), log_weights=latent["log_weights"]).numpy()

    def posterior(words):
        return bilinear(inference(embedding(words[:, 1:])), memory)

    first, posterior_logits = predict(words), posterior(words)
    for time in range(1, 5):
        permuted = words.copy()
        permuted[:, time + 1 :] = words[:, time + 1 :][:, ::-1]
        permuted[:, -1] = 6
        np.testing.assert_array_equal(predict(permuted)[:, : time + 1], first[:, : time + 1])
        assert (np.asarray(posterior(permuted))[:, :time] != np.asarray(posterior_logits)[:, :time]).any()
    # The values of the same words are those of the prediction.
    decoded = decoder(embedding(words[:, :-1]), memory, return_logits=True)
    latent = attention(decoded["query"], memory, logits=decoded["logits"])
    bound = keras_vattn.LatentLogLikelihood(attention.objective)(
        output(hidden_of(decoded, latent), words[:, 1:]), latent["log_prior"]
    )
    np.testing.assert_allclose(bound, np.take_along_axis(first, words[:, 1:, None], axis=-1)[..., 0], rtol=1e-4)


@every_objective
def test_fit(objective):
    network = model(objective)
    network.compile(keras.optimizers.Adam(0.1), NegativeBound(ignore_class=0), jit_compile=False)
    before = network.evaluate(MASKED, MASKED["targets"], verbose=0, return_dict=True)
    history = network.fit(MASKED, MASKED["targets"], epochs=10, verbose=0).history
    after = network.evaluate(MASKED, MASKED["targets"], verbose=0, return_dict=True)
    assert np.isfinite(history["loss"]).all()
    assert after["loss"] < before["loss"] - 1.0
    assert ("attention_kl" in history) == ("elbo" in (objective.objective, objective.at_inference.objective))


def test_training_and_prediction_share_their_layers():
    """The prediction model has no posterior; its words are the exact marginal of the trained layers."""
    parts = layers(OBJECTIVES["elbo-sample"])
    inputs = {
        "query": keras.Input((None, WIDTH), name="query"),
        "memory": keras.Input((None, WIDTH), name="memory"),
        "memory_mask": keras.Input((None,), dtype="bool", name="memory_mask"),
    }
    more = {
        "posterior_logits": keras.Input((None, None), name="posterior_logits"),
        "targets": keras.Input((None,), dtype="int32", name="targets"),
    }
    training = keras.Model({**inputs, **more}, run(parts, {**inputs, **more})[0])
    latent = parts["attention"](inputs["query"], parts["value"](inputs["memory"]), value_mask=inputs["memory_mask"])
    words = parts["words"](emit(parts, inputs, latent), log_weights=latent["log_weights"])
    prediction = keras.Model(inputs, words)
    training.compile("sgd", NegativeBound(ignore_class=0))
    training.fit(MASKED, MASKED["targets"], verbose=0)
    log_words = prediction.predict({name: MASKED[name] for name in inputs}, verbose=0)
    np.testing.assert_allclose(np.exp(log_words).sum(-1), 1.0, rtol=1e-5)
    exact, _ = run(parts, MASKED, posterior=False)
    chosen = np.take_along_axis(log_words, MASKED["targets"][..., None], axis=-1)[..., 0]
    counted = MASKED["targets"] != 0
    np.testing.assert_allclose(chosen[counted], exact.numpy()[counted], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["top_k", "elbo-sample", "elbo-gumbel", "importance-weighted"])
def test_fit_with_xla(name):
    network = model(OBJECTIVES[name])
    network.compile("sgd", NegativeBound(ignore_class=0), jit_compile=True)
    assert np.isfinite(network.fit(MASKED, MASKED["targets"], verbose=0).history["loss"][0])


@pytest.mark.parametrize("name", ["elbo-sample", "elbo-enumerate", "importance-weighted"])
def test_with_and_without_xla_the_draws_are_the_same(name):
    results = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(1)
        parts = layers(OBJECTIVES[name])
        run(parts, MASKED)
        compiled = tf.function(lambda parts=parts: run(parts, MASKED, training=True)[0], jit_compile=jit_compile)
        results.append(compiled().numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["soft", "marginal", "elbo-sample", "elbo-gumbel", "importance-weighted"])
def test_half_precision(name, policy):
    keras.config.set_dtype_policy(policy)
    network = model(OBJECTIVES[name])
    network.compile(keras.optimizers.SGD(0.01), NegativeBound(ignore_class=0), run_eagerly=True)
    logs = network.train_on_batch(MASKED, MASKED["targets"], return_dict=True)
    assert all(np.isfinite(x) for x in logs.values())
    layer = network.get_layer("attention")
    latent = call(layer, MASKED, training=True)
    assert latent["candidates"].dtype == layer.compute_dtype
    assert latent["log_prior"].dtype == latent["log_posterior"].dtype == tf.float32
    assert all(loss.dtype == tf.float32 for loss in layer.losses)
    # Logits of their own precision are not rounded.
    keep = CategoricalAttention(objective="marginal")
    logits = np.random.default_rng(0).normal(size=(BATCH, STEPS, SOURCE)).astype("float32")
    exact = keep(INPUTS["query"], INPUTS["memory"], logits=logits)["log_prior"]
    np.testing.assert_allclose(exact, log_softmax(logits, -1), rtol=1e-5, atol=1e-6)


@every_objective
def test_save_and_load(objective, tmp_path):
    network = model(objective)
    network.compile("sgd", NegativeBound(ignore_class=0))
    network.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(copy(tensors(MASKED)), network(tensors(MASKED)))
    assert copy.get_layer("attention").objective == copy.get_layer("bound").objective == objective
    assert copy.loss.get_config() == network.loss.get_config()


@pytest.mark.parametrize("name", ["soft", "top_k", "elbo-sample", "wake-sleep"])
def test_export(name, tmp_path):
    network = model(OBJECTIVES[name])
    network.export(tmp_path / "export", verbose=False)
    served = tf.saved_model.load(tmp_path / "export")
    larger = tensors(arrays(batch=7, steps=5, source=8, masked=True))
    np.testing.assert_allclose(served.serve(larger), network(larger), rtol=1e-4, atol=1e-5)


@every_objective
def test_symbolic_and_eager_agree(objective):
    layer = CategoricalAttention(objective=objective)
    for posterior in {False, objective.uses_posterior}:
        options = {"posterior_logits": keras.Input((None, SOURCE))} if posterior else {}
        symbolic = layer(keras.Input((None, WIDTH)), keras.Input((SOURCE, WIDTH)), **options)
        for training in (False, True):
            if training and not posterior and objective.in_training.needs_posterior:
                continue
            eager = call(layer, posterior=posterior, training=training)
            assert eager.keys() == symbolic.keys()
            for name, x in eager.items():
                assert symbolic[name].dtype == x.dtype.name
                assert all(a in (None, b) for a, b in zip(symbolic[name].shape, x.shape, strict=True))


def dataset(inputs):
    """One batch at a time. Keras adds up the first batch of all replicas, and cannot add booleans."""
    inputs = {**inputs, "memory_mask": inputs["memory_mask"].astype("int32")}
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs["targets"]))
    return data.batch(BATCH, drop_remainder=True)


def test_two_replicas_train_as_one(two_replicas):
    results = []
    for strategy in (tf.distribute.get_strategy(), two_replicas):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            network = model(OBJECTIVES["elbo-enumerate"])
            network.compile(keras.optimizers.SGD(0.1), NegativeBound(ignore_class=0), jit_compile=False)
        history = network.fit(dataset(MASKED), shuffle=False, verbose=0).history
        results.append((history, network.get_weights()))
    for name, value in results[0][0].items():
        np.testing.assert_allclose(results[1][0][name], value, rtol=1e-5)
    for one, two in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_two_replicas_keep_one_moving_average_and_draw_differently(two_replicas):
    with two_replicas.scope():
        network = model(OBJECTIVES["elbo-moving-average"])
        network.compile("sgd", NegativeBound(ignore_class=0), jit_compile=False)
    network.fit(dataset(INPUTS), epochs=2, shuffle=False, verbose=0)
    average = network.get_layer("bound").average.numpy()
    assert average[0] < 0 and average[1] == pytest.approx(1 - 0.99**2, rel=1e-5)


def test_config_round_trip():
    for objective in OBJECTIVES.values():
        layer = CategoricalAttention("bilinear", objective, 0.5, LinearAnnealing(3), "mean", 7, name="latent")
        read = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        copy = keras.saving.deserialize_keras_object(read)
        assert copy.objective == objective
        assert json.loads(json.dumps(copy.get_config())) == json.loads(json.dumps(layer.get_config()))


def test_an_objective_of_words():
    layer = CategoricalAttention(objective="hard/enumerate")
    assert layer.objective == LatentObjective("hard", "enumerate")


def test_errors():
    layer = CategoricalAttention(objective="elbo/sample")
    query, memory, posterior = (INPUTS[name] for name in ("query", "memory", "posterior_logits"))
    with pytest.raises(ValueError, match=r"Received: posterior_logits.shape=\(4, 2, 5\)"):
        layer(query, memory, posterior_logits=posterior[:, :2])
    with pytest.raises(ValueError, match=r"Received: posterior_logits.shape=\(4, 3, 4\)"):
        layer(query, memory, posterior_logits=posterior[..., :4])
    with pytest.raises(ValueError, match=r"Received: logits.shape=\(4, 3\)"):
        layer(query, memory, logits=posterior[..., 0])
    with pytest.raises(ValueError, match=r"Received: query_mask.shape=\(4, 5\)"):
        layer(query, memory, query_mask=np.ones((4, 5), bool))
    for objective in ("soft", "marginal", "hard"):
        with pytest.raises(ValueError, match=r"no posterior. Received: posterior_logits.shape=\(4, 3, 5\)"):
            CategoricalAttention(objective=objective)(query, memory, posterior_logits=posterior)
    with pytest.raises(ValueError, match=r"Received: objective=3"):
        CategoricalAttention(objective=3)
    with pytest.raises(ValueError, match=r"equal batch sizes. Received: .*value.shape=\(2, 5, 6\)"):
        CategoricalAttention()(query, memory[:2])
    with pytest.raises(ValueError, match=r"batch sizes and lengths. Received: key.shape=\(4, 4, 6\)"):
        CategoricalAttention()(query, memory, memory[:, :4])
    with pytest.raises(ValueError, match=r"Received: query.shape=\(4, 6\)"):
        CategoricalAttention()(query[:, 0], memory)
    with pytest.raises(ValueError, match="Received: score=LocationSensitive, logits=None"):
        CategoricalAttention("location_sensitive", "marginal")(query, memory)
    with pytest.raises(ValueError, match=r"Received: score.compute_dtype=float32, dtype=float16"):
        CategoricalAttention(keras_vattn.DotProduct(), dtype="float16")
