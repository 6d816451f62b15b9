"""One training run, of whatever program: from options to a run folder with everything in it."""

import contextlib
import functools
import math
import pathlib
import shutil
import sys

import keras
import numpy as np
import tensorflow as tf

from applications.common.application import Run
from applications.common.callbacks import (
    DecayOnPlateau,
    EpochLines,
    EpochSeconds,
    HistoryWriter,
    LearningRate,
    StepProgress,
    StepSeconds,
    StopEarly,
    StopOnNaN,
    epochs_without_better,
)
from applications.common.checkpoint import Checkpoint, KeepWeights, read_weights, steps_of
from applications.common.errors import InputError
from applications.common.optimizers import optimizer_of
from applications.common.program import config_of
from applications.common.reporting import counts_of, write_curves, write_report
from applications.common.runs import (
    CHECKPOINT,
    CODEC,
    HISTORY,
    WEIGHTS,
    RunFolder,
    digest_of,
    environment_record,
    replacing,
    write_json,
    write_lines,
)
from applications.common.serving import save_module


def train(application, options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    program = application.program
    folder = RunFolder.load(options.run.out) if options.run.resume else None
    set_up(options)
    print(f"reading data for {options.model}", flush=True)
    data = application.read(options)
    if not {"train", "valid"} <= data.keys() <= {"train", "valid", "test"}:
        raise TypeError(f"read must return the parts train, valid and, perhaps, test. Received: {', '.join(data)}")
    digest = digest_of(data)
    if folder is not None:
        folder.require_data(digest)
    elif options.run.continue_training:
        RunFolder.load(options.run.start_from).require_data(digest)
    codec = _codec(application, options, folder, data)
    encoded = {name: application.encode(options, codec, part, training=name == "train") for name, part in data.items()}
    # Whatever reading has drawn, the model's weights are those of its seed.
    keras.utils.set_random_seed(options.run.seed)
    with scope(options):
        models = application.build(options, codec)
    run = Run(folder, options, encoded, codec, models)
    # What is wrong with its options is said before a folder is made.
    num_batches, scheduled, total = _steps(application, run)
    _optimizer(application, run, num_batches, scheduled)
    if folder is None and options.run.continue_training:
        _check_steps(options, steps_of(pathlib.Path(options.run.start_from, CHECKPOINT), num_batches), total - 1)
    # A run that was killed before its first checkpoint starts again, and not from other weights.
    if folder is None or not (folder.path / CHECKPOINT).exists():
        application.initialize(run)
        if options.run.start_from is not None:
            print(f"{start_from(run, options.run.start_from)} weights of {options.run.start_from}", flush=True)
    if options.run.overwrite:
        set_aside(options.run.out)
    run.folder = RunFolder.open(
        options.run.out, config_of(options), options.run.resume, program.changeable, config_of(program.default)
    )
    if hasattr(codec, "save"):
        codec.save(run.folder)
    else:
        write_json(run.folder.file(CODEC), codec)
    # After the codec: a folder with this file can be resumed.
    run.folder.remember_data(digest)
    reports = {name: getattr(part, "report", {}) for name, part in encoded.items()}
    for name, report in reports.items():
        if report:
            print(counts_of(name, report), flush=True)
    rows, steps = fit(application, run)
    _finish(application, run, rows, steps, reports)


def set_up(options):
    """Set seeds, dtype policy and memory growth for this process; before anything is computed."""
    fit = options.fit
    if fit.memory_growth:
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
    keras.config.set_dtype_policy("float32" if fit.mixed_precision == "none" else f"mixed_{fit.mixed_precision}")
    keras.utils.set_random_seed(options.run.seed)


def scope(options):
    """Return the context in which a model of these options is built and compiled."""
    return contextlib.nullcontext() if options.fit.strategy == "none" else _mirrored().scope()


@functools.cache
def _mirrored():
    # One object a process: the model belongs to the strategy that it was built under.
    return tf.distribute.MirroredStrategy()


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
    """Give a model the weights of a file, and return the record of their epoch; `InputError` if they do not fit."""
    _, weights, record = read_weights(path)
    if [weight.shape for weight in weights] != [tuple(weight.shape) for weight in model.weights]:
        raise InputError(f"{path} does not fit the model that config.yaml describes.")
    model.set_weights(weights)
    return record


def start_from(run, path):
    """Copy the weights that a finished run's model shares with this one; return how many."""
    names, weights, _ = read_weights(RunFolder.load(path).path / WEIGHTS)
    found = dict(zip(names, weights, strict=True))
    shared = [weight for weight in run.models.training.weights if weight.path in found]
    differing = [weight.path for weight in shared if tuple(weight.shape) != found[weight.path].shape]
    if differing or not shared:
        raise InputError(f"--start-from: {path} is another model: {', '.join(differing) or 'no weight'} is shared.")
    for weight in shared:
        weight.assign(found[weight.path])
    return len(shared)


def set_aside(path):
    """Rename the folder of a run that is overwritten; what was there goes when the new one has finished."""
    path, aside = pathlib.Path(path), _aside(path)
    if path.exists():
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)


def _aside(path):
    path = pathlib.Path(path).absolute()
    return path.with_name(f"{path.name}.overwritten")


