"""Tests the four models against a NumPy implementation of their equations, and the training objective."""

import dataclasses
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, log_softmax, softmax
from vrae_cases import EVERY_MODEL, run_of, sentences_of

import keras_vattn
from applications.text.text import PAD
from applications.vrae.decode import Writer
from applications.vrae.train import LaggingInference

# Every model with the default `informed`, and vrae_sa with its other values.
every_way = pytest.mark.parametrize(
    ("model", "informed"),
    [*((model, "latent") for model in EVERY_MODEL), *(("vrae_sa", way) for way in ("both", "none"))],
)
pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def run_of_model(tmp_path_factory):
    """Return a function that returns the cached run of a model without dropout."""
    cache = {}

    def run_of_model(model, informed="latent"):
        if (model, informed) not in cache:
            deterministic = {"word_dropout": 0.0, "input_dropout": 0.0, "annealing": "none", "free_bits": 0.0}
            folder = tmp_path_factory.mktemp(model)
            cache[model, informed] = run_of(folder, model=model, informed=informed, **deterministic)
        return cache[model, informed]

    return run_of_model


def lstm(cell, inputs, state, context=None):
    """Compute one step of an LSTM from its kernels."""
    gates = inputs @ cell["kernel"] + state[0] @ cell["recurrent_kernel"] + cell["bias"]
    gates = gates if context is None else gates + context @ cell["context_kernel"]
    i, f, g, o = np.split(gates, 4, axis=-1)
    c = expit(f) * state[1] + expit(i) * np.tanh(g)
    return expit(o) * np.tanh(c), c


def normal_kl(q, p):
    """Return the KL of diagonal Gaussians, given as pairs of mean and log sigma, summed over the last axis."""
    ratio = (np.exp(2 * q[1]) + (q[0] - p[0]) ** 2) * np.exp(-2 * p[1])
    return np.sum(p[1] - q[1] + 0.5 * ratio - 0.5, axis=-1)


def recomputed(run, source, target_input, target):
    """Return log p of the words (B, T) and the KLs of z_enc (B,), z_t and c~_t (B, T), with latents at their means."""
    informed = run.options.variational.informed
    weights = {weight.path: weight.numpy().astype("float64") for weight in run.models.training.weights}
    part = lambda prefix: {path.rpartition("/")[2]: x for path, x in weights.items() if path.startswith(prefix)}  # noqa: E731
    vectors, batch = weights["words_embedded/embeddings"], len(source)
    zeros = lambda width: np.zeros((batch, width))  # noqa: E731
    units = run.options.network.units
    kl_code, kl_steps, kl_context = np.zeros(batch), np.zeros(target.shape), np.zeros(target.shape)
    z, memory = zeros(0), None
    affine = lambda w, x: (x @ w["mean_kernel"] + w["mean_bias"], x @ w["log_scale_kernel"] + w["log_scale_bias"])  # noqa: E731
    if run.models.latent is not None:
        state, memory = (zeros(units), zeros(units)), []
        for t in range(source.shape[1]):
            new = lstm(part("encoder/"), vectors[source[:, t]], state)
            state = tuple(np.where((source[:, t] != 0)[:, None], *x) for x in zip(new, state))
            memory.append(state[0])
        q = affine(part("z_enc/"), state[0])
        z, kl_code, memory = q[0], normal_kl(q, (zeros(z_width(run)), zeros(z_width(run)))), np.stack(memory, axis=1)
    state, log_words = (zeros(units), zeros(units)), []
    cell = part("decoder/cell")
    words = part("words/")
    for t in range(target.shape[1]):
        context = None
        if run.models.attends:
            score, before = part("decoder/attention/"), state[0]
            hidden = np.tanh((before @ score["query_kernel"])[:, None] + memory @ score["key_kernel"] + score["bias"])
            logits = np.where(source != 0, (hidden @ score["scale"])[..., 0], -np.inf)
            attended = np.einsum("bs,bsd->bd", softmax(logits, axis=-1), memory)
            p = np.split(before @ weights["decoder/prior_kernel"] + weights["decoder/prior_bias"], 2, axis=-1)
            q = p
            if informed != "none":
                q = affine(part("decoder/z/"), np.concatenate([before, attended], axis=-1))
            kl_steps[:, t] = normal_kl(q, p)
            predicted, raw = affine(part("decoder/context/"), q[0])
            if informed == "both":
                log_scale = run.options.variational.context_floor + np.log1p(np.exp(raw))
                kl_context[:, t] = normal_kl((attended, log_scale), (predicted, log_scale))
                predicted = attended
            context = np.concatenate([q[0], predicted], axis=-1)
        read = np.concatenate([vectors[target_input[:, t]], z], axis=-1)
        new = lstm(cell, read, state, context)
        state = tuple(np.where((target[:, t] != 0)[:, None], *x) for x in zip(new, state))
        log_p = log_softmax(new[0] @ words["kernel"] + words["bias"], axis=-1)
        log_words.append(np.take_along_axis(log_p, target[:, t, None], axis=-1)[:, 0])
    mask = target != 0
    return np.where(mask, np.stack(log_words, axis=1), 0.0), kl_code, *(mask * x for x in (kl_steps, kl_context))


