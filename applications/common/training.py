"""One training run, of whatever program: from options to a run folder with everything in it."""

import contextlib
import json
import math
import pathlib
import shutil
import sys

import keras
import numpy as np
import tensorflow as tf

from applications.common.application import Run
from applications.common.callbacks import (
    Checkpoint,
    DecayOnPlateau,
    EpochSeconds,
    HistoryWriter,
    KeepWeights,
    LearningRate,
    StepProgress,
    StepSeconds,
    StopEarly,
    StopOnNaN,
    epochs_without_better,
    read_weights,
)
from applications.common.errors import InputError
from applications.common.options import values_of
from applications.common.program import config_of
from applications.common.reporting import write_curves, write_report
from applications.common.runs import (
    CODEC,
    WEIGHTS,
    RunFolder,
    digest_of,
    environment_record,
    replacing,
    write_json,
    write_lines,
)
from applications.common.serving import save_module

CHECKPOINT = "checkpoints/checkpoint.npz"


def train(application, options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    program = application.program
    folder = RunFolder.load(options.run.out) if options.run.resume else None
    print(f"reading data for {options.model}", flush=True)
    data = application.read(options)
    digest = digest_of(data)
    if folder is not None:
        folder.require_data(digest)
    codec = _codec(application, options, folder, data)
    encoded = {name: application.encode(options, codec, part, training=name == "train") for name, part in data.items()}
    set_up(options)
    with scope(options):
        models = application.build(options, codec)
    run = Run(folder, options, encoded, codec, models)
    # A run that was killed before its first checkpoint starts again, and not from other weights.
    if folder is None or not (folder.path / CHECKPOINT).exists():
        application.initialize(run)
        if options.run.start_from is not None:
            print(f"{start_from(run, options.run.start_from)} weights of {options.run.start_from}", flush=True)
    if options.run.overwrite:
        remove(options.run.out)
    run.folder = RunFolder.open(options.run.out, config_of(options), options.run.resume, program.changeable)
    if hasattr(codec, "save"):
        codec.save(run.folder)
    else:
        write_json(run.folder.file(CODEC), codec)
    # After the codec: a folder with this file can be resumed.
    run.folder.remember_data(digest)
    reports = {name: getattr(part, "report", {}) for name, part in encoded.items()}
    for name, report in reports.items():
        if report:
            counts = [f"{value} {key.replace('num_', '').replace('_', ' ')}" for key, value in report.items() if value]
            print(f"{name}: {', '.join(counts)}", flush=True)
    rows = fit(application, run)
    _finish(application, run, rows, reports)


def set_up(options):
    """Set seeds, dtype policy and memory growth for this process; before any model is built."""
    fit = options.fit
    if fit.memory_growth:
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
    keras.config.set_dtype_policy("float32" if fit.mixed_precision == "none" else f"mixed_{fit.mixed_precision}")
    keras.utils.set_random_seed(options.run.seed)


def scope(options):
    """Return the context in which a model of these options is built and compiled."""
    if options.fit.strategy == "none":
        return contextlib.nullcontext()
    # One object a process: the model belongs to the strategy that it was built under.
    if "mirrored" not in _STRATEGIES:
        _STRATEGIES["mirrored"] = tf.distribute.MirroredStrategy()
    return _STRATEGIES["mirrored"].scope()


_STRATEGIES = {}


def load_run(application, path):
    """Return the `Run` in a folder, its weights loaded, its data not."""
    folder = RunFolder.load(path)
    options = application.program.options_of(folder)
    folder.require_weights()
    set_up(options)
    codec = application.load_codec(options, folder)
    models = application.build(options, codec)
    put_weights(models.training, folder.path / WEIGHTS)
    return Run(folder, options, {}, codec, models)


def put_weights(model, path):
    """Give a model the weights of a file; `InputError` if they do not fit."""
    _, weights = read_weights(path)
    if [weight.shape for weight in weights] != [tuple(weight.shape) for weight in model.weights]:
        raise InputError(f"{path} does not fit the model that config.yaml describes.")
    model.set_weights(weights)


def start_from(run, path):
    """Copy the weights that a finished run's model shares with this one; return how many."""
    names, weights = read_weights(RunFolder.load(path).path / WEIGHTS)
    found = dict(zip(names, weights, strict=True))
    shared = [weight for weight in run.models.training.trainable_weights if weight.path in found]
    differing = [weight.path for weight in shared if tuple(weight.shape) != found[weight.path].shape]
    if differing or not shared:
        raise InputError(f"--start-from: {path} is another model: {', '.join(differing) or 'no weight'} is shared.")
    for weight in shared:
        weight.assign(found[weight.path])
    return len(shared)


def remove(path):
    """Delete the run in a folder, if there is one; `InputError` if something else is there."""
    if pathlib.Path(path).exists():
        RunFolder.load(path)
        shutil.rmtree(path)


def fit(application, run):
    """Train, or go on with it; return the history rows, one an epoch."""
    options, model = run.options.fit, run.models.training
    part = run.data["train"]
    num_batches = application.num_batches(run, part)
    # The last epoch has fewer steps where their number is limited.
    total = min(options.epochs * num_batches, options.max_steps or math.inf)
    steps_of_epoch = [min(num_batches, total - start) for start in range(0, total, num_batches)]
    with scope(run.options):
        model.compile(
            optimizer=optimizer_of(options, num_batches, total), jit_compile=options.jit, **application.compile(run)
        )
        # Variables that are made while a step is traced have TensorFlow trace it twice.
        model.optimizer.build(model.trainable_variables)
    checkpoint = Checkpoint(run.folder.file(CHECKPOINT), options.checkpoint_steps)
    checkpoint.restore(model)
    if checkpoint.epoch or checkpoint.step:
        print(f"resuming after epoch {checkpoint.epoch}, step {checkpoint.step}", flush=True)
    rows = list(checkpoint.rows)
    history = HistoryWriter(run.folder.file("history.csv"), rows)
    history.write()
    shown = sys.stdout.isatty()
    callbacks = [
        StopOnNaN(checkpoint),
        EpochSeconds(),
        StepSeconds(),
        *application.callbacks(run),
        LearningRate(),
        *(
            [DecayOnPlateau(options.learning_rate_decay, options.patience, rows)]
            if options.schedule == "plateau"
            else []
        ),
        *([StopEarly(options.early_stopping, rows)] if options.early_stopping else []),
        KeepWeights(run.folder.file(WEIGHTS), options.keep, rows),
        checkpoint,
        *([] if shown else [StepProgress(checkpoint, num_batches)]),
        history,
        keras.callbacks.TensorBoard(run.folder.file("logs"), write_graph=False),
    ]
    while checkpoint.epoch < len(steps_of_epoch) and not _has_stopped(options, checkpoint.rows):
        first, skipped = checkpoint.epoch, checkpoint.step
        # Epochs of as many steps as the next one; only the first can be one that was begun, the last a shorter one.
        steps = steps_of_epoch[first] - skipped
        until = first + 1
        while not skipped and until < len(steps_of_epoch) and steps_of_epoch[until] == steps:
            until += 1
        model.fit(
            application.batches(run, part, first_epoch=first).skip(skipped),
            validation_data=application.batches(run, run.data["valid"]),
            initial_epoch=first,
            epochs=until,
            steps_per_epoch=steps,
            verbose=1 if shown else 2,
            shuffle=False,
            callbacks=callbacks,
        )
    return history.rows


def _has_stopped(options, rows):
    return bool(options.early_stopping) and (
        epochs_without_better([row["val_loss"] for row in rows]) >= options.early_stopping
    )


def optimizer_of(options, num_batches, num_steps):
    """Return the optimizer of `FitOptions`, for epochs of so many batches and so many steps in all."""
    num_batches, num_steps = num_batches / options.accumulate, max(1, num_steps // options.accumulate)
    rate = options.learning_rate
    if options.schedule == "cosine":
        warmup = {"warmup_target": rate, "warmup_steps": options.warmup_steps} if options.warmup_steps else {}
        rate = keras.optimizers.schedules.CosineDecay(
            0.0 if warmup else rate, max(1, num_steps - options.warmup_steps), **warmup
        )
    elif options.schedule == "exponential" or options.warmup_steps:
        factor = options.learning_rate_decay if options.schedule == "exponential" else 1.0
        rate = StepDecay(
            rate, factor, options.decay_after * num_batches, options.decay_every * num_batches, options.warmup_steps
        )
    optimizer_class = {
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "adagrad": keras.optimizers.Adagrad,
        "rmsprop": keras.optimizers.RMSprop,
        "sgd": keras.optimizers.SGD,
    }[options.optimizer]
    return optimizer_class(
        rate,
        weight_decay=options.weight_decay or None,
        global_clipnorm=options.clip_norm,
        gradient_accumulation_steps=options.accumulate if options.accumulate > 1 else None,
    )


@keras.saving.register_keras_serializable(package="applications")
class StepDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that is multiplied by a factor every so many steps, and grows from 0 before.

    Args:
        learning_rate: The first one.
        factor: Factor on it.
        after_steps: Steps before the first period.
        every_steps: Steps of a period.
        warmup_steps: Steps over which it grows to the first one.
    """

    def __init__(self, learning_rate, factor, after_steps, every_steps, warmup_steps=0):
        self.learning_rate = learning_rate
        self.factor = factor
        self.after_steps = after_steps
        self.every_steps = every_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        periods = keras.ops.maximum(keras.ops.floor((step - self.after_steps) / self.every_steps), 0.0)
        rate = self.learning_rate * keras.ops.power(self.factor, periods)
        return rate * keras.ops.minimum((step + 1.0) / self.warmup_steps, 1.0) if self.warmup_steps else rate

    def get_config(self):
        return dict(vars(self))


def _codec(application, options, folder, data):
    """Return the codec: that of the run that is resumed or started from, or a new one."""
    if folder is not None and folder.has_data():
        return application.load_codec(options, folder)
    if options.run.start_from is None:
        return application.codec(options, data)
    start = RunFolder.load(options.run.start_from)
    other, own = values_of(application.program.options_of(start)), values_of(options)
    differing = [name for name in application.codec_options if other[name] != own[name]]
    if differing:
        raise InputError(f"--start-from: {start.path} is another model: {', '.join(differing)} differ.")
    if not _is_finished(start, other["epochs"]):
        raise InputError(f"--start-from: {start.path} has not been trained to its end. Go on with it: --resume.")
    return application.load_codec(options, start)


def _is_finished(folder, epochs):
    try:
        record = json.loads((folder.path / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    # A run that goes on for more epochs has the report of fewer.
    return record["options"]["epochs"] >= epochs


def _finish(application, run, rows, reports):
    """Report on the trained model, and write all that a finished run leaves."""
    options, model, folder = run.options, run.models.training, run.folder
    put_weights(model, folder.path / WEIGHTS)
    # Without the optimizer, whose state is the checkpoint's.
    model.optimizer, model.compiled = None, False
    with replacing(folder.file("model.keras")) as temporary:
        model.save(temporary)
    split = "test" if "test" in run.data else "valid"
    figures, outputs = application.evaluate(run, run.data[split])
    losses = [row["val_loss"] for row in rows]
    kept = int(np.argmin(losses)) if options.fit.keep == "best" else len(rows) - 1
    record = {
        "program": application.program.name,
        "model": options.model,
        "seed": options.run.seed,
        "split": split,
        "report": figures,
        "epoch": kept + 1,
        "history": rows[kept],
        # The first epoch traces the graph.
        "step_seconds": float(np.median([row["step_seconds"] for row in rows[1:] or rows])),
        "train_seconds": sum(row["seconds"] for row in rows),
        "epochs": len(rows),
        "steps": min(len(rows) * application.num_batches(run, run.data["train"]), options.fit.max_steps or math.inf),
        "parameters": getattr(run.models, "parameters", {"all": model.count_params()}),
        "data": reports,
        "options": config_of(options),
        "environment": environment_record(),
    }
    for name, lines in application.files(outputs).items():
        write_lines(folder.file(f"{name}.txt"), lines)
    lines = application.report(run, run.data[split], record, outputs)
    write_curves(application, folder, options.model, rows)
    endpoints = application.endpoints(run) if options.run.export else None
    if endpoints is not None:
        save_module(*endpoints, folder.file("saved_model"))
    write_report(application, folder, record, lines, exported=endpoints is not None)
    # Last, so that a folder with this file holds everything.
    write_json(folder.file("metrics.json"), record)
    print((folder.path / "report.txt").read_text(encoding="utf-8"), flush=True)
