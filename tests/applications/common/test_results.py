"""Results files: they contain the command and the figures of every run."""

import json
import shutil

import pytest
from run_files import read_json

from applications.common.results import _plain, read_results


@pytest.mark.slow
def test_the_results_of_a_comparison(toy, compare_words, tmp_path, commands_run, without_pictures):
    models = ("gaussian", "gaussian:learning_rate=0.02")
    words = compare_words(toy, "--seeds", 2, "--baseline", "gaussian", "--models", *models, units=3)
    path = tmp_path / "results.json"
    toy.succeeds(*words, "--results", path, "--no-export", "--units", 4)
    results = read_results(path)
    assert results["command"].startswith("python -m spotlight compare --models gaussian gaussian:learning_rate=0.02 ")
    assert results["command"].endswith(" --no-export --units 4")
    assert str(tmp_path / "out") not in results["command"]
    assert results["options"]["units"] == 4 and "learning_rate" not in results["options"]
    assert list(results["runs"]) == list(models)
    for name, rate in zip(models, (None, 0.02), strict=True):
        for seed, run in enumerate(results["runs"][name]):
            folder = tmp_path / "out" / f"{name.replace(':', '_').replace('=', '_')}_seed_{seed}"
            record = read_json(folder / "metrics.json")
            assert run["seed"] == seed and rate in (None, run["options"]["learning_rate"])
            assert (run["report"], run["steps"]) == (_plain(record["report"]), record["steps"])
            assert 0 < run["cpu_seconds"] == pytest.approx(record["cpu_seconds"], rel=1e-5)
            assert results["environment"]["commits"] == [str(record["environment"]["commit"])]


@pytest.mark.slow
def test_runs_of_other_models_and_seeds_stay(toy, compare_words, tmp_path, commands_run, without_pictures):
    """Three comparisons with the same file give the same results as one comparison of all their runs."""
    models = ("gaussian", "gaussian:learning_rate=0.02")
    path, other = tmp_path / "results.json", tmp_path / "other.json"
    words = compare_words(toy, "--seeds", 2, "--baseline", "gaussian", "--models")
    for seed in (0, 1):
        one = compare_words(toy, "--seeds", 1, "--first-seed", seed, "--baseline", "gaussian", "--models", models[0])
        toy.succeeds(*one, "--results", path)
    assert " --models gaussian --baseline gaussian --seeds 2 " in json.loads(path.read_text())["command"]
    toy.succeeds(*words, *models, "--results", other)
    stored = json.loads(path.read_text())
    stored["environment"] |= {"numpy": "1.0", "commits": ["f00"], "uncommitted_changes": True}
    path.write_text(json.dumps(stored))
    # The folders of earlier runs may be missing.
    shutil.rmtree(tmp_path / "out" / "gaussian_seed_0")
    toy.succeeds(*words, models[1], "--results", path)
    both, at_once = read_results(path), read_results(other)
    environment, new_environment = both.pop("environment"), at_once.pop("environment")
    assert (
        environment["numpy"] == f"1.0, {new_environment['numpy']}" and environment["keras"] == new_environment["keras"]
    )
    assert environment["commits"] == sorted([*new_environment["commits"], "f00"]) and environment["uncommitted_changes"]
    for run in (run for results in (both, at_once) for seeds in results["runs"].values() for run in seeds):
        for name in ("step_seconds", "train_seconds", "cpu_seconds"):
            del run[name]
    assert both == at_once
    # Another command, other data, and a file that is not a results file are refused.
    toy.fails("--units 5'; name another file", *words, "deterministic", "--units", 5, "--results", path)
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"data": {"train": {"rows": 7}}}))
    status, _, err = toy.call(*words, models[1], "--results", path)
    assert status == 2 and err.endswith("contains results for different data; choose another file.\n")
    for content in ("[]", "{", '{"runs": []}'):
        path.write_text(content)
        toy.fails("is not a results file", *words, models[1], "--results", path)


def test_six_digits_and_no_long_lists():
    value = {"a": 1.23456789, "b": [1, 0.1234567], "c": list(range(101)), "d": {"e": True, "f": None, "g": "word"}}
    assert _plain(value) == {"a": 1.23457, "b": [1, 0.123457], "d": {"e": True, "f": None, "g": "word"}}
