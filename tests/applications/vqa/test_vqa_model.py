"""Tests the posterior, prediction, masks and labels of the networks against their equations."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability.python import distributions as tfd
from tiers import slow_after
from vqa_cases import options_of, run_of

from applications.common.errors import InputError

# One model of each kind.
SOME = [(model, "updown") for model in ("soft", "hard_enum", "relaxed", "variational_sample")]
SOME += [(model, "mcan") for model in ("soft", "lf", "wc")]
MCAN = {"architecture": "mcan", "num_heads": 2, "num_layers": 2, "fused_units": 6}


def batch_of(run):
    return next(iter(run.data["train"].batches(run.options, first_epoch=0)))[0]


def without_answer(inputs):
    """Return the inputs without the answer."""
    return {name: x for name, x in inputs.items() if name != "answer"}


def relu(x):
    return np.maximum(x, 0.0)


def logits_of(run, inputs):
    """Return the regions, the query, and the logits of p and q. The logits of q are u^T tanh(U1 (x * ReLU(V1 h_y)) + U2
    (q * ReLU(V2 h_y)))."""
    model = run.models.training
    weights = {weight.path: weight.numpy() for weight in model.weights}
    x, question = inputs["regions"].numpy(), inputs["question"]
    query = model.get_layer("question_encoder")(run.models.embedding(question), mask=question != 0).numpy()
    answer = weights["posterior_answers/embeddings"][inputs["answer"]]
    gated_regions = x * relu(answer @ weights["posterior_regions_gate/kernel"])[:, None]
    gated_query = query * relu(answer @ weights["posterior_question_gate/kernel"])
    hidden = np.tanh(
        gated_regions @ weights["posterior_regions/kernel"]
        + (gated_query @ weights["posterior_question/kernel"])[:, None]
    )
    score = model.get_layer("latent").score if run.options.model == "relaxed" else model.get_layer("score")
    return x, query, score(query[:, None], x).numpy()[:, 0], (hidden @ weights["posterior_score/kernel"])[..., 0]


def words_of(weights, query, x):
    """Return log p(y | x, q) of all answers for regions (B, R, D)."""
    question_hidden = query @ weights["question_projection/kernel"] + weights["question_projection/bias"]
    states = relu(x @ weights["region_projection/kernel"] + question_hidden[:, None])
    return tf.nn.log_softmax(states @ weights["answers/kernel"] + weights["answers/bias"]).numpy()


def test_the_posterior_and_the_bound(tmp_path):
    """The model returns the bound E_q log p(y | z), and its loss adds KL(q || p)."""
    run = run_of(tmp_path, model="variational_enum")
    model, inputs = run.models.training, batch_of(run)
    weights = {weight.path: weight.numpy() for weight in model.weights}
    x, query, p, q = logits_of(run, inputs)
    log_p, log_q = (tf.nn.log_softmax(logits).numpy() for logits in (p, q))
    words = words_of(weights, query, x)
    answer_log_p = np.take_along_axis(words, inputs["answer"].numpy()[:, None, None], axis=-1)[..., 0]
    np.testing.assert_allclose(model(inputs), np.sum(np.exp(log_q) * answer_log_p, axis=1), rtol=1e-4)
    divergence = np.sum(np.exp(log_q) * (log_q - log_p), axis=1).mean()
    np.testing.assert_allclose(sum(model.losses), divergence, rtol=1e-4)
    prediction = run.models.prediction(without_answer(inputs))
    np.testing.assert_allclose(prediction["weights"], np.exp(log_p), rtol=1e-4)
    marginal = np.log(np.sum(np.exp(log_p)[..., None] * np.exp(words), axis=1))
    np.testing.assert_allclose(prediction["log_probabilities"], marginal, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_relaxed_bound_and_prediction(tmp_path):
    """With mean weights, the bound is log p(y | E_q[z]) with z ~ Dirichlet(exp(score)), and the KL matches TFP. With
    sampled weights, the prediction is E_p p(y | z)."""
    run = run_of(tmp_path, model="relaxed")
    model, inputs = run.models.training, batch_of(run)
    weights = {weight.path: weight.numpy() for weight in model.weights}
    x, query, p, q = logits_of(run, inputs)
    mixed = np.sum(tf.nn.softmax(q).numpy()[..., None] * x, axis=1, keepdims=True)
    words = words_of(weights, query, mixed)[:, 0]
    expected = np.take_along_axis(words, inputs["answer"].numpy()[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-4)
    q_dirichlet, p_dirichlet = (tfd.Dirichlet(np.exp(logits.astype("float64"))) for logits in (q, p))
    kl = tfd.kl_divergence(q_dirichlet, p_dirichlet).numpy().mean()
    np.testing.assert_allclose(sum(model.losses), kl, rtol=1e-3)
    prediction = run.models.prediction(without_answer(inputs))
    np.testing.assert_allclose(prediction["weights"], tf.nn.softmax(p), rtol=1e-3)
    # Compare 2,000 copies of a question with 2 draws each to 4,000 NumPy draws.
    assert run.models.num_draws == 10
    run.models.num_draws = 2
    same = {name: tf.repeat(value[:1], 2000, axis=0) for name, value in without_answer(inputs).items()}
    ours = np.exp(run.models.predict(same)["log_probabilities"])
    z = np.random.default_rng(0).dirichlet(np.exp(p[0].astype("float64")), 4000)
    theirs = np.exp(words_of(weights, query[:1], (z @ x[0])[None])[0])
    error = np.hypot(ours.std(axis=0) / np.sqrt(2000), theirs.std(axis=0) / np.sqrt(4000))
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4 * error).all() and error.max() < 0.01


@pytest.mark.parametrize("model, architecture", slow_after(SOME, 3))
def test_predictions_are_distributions_and_ignore_padding(model, architecture, tmp_path):
    run = run_of(tmp_path, model=model, **(MCAN if architecture == "mcan" else {}))
    inputs = {name: x[:3] for name, x in batch_of(run).items()}
    inputs["num_regions"] = tf.constant([4, 2, 1])
    expected = run.models.prediction(without_answer(inputs))
    np.testing.assert_allclose(np.exp(expected["log_probabilities"]).sum(axis=1), 1.0, rtol=1e-4)
    np.testing.assert_array_equal(np.asarray(expected["weights"]) > 0, np.arange(4) < np.array([[4], [2], [1]]))
    is_region = tf.sequence_mask(inputs["num_regions"], 4)[..., None]
    padded = {**inputs, "regions": tf.where(is_region, inputs["regions"], 1e3)}
    for name, x in run.models.prediction(without_answer(padded)).items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-4, atol=1e-5)
    assert run.models.training(inputs).shape == (3,)
    assert (run.models.drawn is None) == (model == "soft")


@pytest.mark.parametrize("objective", ["soft", "marginal"])
def test_the_bound_of_soft_and_marginal_equals_the_prediction(objective, tmp_path):
    run = run_of(tmp_path, model=objective)
    inputs = batch_of(run)
    predicted = run.models.prediction(without_answer(inputs))["log_probabilities"]
    answer_log_p = np.take_along_axis(np.asarray(predicted), inputs["answer"].numpy()[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(run.models.training(inputs), answer_log_p, rtol=1e-4)


def test_soft_labels_are_scored_one_by_one(tmp_path):
    run = run_of(tmp_path, model="soft", labels="soft", **MCAN)
    inputs = batch_of(run)
    np.testing.assert_array_equal(np.asarray(inputs["answer"]).max(axis=1), 1.0)
    # p is proportional to sigmoid(logits). The logits are recomputed from the layer before the answers.
    fused = keras.Model(run.models.training.inputs, run.models.training.get_layer("fused").output)(inputs)
    logits = run.models.training.get_layer("answers")(fused).numpy()
    chances, scores = 1 / (1 + np.exp(-logits)), inputs["answer"].numpy()
    expected = np.sum(scores * np.log(chances) + (1 - scores) * np.log(1 - chances), axis=1)
    np.testing.assert_allclose(run.models.training(inputs), expected, rtol=1e-4)
    predicted = np.exp(run.models.prediction(without_answer(inputs))["log_probabilities"])
    np.testing.assert_allclose(predicted, chances / chances.sum(axis=1, keepdims=True), rtol=1e-4)


def test_incompatible_options(tmp_path):
    for values, message in (
        ({"model": "wc", "architecture": "updown"}, "--architecture: updown has no model wc"),
        ({"model": "marginal", "architecture": "mcan"}, "--architecture: mcan has no model marginal"),
        ({"model": "marginal", "labels": "soft"}, "--labels: only the architecture mcan supports soft labels"),
        ({"model": "soft", "architecture": "mcan", "num_heads": 3}, "--units: expected a multiple of --num-heads, 3"),
        ({"model": "relaxed", "warm_start": 5, "max_steps": 5}, "must be fewer than the 5 steps of the run"),
        ({"model": "variational_enum", "posterior_steps": 5, "max_steps": 5}, "--posterior-steps: .* must be fewer"),
    ):
        with pytest.raises(InputError, match=message):
            options_of(tmp_path, **values).check()
