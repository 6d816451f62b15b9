import csv
import dataclasses
import errno
import os
import shutil

import keras
import numpy as np
import pytest
import yaml
from ved_cases import arguments_of, call, read_checkpoint, read_metrics, small_options

import keras_vattn  # noqa: F401
from applications.common import callbacks
from applications.ved import training
from applications.ved.data import Codec, EncodedPairs, load_splits
from applications.ved.options import Options
from applications.ved.training import load_run


class TrainedEnough(Exception):
    """Stands for the end of a run, where only its weights are looked at."""


def stop(*arguments, **options):
    raise TrainedEnough


@pytest.fixture
def weights_only(monkeypatch, eagerly):
    """Leaves the report out of a run."""
    monkeypatch.setattr(training, "evaluate_split", stop)


def interrupt(monkeypatch, epoch, batch):
    """Makes training stop as Ctrl-C would, after that batch of that epoch, both counted from 0."""

    class Interrupt(callbacks.StopOnNaN):
        def on_train_batch_end(self, step, logs=None):
            if (self._epoch, step) == (epoch, batch):
                raise KeyboardInterrupt

    monkeypatch.setattr(training, "StopOnNaN", Interrupt)


def short_run(folder, **changes):
    """Return options of a run of one batch of short sentences an epoch, for the tests that run step by step."""
    lengths = {"max_source_length": 3, "max_target_length": 3}
    return small_options(folder, **{**lengths, "batch_size": 64, "decode_every": 100, "export": False, **changes})


def train(options, *more, ends=TrainedEnough):
    with pytest.raises(ends):
        call("train", *arguments_of(options), *more)


def assert_same_checkpoint(first, second):
    (record, arrays), (other_record, other_arrays) = read_checkpoint(first), read_checkpoint(second)
    assert without_time(record["rows"]) == without_time(other_record["rows"])
    assert record["epoch"] == other_record["epoch"]
    assert len(arrays) == len(other_arrays)
    for (key, array), other in zip(arrays.items(), other_arrays.values()):
        np.testing.assert_array_equal(array, other, err_msg=str(key))


