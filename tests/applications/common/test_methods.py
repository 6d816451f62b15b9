"""The layout uncertainty: its figures by hand, its runs on a tiny graph, and what it refuses."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import scipy.special
from application_cases import changed
from program_cases import CASES
from sklearn.metrics import roc_auc_score
from tiers import slow_after

from applications.common import methods
from applications.common.command_line import read_options
from applications.common.compare import Comparison
from applications.common.errors import InputError
from applications.common.plan import plan
from keras_vattn import metrics


def probabilities(seed, num_draws=1, num_examples=40, sharpness=3.0):
    logits = np.random.default_rng(seed).normal(size=(num_draws, num_examples, 3)) * sharpness
    return scipy.special.softmax(logits, axis=-1)


def sets_of(seed, num_draws=1):
    labels = np.random.default_rng(0).integers(-1, 3, size=40)
    sharpness = {"valid": 3.0, "test": 3.0, "other": 0.5, "corrupted": 1.0}
    return {
        name: {
            "labels": labels,
            "mean": probabilities(seed + index, 1, sharpness=by),
            "mean_ms": 2.0,
            "attention": probabilities(seed + index, num_draws, sharpness=by),
            "attention_ms": 7.0,
        }
        for index, (name, by) in enumerate(sharpness.items())
    }


def test_figures_of_a_method():
    """Accuracy and calibration of the examples with a known class; the entropy tells all of them from others."""
    sets = {name: (x["labels"], x["attention"], 7.0) for name, x in sets_of(1, 4).items() if name != "valid"}
    labels, draws, _ = sets["test"]
    found, known = methods.figures(sets, 11.0), labels >= 0
    assert 0 < known.sum() < len(known)
    mean = draws.mean(axis=0)
    assert found["accuracy"] == np.mean(mean.argmax(axis=1)[known] == labels[known])
    assert found["nll"] == pytest.approx(-np.log(mean[known, labels[known]]).mean())
    assert (found["train_seconds"], found["ms"]) == (11.0, 7.0)
    for name in ("other", "corrupted"):
        is_other = np.repeat([0, 1], 40)
        entropies = [scipy.special.entr(x.mean(axis=0)).sum(axis=-1) for x in (draws, sets[name][1])]
        assert found[name] == pytest.approx(roc_auc_score(is_other, np.concatenate(entropies)))
        unknown = [metrics.mutual_information(x) for x in (draws, sets[name][1])]
        assert found[f"{name}_mi"] == pytest.approx(roc_auc_score(is_other, np.concatenate(unknown)))
    assert "other_mi" not in methods.figures({name: (x, y[:1], z) for name, (x, y, z) in sets.items()}, 1.0)


def test_a_temperature_is_fitted_on_validation():
    sets = sets_of(5, 4)
    found = methods._methods(sets)
    assert list(found) == ["", ", temperature", ", attention drawn"]
    known = sets["valid"]["labels"] >= 0
    temperature = metrics.fit_temperature(np.log(sets["valid"]["mean"][:, known]), sets["valid"]["labels"][known])
    assert abs(temperature - 1.0) > 0.1
    power = sets["test"]["mean"] ** (1.0 / temperature)
    np.testing.assert_allclose(found[", temperature"]["test"][1], power / power.sum(axis=-1, keepdims=True), rtol=1e-6)


def options_of(tmp_path, *words, **values):
    from program_case import written

    case = CASES["graphs"]
    given = {**case.options, **written(case.data, tmp_path), "neighbors": [], "export": False, **values}
    given.pop("model", None)
    path = tmp_path / "options.yaml"
    path.write_text(json.dumps(given))
    asked = ["compare", "--out", tmp_path / "out", "--options", path, "--layout", "uncertainty", *words]
    return read_options(case.program, list(map(str, asked)))[1]


def test_members_have_seeds_of_their_own(tmp_path):
    options = options_of(tmp_path, "--models", "gat", "wc", "--seeds", "2", "--ensemble", "3", "--first-seed", "5")
    runs = plan(CASES["graphs"].program, options)
    assert [(run.name, run.seed, run.is_member) for run in runs] == [
        *(("gat", 5, False), ("gat", 6, False), ("wc", 5, False), ("wc", 6, False)),
        *(("gat", seed, True) for seed in (7, 8, 9, 10)),
    ]
    assert not any(run.is_member for run in plan(CASES["graphs"].program, dataclasses.replace(options, layout=())))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ensemble", "1"], "--ensemble: must be 0, or 2 at least"),
        (["--models", "wc"], "--baseline: the ensembles are of one of the models. Received: gat"),
        (["--layout", "fan", "--corruption", "1"], "--corruption belongs to --layout uncertainty"),
        (["--layout", "fan", "--ensemble", "3"], "--ensemble belongs to --layout uncertainty"),
    ],
)
def test_what_is_refused(tmp_path, words, message):
    with pytest.raises(InputError, match=message):
        options_of(tmp_path, *words)
