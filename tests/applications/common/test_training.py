"""What `train` leaves, and what it refuses, of every program."""

import sys

import keras
import numpy as np
import pytest
import yaml
from program_cases import TOY, every_case
from run_files import files_of, read_arrays, read_history, read_json

from applications.common.batches import array_batches
from applications.common.option_values import values_of, with_values
from applications.common.options import RunOptions
from applications.common.runs import RunFolder
from applications.common.training import load_run, set_up

FILES = {
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
}
FIELDS = {
    "program",
    "model",
    "seed",
    "split",
    "report",
    "epoch",
    "history",
    "step_seconds",
    "train_seconds",
    "cpu_seconds",
    "epochs",
    "steps",
    "parameters",
    "data",
    "options",
    "environment",
}


@every_case
def test_the_files_of_a_run(case, trained):
    names = {path.name for path in trained.iterdir()}
    assert names >= FILES | set(case.answers)
    exported = {"saved_model"} if case.name == TOY else set()
    assert exported <= names - FILES - set(case.answers) <= {"segmentation.sha256", "saved_model"}
    assert [path.name for path in (trained / "checkpoints").iterdir()] == ["checkpoint.npz"]
    assert list((trained / "logs").rglob("events.out.tfevents.*"))
    for name in names:
        if name.endswith(".png"):
            assert (trained / name).read_bytes().startswith(b"\x89PNG")
        if name.endswith(".txt"):
            assert (trained / name).read_text(encoding="utf-8").endswith("\n")


@every_case
def test_the_options_of_a_run(case, trained):
    """All of them, and what belongs to one call alone not."""
    config = yaml.safe_load((trained / "config.yaml").read_text(encoding="utf-8"))
    assert list(config) == [name for name in values_of(case.program.default) if name not in ("resume", "overwrite")]
    assert {name: config[name] for name in case.options} == plain(case.options)
    options = values_of(case.program.options_of(RunFolder.load(trained)))
    assert plain({name: options[name] for name in config}) == config


def plain(options):
    """What YAML makes of options: lists of tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def test_no_layer_of_a_deep_model_has_the_seed_of_another_run():
    seeds = [RunOptions("out", seed=seed).layer_seed(index) for seed in range(5) for index in range(600)]
    assert len(set(seeds)) == len(seeds) and max(seeds) < 2**32


@every_case
def test_seeds_share_no_noise(case, trained):
    """Nor do the layers of a model: every seed generator begins elsewhere."""
    folder, application, states = RunFolder.load(trained), case.program.application(), []
    options = case.program.options_of(folder)
    codec = application.load_codec(options, folder)
    for seed in (0, 1, 2):
        changed = with_values(options, {"seed": seed})
        set_up(changed)
        variables = application.build_models(changed, codec).training.variables
        states += [tuple(x.numpy()) for x in variables if x.path.endswith("seed_generator_state")]
    assert len(set(states)) == len(states) >= 3


# What the best weights have least of, where that is not the loss on validation.
SCORES = {"vqa": "val_nll", "captioning": "val_perplexity", "graphs": "val_best"}


@every_case
def test_the_record_of_a_run(case, trained):
    record = read_json(trained / "metrics.json")
    assert set(record) == FIELDS
    assert (record["program"], record["seed"], record["epochs"]) == (case.program.name, 0, 2)
    assert record["model"] == record["options"]["model"]
    config = yaml.safe_load((trained / "config.yaml").read_text(encoding="utf-8"))
    assert record["options"] == config
    assert record["steps"] == 2 * case.steps
    assert record["environment"]["keras"] == keras.__version__
    assert all(isinstance(count, int) and count > 0 for count in record["parameters"].values())
    rows = read_history(trained)
    assert record["history"] == rows[record["epoch"] - 1]
    scores = [row[SCORES.get(case.name, "val_loss")] for row in rows]
    assert record["epoch"] == (int(np.argmin(scores)) + 1 if config["keep"] == "best" else 2)
    values = [column.value(record) for column in case.program.application().columns]
    numbers = [value for value in values if isinstance(value, int | float)]
    assert len(numbers) >= 2 and np.isfinite(numbers).all()


@every_case
def test_the_history_of_a_run(case, trained):
    rows = read_history(trained)
    assert [row["epoch"] for row in rows] == [1, 2]
    for row in rows:
        assert {"loss", "val_loss", "learning_rate", "seconds", "step_seconds", *case.quality} <= set(row)
        assert all(np.isfinite(value) for value in row.values())
        assert any(name.startswith("val_") and name.endswith("_kl") for name in row)
    assert rows[1]["loss"] != rows[0]["loss"]


@every_case
def test_the_report_of_a_run(case, trained, run_of):
    """How good it is, what was measured, and what to do next, with the paths."""
    report, output = (trained / "report.txt").read_text(encoding="utf-8"), run_of(case).output
    assert report in output
    record = read_json(trained / "metrics.json")
    application = case.program.application()
    heading, summary = application.heading(record), application.summary(record["report"])
    head = [*summary, *([""] if summary else []), f"{record['model']}, seed 0 (one seed, no claim); {heading}"]
    assert report.splitlines()[: len(head)] == head and record["split"] in heading
    assert f"trained 2 epochs, {record['steps']} steps" in report
    column = application.columns[0]
    assert f"| {column.title} " in report and f"| {column.cell([column.value(record)])} " in report
    for command in (case.answer, "evaluate", "export"):
        assert f"python -m {case.program.name} {command} --run {trained}" in report
    assert "\nEpoch 2/2\n" in output


@every_case
def test_the_keras_file_is_the_model_that_is_reported_on(case, trained):
    """With its weights, without the optimizer, whose state is the checkpoint's."""
    model = keras.models.load_model(trained / "model.keras")
    arrays = read_arrays(trained / "weights.npz")
    assert len(model.weights) == len(arrays["names"])
    for index, weight in enumerate(model.weights):
        np.testing.assert_array_equal(weight, arrays[f"weight_{index:05d}"])
    assert getattr(model, "optimizer", None) is None


