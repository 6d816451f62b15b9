"""The small file of a comparison: it repeats the command and has the figures of every run."""

import json
import time

import pytest
from run_files import read_json

from applications.common.results import _plain, read_results


def test_the_results_of_a_comparison(toy, asked, tmp_path, here, without_pictures):
    models = ("gaussian", "gaussian:learning_rate=0.02")
    words = asked(toy, "--seeds", 2, "--baseline", "gaussian", "--models", *models, units=3)
    path = tmp_path / "results.json"
    before = time.process_time()
    toy.succeeds(*words, "--results", path, "--no-export", "--units", 4)
    results = read_results(path)
    assert results["command"].startswith("python -m spotlight compare --models gaussian gaussian:learning_rate=0.02 ")
    assert results["command"].endswith(" --no-export --units 4")
    assert str(tmp_path / "out") not in results["command"]
    assert results["options"]["units"] == 4 and "learning_rate" not in results["options"]
    assert list(results["runs"]) == list(models)
    cpu = []
    for name, rate in zip(models, (None, 0.02), strict=True):
        for seed, run in enumerate(results["runs"][name]):
            folder = tmp_path / "out" / f"{name.replace(':', '_').replace('=', '_')}_seed_{seed}"
            record = read_json(folder / "metrics.json")
            assert run["seed"] == seed and rate in (None, run["options"]["learning_rate"])
            assert (run["report"], run["steps"]) == (_plain(record["report"]), record["steps"])
            assert 0 < run["cpu_seconds"] == pytest.approx(record["cpu_seconds"], rel=1e-5)
            cpu.append(run["cpu_seconds"])
            assert results["environment"]["commits"] == [str(record["environment"]["commit"])]
    # The runs of a process share its time.
    assert sum(cpu) <= time.process_time() - before


def test_where_results_cannot_be_written(toy, asked, tmp_path, here):
    for path in (tmp_path / "nowhere" / "results.json", tmp_path / "results"):
        toy.fails("--results: must be a .json in a folder that exists", *asked(toy, "--results", path))
    assert not here


def test_results_that_would_be_lost(toy, asked, tmp_path, here):
    path = tmp_path / "results.json"
    runs = [{"name": "gaussian", "seed": seed} for seed in (0, 1, 2, 7)] + [{"name": "wc:k=2", "seed": 0}]
    content = json.dumps({"runs": runs})
    path.write_text(content)
    toy.fails(
        "has runs that are not in this comparison (gaussian of seed 2, gaussian of seed 7, wc:k=2 of seed 0); name",
        *asked(toy, "--results", path, "--models", "gaussian", "--seeds", 2),
    )
    path.write_text("[]")
    folder = tmp_path / "folder.json"
    folder.mkdir()
    for other in (path, folder):
        toy.fails("is no file of results", *asked(toy, "--results", other))
    assert not here and path.read_text() == "[]"


def test_six_digits_and_no_long_lists():
    value = {"a": 1.23456789, "b": [1, 0.1234567], "c": list(range(101)), "d": {"e": True, "f": None, "g": "word"}}
    assert _plain(value) == {"a": 1.23457, "b": [1, 0.123457], "d": {"e": True, "f": None, "g": "word"}}
