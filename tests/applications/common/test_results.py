"""The small file of a comparison: it repeats the command and has the figures of every run."""

import pytest
from run_files import read_json

from applications.common.results import _plain, read_results


def test_the_results_of_a_comparison(toy, asked, tmp_path, here, without_pictures):
    models = ("gaussian", "gaussian:learning_rate=0.02")
    words = asked(toy, "--seeds", 2, "--baseline", "gaussian", "--models", *models, units=3)
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


def test_six_digits_and_no_long_lists():
    value = {"a": 1.23456789, "b": [1, 0.1234567], "c": list(range(101)), "d": {"e": True, "f": None, "g": "word"}}
    assert _plain(value) == {"a": 1.23457, "b": [1, 0.123457], "d": {"e": True, "f": None, "g": "word"}}