def _steps(application, run):
    """Return the batches of an epoch, the steps of the schedules, and those after which the run ends."""
    options, num_batches = run.options.fit, application.num_batches(run, run.data["train"])
    steps = min(options.epochs * num_batches, options.max_steps or math.inf)
    return num_batches, steps, max(1, steps * (options.stop_after or options.epochs) // options.epochs)


def _check_steps(options, done, most):
    if done > most:
        raise InputError(f"--max-steps: the run has taken {done} steps already. Received: {options.fit.max_steps}")


def _optimizer(application, run, num_batches, num_steps):
    return optimizer_of(run.options.fit, num_batches, num_steps, application.learning_rate(run.options))


def fit(application, run):
    """Train, or go on with it; return the history rows, one an epoch, and the number of steps, which counts the steps
    of a run whose training this one continues."""
    options, model = run.options.fit, run.models.training
    part = run.data["train"]
    num_batches, scheduled, total = _steps(application, run)
    # The last epoch has fewer steps where their number is limited.
    steps_of_epoch = [min(num_batches, total - start) for start in range(0, total, num_batches)]
    with scope(run.options):
        optimizer = _optimizer(application, run, num_batches, scheduled)
        model.compile(optimizer=optimizer, jit_compile=options.jit_compile, **application.compile(run))
        # Variables that are made while a step is traced have TensorFlow trace it twice.
        model.optimizer.build(model.trainable_variables)
    keep = KeepWeights(run.folder.file(WEIGHTS), application.score, options.keep)
    history = HistoryWriter(run.folder.file(HISTORY))
    checkpoint = Checkpoint(
        run.folder.file(CHECKPOINT),
        num_batches,
        options.checkpoint_steps,
        options.checkpoint_seconds,
        beside=(keep, history),
    )
    checkpoint.restore(model)
    begins = not checkpoint.path.exists()
    if begins and run.options.run.continue_training:
        checkpoint.take_over(model, pathlib.Path(run.options.run.start_from, CHECKPOINT))
    done = checkpoint.epoch * num_batches + checkpoint.step
    if done:
        print(f"resuming after epoch {checkpoint.epoch}, step {checkpoint.step}", flush=True)
    _check_steps(run.options, done, total)
    history.rows = list(checkpoint.rows)
    if done == total and checkpoint.unfinished:
        history.rows.append(checkpoint.unfinished)
    history.write()
    scores = [application.score(row) for row in checkpoint.rows]
    shown = sys.stdout.isatty()
    callbacks = [
        StopOnNaN(checkpoint),
        EpochSeconds(checkpoint),
        StepSeconds(),
        *application.callbacks(run),
        LearningRate(),
    ]
    if options.schedule == "plateau":
        callbacks.append(DecayOnPlateau(options.learning_rate_decay, options.patience, scores, application.score))
    if options.early_stopping:
        waited = [application.patience_score(row) for row in checkpoint.rows]
        callbacks.append(StopEarly(options.early_stopping, waited, application.patience_score))
    callbacks += [keep, history, checkpoint]
    if not shown:
        callbacks += [EpochLines(len(steps_of_epoch)), StepProgress(checkpoint, num_batches)]
    if options.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(run.folder.file("logs"), write_graph=False))

    def has_stopped():
        scores = [application.patience_score(row) for row in checkpoint.rows]
        return bool(options.early_stopping) and epochs_without_better(scores) >= options.early_stopping

    while checkpoint.epoch * num_batches + checkpoint.step < total and not has_stopped():
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
            verbose=1 if shown else 0,
            shuffle=False,
            callbacks=callbacks,
        )
    return history.rows, checkpoint.epoch * num_batches + checkpoint.step


def _codec(application, options, folder, data):
    """Return the codec: that of the run that is resumed or started from, or a new one."""
    if folder is not None and folder.has_data():
        return application.load_codec(options, folder)
    if options.run.start_from is None:
        return application.codec(options, data)
    return application.load_codec(options, RunFolder.load(options.run.start_from))


def _finish(application, run, rows, steps, reports):
    """Report on the trained model, and write all that a finished run leaves."""
    options, model, folder = run.options, run.models.training, run.folder
    kept = put_weights(model, folder.path / WEIGHTS)
    # Without the optimizer, whose state is the checkpoint's.
    model.optimizer, model.compiled = None, False
    with replacing(folder.file("model.keras")) as temporary:
        model.save(temporary)
    split = "test" if "test" in run.data else "valid"
    figures, outputs = application.evaluate(run, run.data[split])
    record = {
        "program": application.program.name,
        "model": options.model,
        "seed": options.run.seed,
        "split": split,
        "report": figures,
        "epoch": kept["epoch"],
        "history": kept["row"],
        # The first epoch traces the graph.
        "step_seconds": float(np.median([row["step_seconds"] for row in rows[1:] or rows])),
        "train_seconds": sum(row["seconds"] for row in rows),
        "epochs": rows[-1]["epoch"],
        "steps": steps,
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
    example = application.example_of(run.data[split])
    write_report(application, folder, record, lines, example, exported=endpoints is not None)
    # Last, so that a folder with this file holds everything.
    write_json(folder.file("metrics.json"), record)
    shutil.rmtree(_aside(folder.path), ignore_errors=True)
    print((folder.path / "report.txt").read_text(encoding="utf-8"), flush=True)
