"""One training run: from options to a run folder with everything in it."""

import dataclasses
import json
import pathlib

import keras
import numpy as np

import keras_vattn
from applications.common.callbacks import (
    UNREADABLE,
    Checkpoint,
    EpochSeconds,
    HistoryWriter,
    StepProgress,
    StepSeconds,
    StopOnNaN,
)
from applications.common.errors import InputError
from applications.common.process import refuse_fewer_epochs, set_up
from applications.common.runs import RunFolder, environment_record, replacing, write_json
from applications.nmt import model as nmt_model
from applications.nmt.data import load_splits, load_splits_of
from applications.nmt.encoding import Codec, EncodedPairs
from applications.nmt.evaluation import evaluate_split
from applications.nmt.generation import Inference, Translator, default_inference, export
from applications.nmt.options import Options, validate
from applications.nmt.reporting import write_pictures, write_report
from applications.text.splits import DIGEST
from applications.text.text import PAD

# What a resumed run may change: it names no property of the model or its data.
MAY_DIFFER = (
    "resume",
    "out",
    "export",
    "epochs",
    "num_beams",
    "length_penalty",
    "coverage_penalty",
    "eos_normalization",
)
CHECKPOINT = "checkpoints/checkpoint.npz"
WEIGHTS = ("best", "last", "averaged")
NUM_AVERAGED = 3


class HalveOnPlateau(keras.callbacks.Callback):
    """Halves the learning rate after each epoch whose validation bound is not the best of more than `patience` epochs.

    All it knows is the history, which a resumed run has.
    """

    def __init__(self, patience, rows):
        super().__init__()
        self.patience = patience
        self.values = [row["val_loss"] for row in rows]

    def on_epoch_end(self, epoch, logs=None):
        self.values.append(logs["val_loss"])
        if len(self.values) - 1 - int(np.argmin(self.values)) > self.patience:
            self.model.optimizer.learning_rate.assign(self.model.optimizer.learning_rate * 0.5)
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)


class KeepWeights(keras.callbacks.Callback):
    """Writes the weights of the best epoch so far, of the last, and the mean of the last few, after each epoch.

    Best is the epoch of the smallest loss on validation. Each file is an .npz of the model's weights in their order.
    """

    def __init__(self, folder, rows):
        super().__init__()
        self.folder = folder
        self.best = min((row["val_loss"] for row in rows), default=float("inf"))

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.get_weights()
        write_weights(self.folder.file(f"weights/epoch_{epoch + 1}.npz"), weights)
        write_weights(self.folder.file("weights/last.npz"), weights)
        if logs["val_loss"] < self.best:
            self.best = logs["val_loss"]
            write_weights(self.folder.file("weights/best.npz"), weights)
        recent = [
            self.folder.file(f"weights/epoch_{number}.npz") for number in range(epoch + 2 - NUM_AVERAGED, epoch + 2)
        ]
        recent = [read_weights(path) for path in recent if path.exists()]
        averaged = [np.mean(same, axis=0).astype(same[0].dtype) for same in zip(*recent, strict=True)]
        write_weights(self.folder.file("weights/averaged.npz"), averaged)
        self.folder.file(f"weights/epoch_{epoch + 1 - NUM_AVERAGED}.npz").unlink(missing_ok=True)


def write_weights(path, weights):
    """Write a list of arrays in one atomic step."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **{f"weight_{index:05d}": weight for index, weight in enumerate(weights)})


def read_weights(path):
    """Return what `write_weights` wrote; `InputError` if it cannot be read."""
    try:
        # Opened here: NumPy leaves one that it cannot read open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return [archive[name] for name in sorted(archive.files)]
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be loaded: {error}") from error


def compile_model(models, options):
    """Compile with the negative bound and Adam."""
    models.training.compile(
        optimizer=keras.optimizers.Adam(options.learning_rate, global_clipnorm=options.clip_norm),
        loss=keras_vattn.NegativeBound(ignore_class=PAD),
        jit_compile=options.jit,
    )
    # Variables that are made while a step is traced have TensorFlow trace it twice.
    models.training.optimizer.build(models.training.trainable_variables)


def load_run(path, weights="best"):
    """Return the folder, options, codec and models of a run, with its weights of that name."""
    if weights not in WEIGHTS:
        raise InputError(f"--weights: expected one of {', '.join(WEIGHTS)}. Received: {weights}")
    folder = RunFolder.load(path)
    try:
        options = Options(**folder.config)
        validate(options)
    except (TypeError, InputError) as error:
        raise InputError(f"{folder.path / 'config.yaml'} does not hold the options of train: {error}") from error
    set_up(options)
    file = folder.path / "weights" / f"{weights}.npz"
    if not file.exists():
        raise InputError(f"{folder.path}: {file.name} is missing: no epoch has been finished. Go on with --resume.")
    codec = Codec.load(folder, options)
    models = nmt_model.build(options, codec.source.vocabulary_size, codec.target.vocabulary_size)
    put_weights(models, read_weights(file), file)
    return folder, options, codec, models


def put_weights(models, weights, path):
    """Give the training model the weights of a file; `InputError` if they do not fit."""
    expected = [tuple(weight.shape) for weight in models.training.weights]
    if len(weights) > len(expected):
        # Runs of the first version have their layers' counts of training calls among the weights.
        weights = [weight for weight in weights if weight.shape]
    if [weight.shape for weight in weights] != expected:
        raise InputError(f"{path} does not fit the model: another segmentation or other sizes.")
    models.training.set_weights(weights)


def start_from(models, path, options, codec):
    """Copy the weights that a finished run's model shares with this one; `InputError` if the two do not fit."""
    folder, other_options, other_codec, other = load_run(path)
    if not _is_finished(folder, other_options):
        raise InputError(f"--init-from: {folder.path} has not been trained to its end. Go on with it: --resume.")
    # Reading it has set its seed and policy.
    set_up(options)
    sizes = ["segmentation", "lowercase", "embedding_width", "encoder_units", "units", "num_layers", "attention_units"]
    differing = [name for name in sizes if getattr(other_options, name) != getattr(options, name)]
    for side in ("source", "target"):
        if getattr(other_codec, side).vocabulary.tokens != getattr(codec, side).vocabulary.tokens:
            differing.append(f"{side} vocabulary")
    if differing:
        raise InputError(f"--init-from: {folder.path} is another model: {', '.join(differing)} differ.")
    found = {weight.path: weight for weight in other.training.weights}
    copied = [weight for weight in models.training.trainable_weights if weight.path in found]
    for weight in copied:
        weight.assign(found[weight.path])
    return len(copied)


