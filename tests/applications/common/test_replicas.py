"""Several workers train one model, with the same result as a single process with the same batches."""

import shutil
import signal

import numpy as np
import pytest
from program_case import fewer
from program_cases import CASES, TOY
from run_files import assert_same_run, read_arrays, read_checkpoint, read_history, read_json, without_time
from worker_processes import run_program, run_workers

pytestmark = pytest.mark.slow


def trained_by(case, out, folder, count=2, dies=(None, None), **changes):
    """Return the status and the output of each worker of a run."""
    words = [str(word) for word in case.train(out, strategy="multi_worker", **changes)]
    return run_workers(run_program, [(case.program.name, words, dies[index]) for index in range(count)], folder)


def resumed_by(case, out, folder, count):
    words = ["train", "--resume", "--out", str(out)]
    return run_workers(run_program, count * [(case.program.name, words)], folder)


def assert_near(one, other):
    """Assert that weights and history are equal up to rounding, except for times."""
    weights, other_weights = (read_arrays(folder / "weights.npz") for folder in (one, other))
    for name in weights.keys() - {"names", "record"}:
        np.testing.assert_allclose(weights[name], other_weights[name], atol=1e-5, err_msg=name)
    rows, other_rows = (without_time(read_history(folder)) for folder in (one, other))
    assert len(rows) == len(other_rows)
    for row, other_row in zip(rows, other_rows, strict=True):
        assert row == pytest.approx(other_row, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("what", ["data", "options"])
def test_workers_that_have_not_the_same(what, tmp_path):
    """They stop before they create a folder, and print their own values of options."""
    case = CASES[TOY]
    words = [[*map(str, case.train(tmp_path / x / "run", strategy="multi_worker"))] for x in ("alpha", "beta")]
    if what != "data":
        words[1] += ["--seed", "1", "--model", "deterministic"]
    else:
        (path,) = (tmp_path / "beta").glob("data*")
        path.write_text(fewer(path.read_text()))
    outcomes = run_workers(run_program, [(case.program.name, x) for x in words], tmp_path)
    for seed, (status, output) in enumerate(outcomes):
        named = "data." if what == "data" else "--model (this worker: '"
        assert status == 2 and f"error: --strategy multi_worker: the workers differ in {named}" in output
        assert what == "data" or f"--seed (this worker: {seed})." in output
    assert not (tmp_path / "alpha/run").exists()


def test_the_first_worker_is_lost(tmp_path):
    """All other workers ask the first one whether the rest is alive."""
    dies = (0, 1), None
    (killed, _), (status, output) = trained_by(CASES[TOY], tmp_path / "run", tmp_path, dies=dies, export=False)
    assert (killed, status) == (-signal.SIGKILL, 5), output


def test_a_lost_worker(tmp_path):
    """The other workers stop. The run can be resumed with the same number of workers, bit for bit, or with one.

    An uninterrupted run equals a run of one process, with uneven batches and a clipped gradient. The model has no
    noise, which differs between replicas.
    """
    case, uninterrupted, out = CASES[TOY], tmp_path / "whole", tmp_path / "run"
    options = {"model": "deterministic", "batch_size": 13, "epochs": 2, "checkpoint_steps": 1, "export": False}
    for status, output in trained_by(case, uninterrupted, tmp_path, **options | {"export": True}):
        assert status == 0, output
    assert (uninterrupted / "saved_model").exists()
    case.succeeds(*case.train(tmp_path / "one", **options), eager=False)
    assert_near(tmp_path / "one", uninterrupted)
    (status, output), (killed, _) = trained_by(case, out, tmp_path, dies=(None, (1, 1)), **options)
    assert (status, killed) == (5, -signal.SIGKILL), output
    assert "a worker was lost" in output and "Traceback" not in output
    record, _ = read_checkpoint(out)
    assert (record["epoch"], record["step"]) == (1, 1)
    other = shutil.copytree(out, tmp_path / "other")
    for status, output in resumed_by(case, out, tmp_path, 2):
        assert status == 0 and "resuming after epoch 1, step 1" in output, output
    # The metric sums of the unfinished epoch are distributed differently.
    assert_same_run(out, uninterrupted, rounding=1e-6)
    ((status, output),) = resumed_by(case, other, tmp_path, 1)
    assert status == 0, output
    assert read_json(other / "metrics.json")["steps"] == read_json(uninterrupted / "metrics.json")["steps"]