# Of the training part, a function of the options and the first epoch, where it is not its method `batches`.
BATCHES = {
    "spotlight": lambda part: lambda options, epoch: array_batches(part, 10, options.run.seed, epoch),
    "ved": lambda part: lambda options, epoch: part.batches(options.fit.batch_size, options.run.seed, epoch),
    "nmt": lambda part: part.training_batches,
}


@every_case
def test_batches_have_one_shape_for_tensorflow(case, trained):
    """The training step is traced once, however long the examples of a batch are, and every epoch has its own order."""
    application = case.program.application()
    run = load_run(application, trained)
    part = application.encode(run.options, run.codec, application.read(run.options)["train"], training=True)
    batches, number = BATCHES.get(case.name, lambda part: part.batches)(part), case.steps
    dataset = batches(run.options, 1)
    first, again = (list(of.take(2 * number).as_numpy_iterator()) for of in (dataset, dataset))
    later = list(batches(run.options, 2).take(number).as_numpy_iterator())

    def arrays(batches):
        return [np.asarray(array) for batch in batches for array in keras.tree.flatten(batch)]

    def same(one, other):
        return all(map(np.array_equal, arrays(one), arrays(other)))

    assert all(spec.shape[0] is None for spec in keras.tree.flatten(dataset.element_spec))
    assert same(first, again)
    # An epoch depends on its number alone, so that a resumed run has the batches of an uninterrupted one.
    assert same(first[number:], later)
    assert not same(first[:number], later)


@every_case
def test_a_run_is_not_begun_twice(case, trained):
    before = files_of(trained)
    case.fails("--overwrite: a run is resumed or begun anew", *case.train(trained), "--resume", "--overwrite")
    assert files_of(trained).keys() == before.keys()


def test_a_resumed_run_has_no_other_options(case, trained):
    before = (trained / "config.yaml").read_bytes()
    width = case.width
    words = ["train", "--resume", "--out", trained, f"--{width.replace('_', '-')}", 9, "--seed", 3]
    message = f"seed: 0 in the folder, 3 asked for; {width}: {case.options[width]} in the folder, 9 asked for"
    case.fails(message, *words)
    case.fails("--epochs: the run has 2 epochs already. Received: 1", *words[:4], "--epochs", 1)
    assert (trained / "config.yaml").read_bytes() == before


@every_case
def test_folders_that_hold_no_run(case, tmp_path):
    out = tmp_path / "mine"
    words = case.train(out)
    case.fails(f"{out} is not the folder of a run", "train", "--out", out, "--resume")
    assert not out.exists()
    out.mkdir()
    (out / "thesis.tex").write_text("my thesis")
    for more in ((), ("--overwrite",)):
        case.fails(f"{out} is not", *words, *more)
        case.fails("thesis.tex", *into(words, out / "thesis.tex"), *more)
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    assert (out / "thesis.tex").read_text() == "my thesis"


@every_case
def test_bad_data_leave_the_run_that_was_to_be_overwritten(case, copied, tmp_path):
    """And a new one is not begun."""
    before = files_of(copied)
    words = case.train(copied)
    name = next(iter(case.data))
    file = next(tmp_path.glob(f"{name}.*"))
    file.write_text("one column\n")
    for text, message in (("one column\n", file.name), ("", "the file is empty")):
        file.write_text(text)
        case.fails(message, *words, "--overwrite")
        case.fails(message, *into(words, tmp_path / "new"))
    assert files_of(copied) == before
    assert not (tmp_path / "new").exists()


def into(words, out):
    """Return a command line for another folder."""
    return [str(out) if previous == "--out" else word for previous, word in zip(["", *words], words)]


def test_a_run_is_begun_anew(toy, copied_toy, weights_only):
    """With other options, and nothing of the old one is left."""
    (copied_toy / "mine.txt").write_text("")
    toy.succeeds(*toy.train(copied_toy, units=5, epochs=1), "--overwrite")
    assert yaml.safe_load((copied_toy / "config.yaml").read_text())["units"] == 5
    assert {path.name for path in copied_toy.iterdir()} == {
        "config.yaml",
        "codec.json",
        "data.sha256",
        "checkpoints",
        "logs",
        "history.csv",
        "weights.npz",
    }
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


def test_another_seed_is_another_run(toy, trained_toy, tmp_path, weights_only):
    toy.succeeds(*toy.train(tmp_path / "run", seed=4, epochs=1))
    assert read_history(tmp_path / "run")[0]["loss"] != read_history(trained_toy)[0]["loss"]
