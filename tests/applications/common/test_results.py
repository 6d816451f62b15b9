"""The small file of a comparison: it repeats the command and has the figures of every run."""

import json
import shutil
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


def test_results_go_on(toy, asked, tmp_path, here, without_pictures):
    """Two comparisons in one file leave what one of both models would."""
    models, path, other = (
        ("gaussian", "gaussian:learning_rate=0.02"),
        tmp_path / "results.json",
        tmp_path / "other.json",
    )
    words = asked(toy, "--seeds", 2, "--baseline", "gaussian", "--models")
    toy.succeeds(*words, models[0], "--results", path)
    known = json.loads(path.read_text())
    assert len(known["runs"]) == 2
    known["environment"] |= {"numpy": "1.0", "commits": ["f00"], "uncommitted_changes": True}
    path.write_text(json.dumps(known))
    # The runs of before may be gone.
    shutil.rmtree(tmp_path / "out" / "gaussian_seed_0")
    toy.succeeds(*words, models[1], "--results", path)
    toy.succeeds(*words, *models, "--results", other)
    both, at_once = read_results(path), read_results(other)
    environment, of_now = both.pop("environment"), at_once.pop("environment")
    assert environment["numpy"] == f"1.0, {of_now['numpy']}" and environment["keras"] == of_now["keras"]
    assert environment["commits"] == sorted([*of_now["commits"], "f00"]) and environment["uncommitted_changes"]
    for run in (run for results in (both, at_once) for of in results["runs"].values() for run in of):
        for name in ("step_seconds", "train_seconds", "cpu_seconds"):
            del run[name]
    assert both == at_once
    # A model that is asked for again takes the place of what it was.
    known = json.loads(path.read_text())
    known["runs"][0]["steps"] = -1
    path.write_text(json.dumps(known))
    toy.succeeds(*words, *models, "--results", path)
    assert read_results(path)["runs"][models[0]][0]["steps"] > 0


def test_results_that_have_no_place_in_one_table(toy, asked, tmp_path, here, without_pictures):
    path = tmp_path / "results.json"
    words = ("--seeds", 1, "--models")
    toy.succeeds(*asked(toy, *words, "gaussian"), "--results", path)
    text, num_commands = path.read_text(), len(here)
    fails = (
        ("is of another command (python -m spotlight compare --models gaussian --seeds 1", ("--seeds", 2), {}),
        ("is of runs with other options (units is 4, not 5); name another file.", (), {"units": 5}),
    )
    for message, more, changes in fails:
        toy.fails(message, *asked(toy, *words, "deterministic", *more, "--results", path, **changes))
    assert len(here) == num_commands and path.read_text() == text
    # What a model is named for may differ.
    toy.succeeds(*asked(toy, *words, "gaussian:units=5"), "--results", path)
    runs = read_results(path)["runs"]
    assert {name: of[0]["options"]["units"] for name, of in runs.items()} == {"gaussian": 4, "gaussian:units=5": 5}
    known = json.loads(path.read_text())
    known["data"]["train"] = {"rows": 7}
    path.write_text(json.dumps(known))
    status, _, err = toy.call(*asked(toy, *words, "gaussian:units=6"), "--results", path)
    assert status == 2 and err.endswith("are of other data; name another file.\n")
    assert json.loads(path.read_text()) == known


def test_what_is_no_file_of_results(toy, asked, tmp_path, here):
    path, folder = tmp_path / "results.json", tmp_path / "folder.json"
    folder.mkdir()
    for content in ("[]", "{", '{"runs": [{"name": "gaussian", "seed": 0}]}', '{"runs": []}'):
        path.write_text(content)
        toy.fails("is no file of results", *asked(toy, "--results", path))
        assert path.read_text() == content
    toy.fails("is no file of results", *asked(toy, "--results", folder))
    assert not here


def test_six_digits_and_no_long_lists():
    value = {"a": 1.23456789, "b": [1, 0.1234567], "c": list(range(101)), "d": {"e": True, "f": None, "g": "word"}}
    assert _plain(value) == {"a": 1.23457, "b": [1, 0.123457], "d": {"e": True, "f": None, "g": "word"}}