def without_time(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def read_history(folder):
    with open(folder / "history.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def values_named(path, name):
    return [int(array) for (_, variable), array in read_checkpoint(path)[1].items() if variable == name]


# What a run leaves


def test_files(trained):
    names = {path.name for path in trained.path.iterdir()}
    assert names == {
        "config.yaml",
        "data.sha256",
        "source_vocabulary.txt",
        "target_vocabulary.txt",
        "history.csv",
        "metrics.json",
        "model.keras",
        "model.weights.h5",
        "saved_model",
        "samples.txt",
        "report.txt",
        "alignment.png",
        "curves.png",
        "checkpoints",
        "logs",
    }
    assert [path.name for path in (trained.path / "checkpoints").iterdir()] == ["checkpoint.npz"]
    assert list((trained.path / "logs").rglob("events.out.tfevents.*"))
    for name in ("alignment.png", "curves.png"):
        assert (trained.path / name).read_bytes().startswith(b"\x89PNG")
    assert Options(**yaml.safe_load((trained.path / "config.yaml").read_text(encoding="utf-8"))) == trained.options


def test_history_has_the_quality_of_every_epoch(trained):
    rows = read_history(trained.path)
    assert [float(row["epoch"]) for row in rows] == [1, 2]
    for row in rows:
        assert all(0 <= float(row[f"val_bleu_{order}"]) <= 100 for order in (2, 4))
        assert 0 < float(row["val_entropy"]) < np.log(30) and 0 < float(row["val_dist_1"]) <= 1
        assert float(row["latent_kl"]) > 0 and float(row["val_attention_kl"]) > 0
        assert float(row["plug_in_perplexity"]) > 1
    assert float(rows[1]["val_plug_in_perplexity"]) < float(rows[0]["val_plug_in_perplexity"])


def test_metrics_say_where_they_come_from(trained):
    record = read_metrics(trained.path)
    assert (record["row"], record["seed"], record["split"], record["epochs"]) == ("ved_vattn_mean", 0, "valid", 2)
    assert record["options"] == dataclasses.asdict(trained.options)
    assert record["environment"]["keras"] == keras.__version__ and record["environment"]["tensorflow"]
    assert record["steps"] == 2 * -(-record["data"]["train"]["pairs"] // trained.options.batch_size)
    assert record["data"]["train"]["pairs"] + record["data"]["valid"]["pairs"] == 64
    assert record["embedded_data"] is None
    report = record["report"]
    assert report["num_sources"] == 4
    assert {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "entropy", "dist_1", "dist_2"} <= report["sampling"].keys()
    likelihood = report["likelihood"]
    divergence = likelihood["latent_kl"] + likelihood["attention_kl"]
    assert likelihood["elbo_nats"] == pytest.approx(-likelihood["reconstruction_nats"] - divergence, rel=1e-6)


def test_report_and_samples_are_for_reading(trained):
    report = (trained.path / "report.txt").read_text(encoding="utf-8")
    assert "ved_vattn_mean, seed 0 (one seed, no claim), 4 valid sources" in report
    assert "MAP" in report and "sampling" in report and report in trained.output
    samples = (trained.path / "samples.txt").read_text(encoding="utf-8")
    kinds = [line.split()[0] for line in samples.splitlines() if line]
    assert kinds == ["source", "reference", "reference", "MAP", "draw", "draw"] * 4


def test_no_trace_for_a_new_shape(trained):
    """The batches of a fit differ in shape, and there is one trace for all of them."""
    assert trained.num_traces == 1
    options = trained.options
    splits = load_splits(options)
    encoded = EncodedPairs.encode(options, Codec.fit(options, splits.train), splits.train)
    shapes = {
        (*inputs["source"].shape, *target.shape)
        for inputs, target in encoded.batches(options, shuffle=True, num_epochs=2)
    }
    assert 2 <= len(shapes) <= 9


def test_the_keras_file_is_the_model(trained):
    _, _, codec, models = load_run(trained.path)
    model = keras.models.load_model(trained.path / "model.keras")
    source = codec.source.encode(["in kenya the tea is big"])
    inputs = {"source": source, "target_input": keras.ops.array([[2, 5, 6]])}
    np.testing.assert_array_equal(model(inputs), models.training(inputs))
    weights = read_checkpoint(trained.path / "checkpoints" / "checkpoint.npz")[1]
    for variable, array in zip(models.training.trainable_variables, _trainable(weights, models)):
        np.testing.assert_array_equal(variable, array)


def _trainable(weights, models):
    arrays = list(weights.values())[: len(models.training.variables)]
    trainable = {id(variable) for variable in models.training.trainable_variables}
    by_id = {id(variable): array for variable, array in zip(models.training.variables, arrays)}
    return [by_id[id(variable)] for variable in models.training.trainable_variables if id(variable) in trainable]


# Resuming


def test_two_stages_resume_in_either(tmp_path, monkeypatch, weights_only):
    options = short_run(tmp_path, row="ved_dattn_2stage", epochs=4, stage_one_epochs=2)
    train(options)
    stopped = dataclasses.replace(options, out=str(tmp_path / "stopped"))
    folder = tmp_path / "stopped" / "checkpoints"
    for epoch, names in ((1, ["stage_one.npz"]), (3, ["checkpoint.npz", "stage_one.npz"])):
        with monkeypatch.context() as patch:
            interrupt(patch, epoch, 0)
            train(stopped, *(["--resume"] if folder.exists() else []), ends=KeyboardInterrupt)
        assert sorted(path.name for path in folder.iterdir()) == names
        assert read_checkpoint(folder / names[0])[0]["epoch"] == epoch
    train(stopped, "--resume")
    for name in ("stage_one.npz", "checkpoint.npz"):
        assert_same_checkpoint(folder / name, tmp_path / "run" / "checkpoints" / name)
    assert without_time(read_history(tmp_path / "stopped")) == without_time(read_history(tmp_path / "run"))
    # The annealing goes on where the first stage was; the optimizer, with its learning rate, is the second stage's.
    assert values_named(folder / "checkpoint.npz", "training_calls") == [4]
    assert values_named(folder / "checkpoint.npz", "iteration") == [2]


def test_more_epochs_may_be_asked_for_and_fewer_not(tmp_path, weights_only):
    options = short_run(tmp_path, row="ded")
    train(options)
    train(dataclasses.replace(options, epochs=3), "--resume")
    assert [float(row["epoch"]) for row in read_history(tmp_path / "run")] == [1, 2, 3]
    status, _, errors = call("train", *arguments_of(options), "--resume")
    assert status == 2 and errors == "error: --epochs: the run has 3 epochs already. Received: 2\n"


def test_another_seed_is_another_run(tmp_path, weights_only):
    options = short_run(tmp_path, row="vae", epochs=1)
    rows = []
    for seed in (3, 4):
        train(dataclasses.replace(options, out=str(tmp_path / str(seed)), seed=seed))
        rows += without_time(read_history(tmp_path / str(seed)))
    assert rows[0]["loss"] != rows[1]["loss"] and rows[0]["val_loss"] != rows[1]["val_loss"]


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains(tmp_path, weights_only, precision):
    options = short_run(tmp_path, epochs=1, precision=precision)
    train(options)
    row = read_checkpoint(tmp_path / "run" / "checkpoints" / "checkpoint.npz")[0]["rows"][0]
    assert all(np.isfinite(value) for value in row.values())


# What can go wrong during a run


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch, weights_only):
    options = short_run(tmp_path, row="ded")
    savez, calls = np.savez, []

    def full(file, **arrays):
        calls.append(1)
        if len(calls) == 2:
            file.write(b"half of a checkpoint")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(callbacks.np, "savez", full)
        status, _, errors = call("train", *arguments_of(options))
    folder = tmp_path / "run" / "checkpoints"
    assert status == 4
    assert errors == f"error: [Errno {errno.ENOSPC}] No space left on device: '{folder / 'checkpoint.npz'}'\n"
    assert [path.name for path in folder.iterdir()] == ["checkpoint.npz"]
    assert read_checkpoint(folder / "checkpoint.npz")[0]["epoch"] == 1
    train(options, "--resume")
    assert read_checkpoint(folder / "checkpoint.npz")[0]["epoch"] == 2


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, weights_only):
    options = short_run(tmp_path, row="ded", learning_rate=1e30, batch_size=20)
    status, _, errors = call("train", *arguments_of(options))
    assert status == 3
    assert errors.startswith("error: The loss became ") and errors.count("\n") == 1
    assert "in epoch 1, step 2." in errors
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert not (tmp_path / "run" / "model.weights.h5").exists()


def test_unknown_words_and_long_sources_are_no_error(tmp_path, weights_only):
    options = short_run(tmp_path, row="ded", epochs=1, max_source_length=4, min_count=9)
    with pytest.raises(TrainedEnough):
        training.train(options)
    encoded = EncodedPairs.encode(options, Codec.fit(options, load_splits(options).train), load_splits(options).train)
    assert encoded.report["source_num_truncated"] == encoded.report["pairs"]
    assert encoded.report["source_num_unknown"] > 0


def test_a_run_that_has_not_finished_generates_nothing(trained, tmp_path):
    for name in ("config.yaml", "source_vocabulary.txt", "target_vocabulary.txt"):
        shutil.copy(trained.path / name, tmp_path)
    status, _, errors = call("generate", "--run", tmp_path, "--input", trained.options.train_table)
    assert status == 2 and errors.count("\n") == 1
    assert errors.startswith(f"error: {tmp_path}: the run has not finished: model.weights.h5 is missing.")


def test_a_killed_run_ends_where_the_uninterrupted_one_does(trained, resumed):
    assert "checkpoints/checkpoint.npz" in resumed.left
    assert not {"model.weights.h5", "metrics.json", "report.txt"} & set(resumed.left)
    assert not [name for name in resumed.left if ".tmp" in name]
    assert read_checkpoint(resumed.checkpoint)[0]["epoch"] == 1

    assert "resuming after epoch 1" in resumed.output
    checkpoint = resumed.path / "checkpoints" / "checkpoint.npz"
    assert_same_checkpoint(checkpoint, trained.path / "checkpoints" / "checkpoint.npz")
    assert without_time(read_history(resumed.path)) == without_time(read_history(trained.path))
    assert read_metrics(resumed.path)["report"] == read_metrics(trained.path)["report"]
    assert (resumed.path / "samples.txt").read_bytes() == (trained.path / "samples.txt").read_bytes()
    steps = read_metrics(resumed.path)["steps"]
    assert values_named(checkpoint, "iteration") == [steps]
    assert values_named(checkpoint, "training_calls") == [steps, steps]
