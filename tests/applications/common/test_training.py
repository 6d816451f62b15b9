"""Tests the files that `train` writes for the toy program, and invalid options."""

import sys

import keras
import numpy as np
import pytest
import yaml
from program_cases import CASES
from run_files import files_of, read_arrays, read_history, read_json
from tiers import slow_after

from applications.common.batches import array_batches
from applications.common.options import RunOptions
from applications.common.training import load_run

FILES = [
    "config.yaml",
    "data.sha256",
    "weights.npz",
    "model.keras",
    "metrics.json",
    "history.csv",
    "report.txt",
    "report.html",
    "shown.json",
    "curves.png",
    "checkpoints",
    "logs",
    "saved_model",
]


def test_the_files_of_a_run(toy, trained_toy):
    assert {path.name for path in trained_toy.iterdir()} == {*FILES, *toy.answers}
    assert [path.name for path in (trained_toy / "checkpoints").iterdir()] == ["checkpoint.npz"]
    assert list((trained_toy / "logs").rglob("events.out.tfevents.*"))
    assert (trained_toy / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (trained_toy / "report.txt").read_text(encoding="utf-8").endswith("\n")


def test_no_layer_of_a_deep_model_has_the_seed_of_another_run():
    seeds = [RunOptions("out", seed=seed).layer_seed(index) for seed in range(5) for index in range(600)]
    assert len(set(seeds)) == len(seeds) and max(seeds) < 2**32


def test_the_record_of_a_run(toy, trained_toy):
    record = read_json(trained_toy / "metrics.json")
    assert (record["program"], record["seed"], record["epochs"]) == (toy.program.name, 0, 2)
    assert record["model"] == record["options"]["model"]
    config = yaml.safe_load((trained_toy / "config.yaml").read_text(encoding="utf-8"))
    assert record["options"] == config
    assert record["steps"] == 2 * toy.steps
    assert record["environment"]["keras"] == keras.__version__
    assert all(isinstance(count, int) and count > 0 for count in record["parameters"].values())
    rows = read_history(trained_toy)
    assert record["history"] == rows[record["epoch"] - 1]
    scores = [row["val_loss"] for row in rows]
    assert record["epoch"] == (int(np.argmin(scores)) + 1 if config["keep"] == "best" else 2)
    values = [column.value(record) for column in toy.program.application().columns]
    numbers = [value for value in values if isinstance(value, int | float)]
    assert len(numbers) >= 2 and np.isfinite(numbers).all()


def test_the_report_of_a_run(toy, trained_toy, run_of):
    """report.txt contains the summary, the evaluated split, the metrics, and the next commands with their paths."""
    report, output = (trained_toy / "report.txt").read_text(encoding="utf-8"), run_of(toy).output
    assert report in output
    record = read_json(trained_toy / "metrics.json")
    application = toy.program.application()
    heading, summary = application.heading(record), application.summary(record["report"])
    head = [*summary, *([""] if summary else []), f"{record['model']}, seed 0 (one seed, no claim); {heading}"]
    assert report.splitlines()[: len(head)] == head and record["split"] in heading
    assert f"trained 2 epochs, {record['steps']} steps" in report
    column = application.columns[0]
    assert f"| {column.title} " in report and f"| {column.cell([column.value(record)])} " in report
    for command in ("evaluate", "export"):
        assert f"python -m {toy.program.name} {command} --run {trained_toy}" in report
    assert "\nEpoch 2/2\n" in output


def test_the_keras_file_contains_the_reported_model(toy, trained_toy):
    """model.keras contains the weights of weights.npz and no optimizer, whose state is in the checkpoint."""
    model = keras.models.load_model(trained_toy / "model.keras")
    arrays = read_arrays(trained_toy / "weights.npz")
    assert len(model.weights) == len(arrays["names"])
    for index, weight in enumerate(model.weights):
        np.testing.assert_array_equal(weight, arrays[f"weight_{index:05d}"])
    assert getattr(model, "optimizer", None) is None


# For some programs, the function that returns batches for (options, first epoch) of a split; by default `batches`.
BATCHES = {
    "spotlight": lambda part: lambda options, epoch: array_batches(part, 10, options.run.seed, epoch),
    "ved": lambda part: lambda options, epoch: part.batches(options.fit.batch_size, options.run.seed, epoch),
    "nmt": lambda part: part.training_batches,
    "vrae": lambda part: part.training_batches,
}


@pytest.mark.parametrize("name", slow_after(CASES))
def test_batches_depend_only_on_the_epoch_number(name, run_of):
    """A resumed run reads the batches of an uninterrupted run. All batches have the same element spec in TensorFlow."""
    case = CASES[name]
    run, application = load_run(case.program.application(), run_of(case).path), case.program.application()
    steps = read_json(run.folder.path / "metrics.json")["steps"] // 2
    part = application.encode(run.options, run.codec, application.read(run.options)["train"], training=True)
    batches = BATCHES.get(name, lambda part: part.batches)(part)

    def arrays(first_epoch, num_batches):
        dataset = batches(run.options, first_epoch)
        assert all(spec.shape[0] is None for spec in keras.tree.flatten(dataset.element_spec))
        return [keras.tree.flatten(batch) for batch in dataset.take(num_batches).as_numpy_iterator()]

    first, later = arrays(1, 2 * steps), arrays(2, steps)
    same, other = (
        [np.array_equal(*pair) for x, y in zip(batches, later, strict=True) for pair in zip(x, y, strict=True)]
        for batches in (first[steps:], first[:steps])
    )
    assert all(same) and not all(other)


def test_a_resumed_run_has_no_other_options(toy, trained_toy):
    before, words = (trained_toy / "config.yaml").read_bytes(), ["train", "--resume", "--out", trained_toy]
    message = "seed: 0 in the folder, 3 requested; units: 4 in the folder, 9 requested"
    toy.fails(message, *words, "--units", 9, "--seed", 3)
    toy.fails("--epochs: must be at least 2 to resume this run. Received: 1", *words, "--epochs", 1)
    assert (trained_toy / "config.yaml").read_bytes() == before


def test_invalid_data_overwrite_no_run(toy, copied_toy, tmp_path):
    """If the data are invalid, `train --overwrite` deletes no run, and `train` creates none."""
    before, words = files_of(copied_toy), toy.train(copied_toy)
    (tmp_path / "data.txt").write_text("one column\n")
    toy.fails("data.txt", *words, "--overwrite")
    toy.fails("data.txt", *words, "--out", tmp_path / "new")
    assert files_of(copied_toy) == before
    assert not (tmp_path / "new").exists()


def test_a_run_is_overwritten(toy, copied_toy, weights_only):
    """With `--overwrite`, the new run may have other options, and all files of the old run are deleted."""
    (copied_toy / "mine.txt").write_text("")
    toy.succeeds(*toy.train(copied_toy, units=5, epochs=1), "--overwrite")
    assert yaml.safe_load((copied_toy / "config.yaml").read_text())["units"] == 5
    assert not (copied_toy / "mine.txt").exists() and not (copied_toy / "metrics.json").exists()
    assert len(read_history(copied_toy)) == 1


def test_nothing_begins_without_what_writes_the_page(toy, copied_toy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    before = files_of(copied_toy)
    for words in (
        toy.train(tmp_path / "run"),
        ["evaluate", "--run", copied_toy],
        ["compare", "--out", tmp_path / "run", "--models", "gaussian"],
    ):
        with pytest.raises(ImportError, match=r'pip install "keras_vattn\[plots\]"'):
            toy.succeeds(*words)
    assert files_of(copied_toy) == before and not (tmp_path / "run").exists()
