"""Tests the published values, initial weights, L2 loss and sampled neighbours of the network."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs_cases import options_of, run_of

import keras_vattn
from applications.graphs import model
from applications.graphs.model import MODELS
from applications.graphs.options import PROGRAM, PUBLISHED, AlignmentOptions
from applications.graphs.report import evaluate

CODEC = {"width": 5, "classes": ["a", "b", "c"]}
PUBLISHED_OPTIONS = {"weibull_k": None, "prior_beta": None}


@pytest.mark.parametrize("preset", ["cora", "citeseer", "pubmed"])
@pytest.mark.parametrize("name", list(MODELS))
def test_published_values(name, preset, tmp_path):
    values = PROGRAM.preset_values(preset)
    options = options_of(tmp_path, **{**PUBLISHED_OPTIONS, **values, "model": name, "learning_rate": 0.1})
    built = model.build(options, CODEC)
    first, second = (built.prediction.get_layer(layer) for layer in model.LAYERS)
    assert (first.units, first.num_heads, first.concatenate) == (8, 8, True)
    assert (second.units, second.num_heads, second.concatenate) == (3, 8 if preset == "pubmed" else 1, False)
    published = PUBLISHED[preset].get(name, {})
    for layer in (first, second):
        assert (layer.feature_dropout, layer.dropout) == (0.6, 0.6)
        alignment, prior = layer.alignment, layer.prior
        if name == "gat":
            assert isinstance(alignment, keras_vattn.Softmax) and prior is None
            continue
        if MODELS[name].distribution == "weibull":
            assert alignment.k == published["weibull_k"]
        else:
            assert alignment.sigma == published["lognormal_sigma"]
        if MODELS[name].prior is None:
            assert prior is None
            continue
        expected = {"prior_beta": "beta", "prior_sigma": "sigma", "prior_alpha": "alpha"}
        expected["prior_hidden_units"] = "hidden_units"
        for key in published.keys() & expected.keys():
            assert getattr(prior, expected[key]) == published[key], key
        over = "nodes" if layer.prior is not None and layer.prior.reads_keys else "neighbourhood"
        assert layer.kl_reduction == "mean" and layer.prior_over == over
        assert layer.kl_annealing(0) == 0.5
        np.testing.assert_allclose(layer.kl_annealing(10), 1 / (1 + np.exp(-10 * published["annealing_rate"])))
    if MODELS[name].prior:
        # The KL is a mean over the heads of both layers.
        assert (first.kl_weight + second.kl_weight, first.kl_weight > second.kl_weight) == (1.0, preset != "pubmed")


@pytest.mark.parametrize("name", ["lf", "lc", "wf", "wc"])
def test_default_values_give_the_kl_a_gradient(name, tmp_path):
    """The default KL is a sum over edges, which has a gradient. With published values the gradient is mere rounding."""
    run = run_of(tmp_path, **PUBLISHED_OPTIONS, model=name, kl_reduction=AlignmentOptions.kl_reduction, num_draws=0)
    assert evaluate(run, run.data["test"])[0]["gradients"]["kl"] > 1e-3


def test_models_of_one_seed_have_the_same_initial_weights(tmp_path):
    """Initial weights do not depend on the prior network."""
    weights_by_model = {}
    for name in MODELS:
        # Random numbers drawn before do not change the initial weights.
        keras.utils.set_random_seed(len(weights_by_model))
        built = model.build(options_of(tmp_path, model=name), CODEC)
        weights_by_model[name] = {w.path: w.numpy() for w in built.training.weights if "prior" not in w.path}
    other = model.build(options_of(tmp_path, model="gat", seed=1), CODEC)
    for name in MODELS:
        assert weights_by_model[name].keys() == weights_by_model["gat"].keys()
        for path, values in weights_by_model[name].items():
            np.testing.assert_array_equal(values, weights_by_model["gat"][path], err_msg=f"{name} {path}")
    kernels = [path for path in weights_by_model["gat"] if "kernel" in path]
    assert not any(
        np.array_equal(weights_by_model["gat"][w.path], w.numpy()) for w in other.training.weights if w.path in kernels
    )
    assert not np.array_equal(
        weights_by_model["gat"]["first/target_kernel"], weights_by_model["gat"]["first/source_kernel"]
    )


@pytest.mark.parametrize("l2_of", ["all", "kernels"])
def test_half_the_sum_of_squares(tmp_path, l2_of):
    run = run_of(tmp_path, model="wc", l2=0.1, l2_of=l2_of)
    weights = run.models.training.trainable_weights
    counted = [w for w in weights if l2_of == "all" or "bias" not in w.name]
    assert len(counted) < len(weights) or l2_of == "all"
    expected = 0.05 * sum(float(tf.reduce_sum(w.value**2)) for w in counted)
    penalty = sum(float(x) for x in run.models.training.losses)
    np.testing.assert_allclose(penalty, expected, rtol=1e-5)


def test_batches_with_all_neighbours_match_the_full_graph(tmp_path):
    """Batches with all neighbours give the logits of the full graph at the training nodes."""
    full = run_of(tmp_path, model="no_kl")
    sampled = run_of(tmp_path, model="no_kl", neighbors=(20, 20), batch_size=5)
    sampled.models.training.set_weights(full.models.training.get_weights())
    logits = full.models.prediction(full.data["train"].graph.inputs).numpy()
    batches = sampled.data["train"].batches(sampled.options, first_epoch=0)
    num_nodes = 0
    for inputs, labels in batches.take(sampled.data["train"].num_batches(sampled.options)):
        batch_logits = sampled.models.training(inputs).numpy()
        for row, label in zip(batch_logits, labels.numpy(), strict=True):
            match = np.abs(logits - row).max(axis=1).argmin()
            np.testing.assert_allclose(row, logits[match], rtol=1e-4, atol=1e-5)
            assert full.data["train"].graph.labels[match] == label
            num_nodes += 1
    assert num_nodes == 12
