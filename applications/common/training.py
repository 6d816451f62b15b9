"""Trains a model and writes its run folder. All programs use this module."""

import functools
import math
import pathlib
import sys
import time

import keras
import numpy as np

from applications.common import runs
from applications.common.application import Run
from applications.common.callbacks import EpochLog, Plateau
from applications.common.checkpoint import Checkpoint, read_state, read_weights, training_variables
from applications.common.environment import environment_record
from applications.common.errors import InputError
from applications.common.optimizers import optimizer_of
from applications.common.option_values import fields_of, is_file, values_of, with_values
from applications.common.program import config_of
from applications.common.replicas import SharedLog, agree, strategy_of, worker_folder
from applications.common.reporting import counts_of, write_report
from applications.common.serving import save_module
from applications.common.shown import SHOWN
from applications.common.training_curves import training_curves
from applications.common.writers import delete_aside, set_aside, unlock
from keras_vattn import distribute
from keras_vattn.plots.chart import require_altair


class TrainingRun(Run):
    """A `Run` during training.

    A program's function `train(options)` calls the methods `read`, `build`, `schedule`, `open`, `fit` and `finish` in
    this order. After `build`, the function sets the initial weights and compiles the model.

    Args:
        program: `Program`.
        options: Options of `train`.
    """

    def __init__(self, program, options):
        require_altair()
        self._cpu_start = time.process_time()
        # TensorFlow requires that the strategy is created before any computation.
        self.strategy = strategy_of(options.fit.strategy)
        self.is_first = self.strategy.extended.should_checkpoint
        if not self.is_first:
            # After `agree`, the first worker may change the folder, so copy it before.
            options = with_values(options, {"out": worker_folder(options.run.out, keep=options.run.resume)})
        places = {"out", "start_from", *(name for name, kind in fields_of(type(options)).items() if is_file(kind))}
        values = {f"--{name.replace('_', '-')}": x for name, x in config_of(options).items() if name not in places}
        agree(self.strategy, {"program, or its version": (program.name, *values)})
        agree(self.strategy, values)
        super().__init__(runs.RunFolder.load(options.run.out) if options.run.resume else None, options, {}, None, None)
        self.application = program.application()
        set_up(options)

    def read(self, fit_codec=None):
        """Read and encode the data. Return the training and the validation split.

        `fit_codec(options, training_split)` returns the codec of a new run. A resumed run loads its own codec. A run
        with --start-from loads the codec of the run that --start-from names.
        """
        application, options = self.application, self.options
        # The options --embeddings and --weights name no data, so the built-in data may still be used.
        files = {name for name, kind in fields_of(type(options)).items() if is_file(kind)} - {"embeddings", "weights"}
        named = any(values_of(options)[name] for name in files)
        source = "" if named else "; no data files given; using built-in data"
        print(f"reading data for {options.model}{source}", flush=True)
        data = application.read(options)
        self._digest = runs.digest_of(data)
        agree(self.strategy, {"data": self._digest})
        if self.folder is not None:
            self.folder.require_data(self._digest)
        if self.folder is not None and self.folder.has_data():
            self.codec = application.load_codec(options, self.folder)
        elif options.run.start_from is not None:
            self.codec = application.load_codec(options, runs.RunFolder.load(options.run.start_from))
        elif fit_codec is not None:
            self.codec = fit_codec(options, data["train"])
        self.data = {
            name: application.encode(options, self.codec, part, training=name == "train") for name, part in data.items()
        }
        # Reading may draw random numbers, which must not affect the initial weights.
        keras.utils.set_random_seed(options.run.seed)
        return self.data["train"], self.data["valid"]

    def build(self):
        """Build the models; return the `keras.Model` to train."""
        with self.scope():
            self.models = self.application.build_models(self.options, self.codec)
        return self.models.training

    def scope(self):
        """Return the strategy's context manager, in which the model must be built and compiled."""
        return self.strategy.scope()

    @property
    def is_new(self):
        """Whether the run has no checkpoint yet. Its model then needs initial weights."""
        return self.folder is None or not (self.folder.path / runs.CHECKPOINT).exists()

    def schedule(self, num_batches, learning_rate=None):
        """Compute `num_steps` from the training batches per epoch. `learning_rate` overrides the option.
        Raises `InputError` if the options and the number of steps contradict each other."""
        options = self.options
        if not num_batches:
            raise InputError("The data contain no training examples.")
        self.num_batches, self._learning_rate = num_batches, learning_rate
        self.num_steps = min(options.fit.epochs * num_batches, options.fit.max_steps or math.inf)
        self.optimizer()
        if options.run.start_from is not None and self.folder is None:
            _check_steps(options, self.first_step, self.num_steps - 1)

    @functools.cached_property
    def _start(self):
        return read_state(pathlib.Path(self.options.run.start_from, runs.CHECKPOINT))

    @property
    def first_step(self):
        """Number of steps taken by the run that --start-from names; 0 without this option."""
        if self.options.run.start_from is None:
            return 0
        record, *_ = self._start
        return record["epoch"] * self.num_batches + record["step"]

    def open(self):
        """Create the run's folder, or check an existing folder. Set the initial weights first."""
        options, program = self.options, self.application.program
        if self.is_new and options.run.start_from is not None:
            print(f"{self._num_shared_weights()} weights are copied from {options.run.start_from}", flush=True)
        if options.run.overwrite:
            set_aside(options.run.out)
        self.folder = runs.RunFolder.open(
            options.run.out, config_of(options), options.run.resume, program.changeable, program.updated
        )
        if hasattr(self.codec, "save"):
            self.codec.save(self.folder)
        else:
            runs.write_json(self.folder.file(runs.CODEC), self.codec)
        # Store the digest last: it marks a folder that can be resumed.
        self.folder.remember_data(self._digest)
        self._reports = {name: getattr(part, "report", {}) for name, part in self.data.items()}
        for name, report in self._reports.items():
            if report:
                print(counts_of(name, report), flush=True)

    def _num_shared_weights(self):
        _, names, arrays, _ = self._start
        shapes = {name: array.shape for name, array in zip(names, arrays, strict=True)}
        shared = [weight for weight in self.models.training.weights if weight.path in shapes]
        differing = [weight.path for weight in shared if tuple(weight.shape) != shapes[weight.path]]
        if differing or not shared:
            names = ", ".join(differing) or "all"
            raise InputError(
                f"--start-from: {self.options.run.start_from} does not fit this model. The names or shapes of these "
                f"weights differ: {names}. Choose a run whose layers have the same names and sizes."
            )
        return len(shared)

    def optimizer(self):
        """Return a new optimizer with the settings in the options."""
        return optimizer_of(self.options.fit, self.num_batches, self.num_steps, self._learning_rate)

    def fit(self, batches_from, valid, callbacks=(), score=lambda row: row["val_loss"], patience_score=None):
        """Train the compiled model to the end of the run, from the saved state if there is one.

        Args:
            batches_from: Function that takes the index of an epoch (0 for the first) and returns a dataset with the
                training batches of this and all later epochs. Each batch is split between the replicas.
            valid: Validation batches.
            callbacks: Callbacks of the program. The values that they add to the logs are stored in the history.
            score: Function of a row of the history; smaller is better. It selects the best weights and controls the
                schedule "plateau". Defaults to the validation loss.
            patience_score: Like `score`, but only for early stopping. Defaults to `score`.
        """
        options, model, total = self.options.fit, self.models.training, self.num_steps
        # Creating variables during tracing would cause a retrace.
        with self.scope():
            model.optimizer.build(model.trainable_variables)
            distribute.prepare(model)
        checkpoint = self.checkpoint = Checkpoint(self.folder, self.num_batches, options, score, self._cpu_start)
        if not self.is_new:
            checkpoint.restore(model)
        elif self.options.run.start_from is not None:
            checkpoint.take_over(model, self._start)
        done = checkpoint.steps_taken
        agree(self.strategy, {"weights and state of training": self._state_digest})
        if done:
            print(f"resuming after epoch {checkpoint.epoch}, step {checkpoint.step}", flush=True)
        _check_steps(self.options, done, total)
        if done < total:
            # If --max-steps cut an epoch short, its row is in the history, but this run continues the epoch.
            checkpoint.rows = [row for row in checkpoint.rows if row["epoch"] <= checkpoint.epoch]
        checkpoint.write_history()
        plateau = Plateau(checkpoint, options, score, patience_score or score)
        callbacks, valid = [EpochLog(checkpoint), *callbacks], distribute.shard(valid, self.strategy)
        if options.strategy == "multi_worker":
            callbacks.append(SharedLog(self.strategy))
        callbacks += [plateau, checkpoint]
        if options.tensorboard and self.is_first:
            callbacks.append(keras.callbacks.TensorBoard(self.folder.file("logs"), write_graph=False))
        num_full_epochs = total // self.num_batches
        while checkpoint.steps_taken < total and not plateau.ends_after(checkpoint.rows):
            first, skipped = checkpoint.epoch, checkpoint.step
            # One call of `fit` runs the same number of steps in each epoch, so a shorter epoch needs its own call.
            is_full = not skipped and first < num_full_epochs
            steps = min(self.num_batches, total - first * self.num_batches) - skipped
            model.fit(
                distribute.shard(batches_from(first).skip(skipped), self.strategy),
                validation_data=valid,
                initial_epoch=first,
                epochs=num_full_epochs if is_full else first + 1,
                steps_per_epoch=steps,
                callbacks=callbacks,
                verbose=1 if sys.stdout.isatty() else 2,
                shuffle=False,
            )

    def _state_digest(self):
        arrays = [variable.numpy() for variable in training_variables(self.models.training)]
        return runs.digest_of([self.checkpoint.steps_taken, *arrays])

    def finish(self):
        """Evaluate the model and write all files of a finished run. Only the first worker does this."""
        application, options, folder, rows = self.application, self.options, self.folder, self.checkpoint.rows
        if not self.is_first:
            return
        if options.fit.strategy == "multi_worker":
            # A model built under the strategy would wait for other workers.
            self.models = application.build_models(options, self.codec)
        model = self.models.training
        best = put_weights(model, folder.path / runs.WEIGHTS)
        # Save the model without its optimizer, whose state is in the checkpoint.
        model.optimizer, model.compiled = None, False
        with runs.replacing(folder.file("model.keras")) as temporary:
            model.save(temporary)
        split = "test" if "test" in self.data else "valid"
        figures, outputs = application.evaluate(self, self.data[split])
        record = {
            "program": application.program.name,
            "model": options.model,
            "seed": options.run.seed,
            "split": split,
            "report": figures,
            "epoch": best["epoch"],
            "history": best["row"],
            # Skip the first epoch, whose time includes tracing.
            "step_seconds": float(np.median([row["step_seconds"] for row in rows[1:] or rows])),
            "train_seconds": sum(row["seconds"] for row in rows),
            "cpu_seconds": self.checkpoint.cpu_seconds(),
            "epochs": rows[-1]["epoch"],
            "steps": self.checkpoint.steps_taken,
            "parameters": getattr(self.models, "parameters", {"all": model.count_params()}),
            "data": self._reports,
            "options": config_of(options),
            "environment": environment_record(),
        }
        for name, lines in application.files(outputs).items():
            runs.write_lines(folder.file(f"{name}.txt"), lines)
        shown = application.shown(self, self.data[split], outputs)
        runs.write_json(folder.file(SHOWN), shown.record(), indent=None)
        lines = application.report(self, self.data[split], record, outputs, shown)
        training_curves({options.model: [rows]}, application.curves, folder.file("curves.png"))
        endpoints = application.endpoints(self)
        if endpoints is not None and options.run.export:
            save_module(*endpoints, folder.file("saved_model"))
        write_report(self, record, shown, lines, endpoints is not None)
        # Write this file last: it marks the run as finished.
        runs.write_json(folder.file("metrics.json"), record)
        delete_aside(folder.path)
        unlock()
        print((folder.path / "report.txt").read_text(encoding="utf-8"), flush=True)


def set_up(options):
    """Set the random seeds and the dtype policy of this process. Call this before any computation."""
    precision = options.fit.mixed_precision
    keras.config.set_dtype_policy("float32" if precision == "none" else f"mixed_{precision}")
    keras.utils.set_random_seed(options.run.seed)


def load_run(application, path):
    """Return the trained `Run` in a folder. Its `data` is empty."""
    folder = runs.RunFolder.load(path)
    options = application.program.options_of(folder)
    folder.require_weights()
    set_up(options)
    codec = application.load_codec(options, folder)
    models = application.build_models(options, codec)
    put_weights(models.training, folder.path / runs.WEIGHTS)
    return Run(folder, options, {}, codec, models)


def put_weights(model, path):
    """Load weights.npz into a model. Return its record; raise `InputError` if shapes differ."""
    _, weights, record = read_weights(path)
    if [weight.shape for weight in weights] != [tuple(weight.shape) for weight in model.weights]:
        raise InputError(f"{path} does not fit the model in config.yaml. Restore the original files, or train again.")
    model.set_weights(weights)
    return record


def _check_steps(options, done, most):
    if done > most:
        raise InputError(f"--max-steps: the run has already taken {done} steps. Received: {options.fit.max_steps}")