def z_width(run):
    return run.options.network.latent_units


@every_way
def test_values_match_the_equations(run_of_model, model, informed):
    """The training model, its losses and the exported module agree with NumPy."""
    run = run_of_model(model, informed)
    source, target_input, target = sentences_of(run)
    inputs = {"source": source, "target_input": target_input, "target": target}
    log_p = run.models.training(inputs).numpy()
    expected, kl_code, kl_steps, kl_context = recomputed(run, *(x.numpy() for x in (source, target_input, target)))
    np.testing.assert_allclose(np.where(target != 0, log_p, 0.0), expected, rtol=1e-4, atol=1e-5)
    losses = [x for x in (kl_code.mean(), kl_steps.sum(axis=1).mean(), kl_context.sum(axis=1).mean()) if x > 1e-9]
    assert sorted(float(x) for x in run.models.training.losses if float(x)) == pytest.approx(sorted(losses), rel=1e-4)
    if model != "lstm":
        writer = Writer(run)
        figures = writer.figures_at(source, target_input, target, writer.posterior(source)["mean"])
        np.testing.assert_allclose(figures["log_likelihood"], expected.sum(axis=1), rtol=1e-4)
        np.testing.assert_allclose(figures["kl_code"], kl_code, rtol=1e-4)
        np.testing.assert_allclose(figures["kl_steps"], kl_steps, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(figures["kl_context"], kl_context, rtol=1e-3, atol=1e-5)


@every_way
def test_the_reported_elbo_is_the_training_objective(run_of_model, model, informed):
    """The ELBO of the report equals minus the training loss if all latents use the same noise."""
    run = run_of_model(model, informed)
    source, target_input, target = sentences_of(run)
    writer, seed = Writer(run), tf.constant([3, 4])
    figures = writer.draw_figures(source, target_input, target, seed)
    kl_steps = tf.reduce_sum(figures["kl_steps"] + figures["kl_context"], axis=1)
    elbo = figures["log_likelihood"] - figures["kl_code"] - kl_steps
    run.models.training.compile(loss=keras_vattn.NegativeBound(ignore_class=0))
    drawing = keras_vattn.posterior_draws(run.models.training, seed=seed) if model != "lstm" else nullcontext()
    with drawing:
        inputs = {"source": source, "target_input": target_input, "target": target}
        predicted = run.models.training(inputs)
        loss = run.models.training.compute_loss(inputs, target, predicted)
    assert float(loss) == pytest.approx(-float(tf.reduce_mean(elbo)), rel=1e-5)


def test_the_auxiliary_loss_exists_only_in_training(run_of_model):
    run = run_of_model("vrae_sa_aux")
    source, target_input, target = sentences_of(run)
    inputs = {"source": source, "target_input": target_input, "target": target}
    run.models.training(inputs, training=True)
    assert len([x for x in run.models.training.losses if float(x)]) == 3
    assert set(keras_vattn.divergences(run.models.training)) == {"z_enc_kl", "z_kl"}
    run.models.training(inputs)
    assert len([x for x in run.models.training.losses if float(x)]) == 2


@every_way
def test_inference_weights_do_not_affect_generation(run_of_model, model, informed):
    """Each weight either is an inference weight or affects `generate`, except an attention that informs no latent."""
    run = run_of_model(model, informed)
    writer = Writer(run)
    before = writer.generate(6, 1).numpy().tolist()
    inference_weights = run.models.inference_weights
    values = [weight.numpy() for weight in inference_weights]
    for weight in inference_weights:
        weight.assign(keras.ops.zeros_like(weight))
    assert writer.generate(6, 1).numpy().tolist() == before
    for weight, value in zip(inference_weights, values):
        weight.assign(value)
    counts = run.models.parameters
    assert counts["inference"] == sum(x.size for x in values)
    num_frozen = sum(weight.value.shape.num_elements() for weight in run.models.training.non_trainable_weights)
    assert sum(counts.values()) == run.models.training.count_params() - num_frozen
    assert (num_frozen > 0) == (informed == "none")


@pytest.mark.parametrize("in_graph", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_p_lags_behind_q(run_of_model, in_graph):
    """Training takes two steps of q, one step of p, two steps of q, and then steps of p and q together."""
    tf.config.run_functions_eagerly(not in_graph)
    run = run_of_model("vrae_sa")
    model, variational = run.models.training, dataclasses.replace(run.options.variational, lagging_steps=5, q_steps=2)
    groups = {True: run.models.inference_weights}
    inference = {id(weight) for weight in groups[True]}
    groups[False] = [weight for weight in model.trainable_weights if id(weight) not in inference]
    before, moved = [weight.numpy() for weight in model.trainable_weights], []

    def note(batch, logs):
        values = [weight.numpy() for weight in model.trainable_weights]
        moves = {
            id(w): not np.array_equal(x, y) for w, x, y in zip(model.trainable_weights, before, values, strict=True)
        }
        before[:] = values
        moved.append([{moves[id(weight)] for weight in groups[kind]} for kind in (True, False)])

    batches, optimizer = run.data["train"].training_batches(run.options, 0), keras_vattn.fast.FusedAdam(1e-3)
    model.compile(optimizer, keras_vattn.NegativeBound(ignore_class=PAD))
    optimizer.build(model.trainable_variables)
    # The callback makes all weights trainable again before `note` compares them.
    callbacks = [LaggingInference(run.models, variational), keras.callbacks.LambdaCallback(on_train_batch_end=note)]
    for epochs in (1, 2):
        steps = {"initial_epoch": epochs - 1, "epochs": epochs, "steps_per_epoch": 4}
        model.fit(batches, **steps, callbacks=callbacks, shuffle=False, verbose=0)
    q, p, both = [{True}, {False}], [{False}, {True}], [{True}, {True}]
    assert moved == [q, q, p, q, q, both, both, both]
    tf.config.run_functions_eagerly(True)


def test_weights_of_both_divergences(tmp_path):
    values = {"kl_start": 0.1, "kl_hold": 4, "kl_steps": 10}
    values |= {"step_annealing": "linear", "step_kl_start": 0.1, "step_kl_steps": 10}
    models = run_of(tmp_path, model="vrae_sa", annealing="linear", **values).models
    assert [float(models.latent.kl_annealing(step)) for step in (0, 4, 9, 14)] == pytest.approx([0.1, 0.1, 0.55, 1.0])
    assert [float(models.decoder.latent.kl_annealing(step)) for step in (0, 5, 10)] == pytest.approx([0.1, 0.55, 1.0])