def _is_finished(folder, options):
    try:
        record = json.loads((folder.path / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    # A run that goes on for more epochs has the report of fewer.
    return record["epochs"] >= options.epochs


def train(options):
    """Train one row, report on held-out pairs, write samples, pictures and the SavedModel."""
    validate(options)
    config = dataclasses.asdict(options)
    if RunFolder.check(options.out, config, options.resume, MAY_DIFFER) is not None:
        refuse_fewer_epochs(options)
    print(f"reading pairs for {options.row}", flush=True)
    splits = load_splits_of(RunFolder.load(options.out), options) if options.resume else load_splits(options)
    codec = _codec(options, splits)
    encoded = {
        name: EncodedPairs.encode(options, codec, pairs, name == "train", splits.posteriors.get(name))
        for name, pairs in (("train", splits.train), ("valid", splits.valid), ("test", splits.test))
        if pairs is not None
    }
    set_up(options)
    models = nmt_model.build(options, codec.source.vocabulary_size, codec.target.vocabulary_size)
    # A run that was killed before its first checkpoint starts again, and not from other weights.
    if options.init_from is not None and not (pathlib.Path(options.out) / CHECKPOINT).exists():
        print(f"{start_from(models, options.init_from, options, codec)} weights of {options.init_from}", flush=True)
    folder = RunFolder.open(options.out, config, options.resume, MAY_DIFFER)
    codec.save(folder)
    # After the segmentation: a folder with this file can be resumed.
    splits.remember(folder)
    for name, part in encoded.items():
        counts = ", ".join(f"{value} {key.replace('num_', '').replace('_', ' ')}" for key, value in part.report.items())
        print(f"{name}: {counts}", flush=True)
    rows = _fit(options, folder, models, encoded)
    put_weights(models, read_weights(folder.path / "weights/best.npz"), "weights/best.npz")
    with replacing(folder.file("model.keras")) as temporary:
        models.training.save(temporary)
    split = "valid" if splits.test is None else "test"
    inference = Inference.parse(default_inference(options.row), options.row)
    report, sentences = evaluate_split(
        models, codec, options, splits.split(split), encoded[split], inference, splits.links.get(split)
    )
    record = {
        "row": options.row,
        "seed": options.seed,
        "split": split,
        "report": report,
        "best_epoch": 1 + int(np.argmin([row["val_loss"] for row in rows])),
        "valid_loss": min(row["val_loss"] for row in rows),
        # The first epoch traces the graph.
        "step_seconds": float(np.median([row["step_seconds"] for row in rows[1:] or rows])),
        "train_seconds": sum(row["seconds"] for row in rows),
        "epochs": len(rows),
        "steps": len(rows) * encoded["train"].num_batches(options),
        "parameters": models.parameters,
        "data": {name: part.report for name, part in encoded.items()},
        "options": dataclasses.asdict(options),
        "environment": environment_record(),
    }
    write_report(folder, record, sentences)
    write_pictures(folder, options, models, codec, rows, splits.split(split), encoded[split])
    if options.export:
        export(Translator(models, codec, options, inference), folder.file("saved_model"))
    # Last, so that a folder with this file holds everything.
    write_json(folder.file("metrics.json"), record)
    print((folder.path / "report.txt").read_text(encoding="utf-8"))
    print(f"written: {folder.path}", flush=True)


def _codec(options, splits):
    """Return the segmentation: that of the run that is resumed or started from, or a new one."""
    if options.resume and (pathlib.Path(options.out) / DIGEST).exists():
        return Codec.load(RunFolder.load(options.out), options)
    if options.init_from is not None:
        return Codec.load(RunFolder.load(options.init_from), options)
    return Codec.fit(options, splits.train)


def _fit(options, folder, models, encoded):
    """Train; return the history rows, one an epoch."""
    compile_model(models, options)
    checkpoint = Checkpoint(folder.file(CHECKPOINT))
    first_epoch, rows = checkpoint.restore(models.training)
    if first_epoch:
        print(f"resuming after epoch {first_epoch}", flush=True)
    checkpoint.rows = list(rows)
    history = HistoryWriter(folder.file("history.csv"), rows)
    if first_epoch < options.epochs:
        models.training.fit(
            encoded["train"].batches(options, shuffle=True, first_epoch=first_epoch, num_epochs=None),
            validation_data=encoded["valid"].batches(options),
            initial_epoch=first_epoch,
            epochs=options.epochs,
            steps_per_epoch=encoded["train"].num_batches(options),
            verbose=2,
            shuffle=False,
            callbacks=[
                StopOnNaN(),
                StepProgress(),
                EpochSeconds(),
                StepSeconds(),
                HalveOnPlateau(options.patience, rows),
                KeepWeights(folder, rows),
                checkpoint,
                history,
                keras.callbacks.TensorBoard(folder.file("logs"), write_graph=False),
            ],
        )
    else:
        history.write()
    return list(history.rows)
