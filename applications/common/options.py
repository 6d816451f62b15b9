"""Defines the options of the programs as nested data classes.

On the command line and in YAML files, all options are in one flat list, so field names must be unique. pydantic
validates the value of each field. A method `check` validates several options together. This module does not import
TensorFlow, so that programs reject invalid options without delay.
"""

import dataclasses
import json
import pathlib
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from applications.common.errors import InputError


def condition(words, holds):
    """Return a validator for `Annotated`. If `holds(value)` is false, pydantic raises an error `words`."""

    def validate(value):
        if not holds(value):
            raise PydanticCustomError("condition", words)
        return value

    return AfterValidator(validate)


class OnDisk(AfterValidator):
    """A `condition` on a path. `check(files=False)` skips it, for files of a run that no longer exist."""

    def __init__(self, words, holds):
        checked = condition(words, lambda path: holds(pathlib.Path(path)))
        super().__init__(lambda path, info: checked.func(path) if info.context else path)


Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
NoneOrSeveral = Annotated[int, condition("must be 0 or at least 2", lambda value: value == 0 or value >= 2)]
NotNegativeFloat = Annotated[float, Field(ge=0)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**22)]
Seed32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
# `path.is_file()` would reject pipes.
File = Annotated[str, OnDisk("no such file", lambda path: path.exists() and not path.is_dir())]
Folder = Annotated[str, OnDisk("no such folder", lambda path: path.is_dir())]
FileName = Annotated[
    str, condition("must be the name of a file, without a folder", lambda x: pathlib.Path(x).name == x)
]
_IS_RUN = "must be the folder of a run, with its config.yaml"
TrainedRun = Annotated[str, OnDisk(_IS_RUN, lambda path: (path / "config.yaml").is_file())]


def group(options_class, **defaults):
    """Return a dataclass field for a group of options. `defaults` override defaults of `options_class`."""
    return dataclasses.field(default_factory=lambda: options_class(**defaults))


@dataclasses.dataclass
class RunOptions:
    """Run"""

    out: str
    """Folder of the run."""
    resume: bool = False
    """Continue the run in the folder --out; its options need not be repeated."""
    overwrite: bool = False
    """Start again: rename the existing run in the folder --out, and delete it when the new run has finished."""
    start_from: str | None = None
    """Folder of a finished run to start from. The new run copies the optimizer, the step and all weights that exist in
    both models, and continues the schedules. The epochs of the finished run count towards --epochs."""
    seed: Seed = 0
    """Seed of the initial weights, the random noise and the order of the batches."""
    export: bool = True
    """Write a SavedModel at the end of training."""

    def layer_seed(self, index):
        """Return the seed of the stochastic layer `index`, which depends only on --seed and the index."""
        return 256 * self.seed + index % 256 + (index // 256 << 24)

    def check(self):
        if self.resume and self.overwrite:
            raise InputError("--overwrite and --resume cannot be used together.")


@dataclasses.dataclass
class FitOptions:
    """Training"""

    batch_size: Positive = 32
    """Number of examples per batch."""
    epochs: Positive = 10
    """Number of passes over the training data."""
    max_steps: Positive | None = None
    """Stop after this many steps, even within an epoch."""
    optimizer: Literal["adam", "adamw", "adagrad", "rmsprop", "sgd"] = "adam"
    """Optimizer; sgd has no momentum."""
    beta_2: Dropout = 0.999
    """Decay rate of the squared gradients, for adam and adamw."""
    learning_rate: PositiveFloat = 1e-3
    """Learning rate at the first step or, with a warm-up, at the end of the warm-up."""
    weight_decay: NotNegativeFloat | None = None
    """Decoupled weight decay; none for the default of the optimizer: 0.004 for adamw, 0 for all others."""
    schedule: Literal["constant", "exponential", "linear", "cosine", "plateau"] = "constant"
    """Learning rate schedule. exponential: multiply by learning_rate_decay every decay_every epochs; linear, cosine:
    decay to 0 at the last step; plateau: multiply by learning_rate_decay after more than `patience` epochs without a
    lower validation loss."""
    learning_rate_decay: Share = 0.5
    """Factor on the learning rate at each decay, in the schedules exponential and plateau."""
    decay_after: NotNegative = 0
    """Epochs before the schedule exponential starts. The first decay is decay_every epochs later."""
    decay_every: Positive = 1
    """Epochs between two decays of the schedule exponential."""
    patience: NotNegative = 0
    """Epochs without a lower validation loss before the schedule plateau lowers the learning rate."""
    warmup_steps: NotNegative = 0
    """Warm-up: the learning rate grows from 0 over this many steps."""
    warmup_epochs: NotNegative = 0
    """Alternative to --warmup-steps: the learning rate grows over this many epochs, in one increment per epoch."""
    clip_norm: PositiveFloat | None = 5.0
    """Clip the global norm of the gradients to this value; none: no clipping."""
    clip_value: PositiveFloat | None = None
    """Clip each element of the gradients to this absolute value; if set, --clip-norm is ignored."""
    early_stopping: Positive | None = None
    """Stop after this many epochs without a lower validation loss."""
    keep: Literal["best", "last"] = "best"
    """Epoch whose weights are reported and exported. best: epoch with the lowest validation loss; last: last epoch."""
    checkpoint_steps: Positive | None = 500
    """Save the training state after each epoch, and also at intervals of this many steps; none: only after epochs."""
    tensorboard: bool = True
    """Write logs for TensorBoard."""
    jit: Literal["auto", "on", "off"] = "auto"
    """Compile the training step with XLA. auto: on a GPU, if all layers allow it; on: always, and without cuDNN."""
    mixed_precision: Literal["none", "float16", "bfloat16"] = "none"
    """Half-precision type of the computation; none: float32. Weights and losses are always float32."""
    strategy: Literal["none", "mirrored", "multi_worker"] = "none"
    """Split each batch between copies of the model. mirrored: copies on all GPUs of this machine; multi_worker: copies
    on the machines that TF_CONFIG names; run the same command on each machine."""

    def check(self):
        if self.warmup_steps and self.schedule == "plateau":
            raise InputError("--warmup-steps: the schedule plateau has no warm-up; choose another --schedule.")
        if self.warmup_epochs and self.schedule not in ("constant", "exponential"):
            raise InputError(
                f"--warmup-epochs: the schedule {self.schedule} has no warm-up; choose another --schedule."
            )
        if self.warmup_epochs and self.warmup_steps:
            raise InputError("--warmup-epochs and --warmup-steps cannot be used together.")
        if self.jit == "on" and self.strategy != "none":
            raise InputError("--jit: XLA cannot compile a training step on several replicas; omit --jit or --strategy.")

    @property
    def use_cudnn(self):
        """Argument `use_cudnn` of LSTM layers: `False` with XLA, which cannot compile cuDNN kernels."""
        return False if self.jit == "on" else "auto"

    @property
    def jit_compile(self):
        """Argument `jit_compile` of `keras.Model.compile`."""
        return {"auto": "auto" if self.strategy == "none" else False, "on": True, "off": False}[self.jit]


def check_workers(text):
    """Raise `InputError` if the text is not a valid TF_CONFIG for this process."""
    try:
        config = json.loads(text)
        workers, task = config["cluster"][config["task"]["type"]], config["task"]
        is_named = 0 <= int(task["index"]) < len(workers)
    except (KeyError, TypeError, ValueError):
        is_named = False
    if not is_named:
        raise InputError(
            "--strategy multi_worker: the environment variable TF_CONFIG must name the workers and this process, "
            '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}. '
            f"Received: {text}"
        )


@dataclasses.dataclass
class EvaluateOptions:
    """Compute the metrics of a trained run on a split of its data."""

    run: TrainedRun
    """Folder of the run."""
    split: Literal["valid", "test"] = "valid"
    """Data split to evaluate on."""
    name: FileName | None = None
    """Name of the report, without .json; evaluation_SPLIT by default."""
    out: str | None = None
    """Folder in which the report is written; the run's folder by default."""


@dataclasses.dataclass
class GenerateOptions:
    """Read lines from a file or standard input, and print the model's output for each line."""

    run: TrainedRun
    """Folder of the run."""
    input: File | None = None
    """File with one input per line, plain or .gz; standard input by default."""


@dataclasses.dataclass
class ExportOptions:
    """Write the model of a trained run as a SavedModel."""

    run: TrainedRun
    """Folder of the run."""
    out: str | None = None
    """Folder in which the SavedModel is written; RUN/saved_model by default."""

    def check(self):
        path = pathlib.Path(self.out or pathlib.Path(self.run, "saved_model"))
        if path.exists() and not (path / "saved_model.pb").is_file() and (path.is_file() or any(path.iterdir())):
            raise InputError(f"--out: {path} is not empty and contains no SavedModel. Choose a new or empty folder.")


@dataclasses.dataclass
class CompareOptions:
    """Train models with several seeds on the same data. Print their metrics and the differences from the baseline,
    with 95% intervals. All options of `train` are accepted and apply to every run."""

    # Options of `train` on the command line. An annotation would turn this attribute into an option of `compare`.
    train_values = {}

    out: str = "runs/compare"
    """Folder that contains a folder per run. Finished runs are not trained again; runs with fewer epochs continue."""
    models: tuple[str, ...] = ()
    """Models to train, each written MODEL[@START][:option=value,...]. MODEL@START first trains the model START, then
    continues with MODEL (`train --start-from`). Options of `train` after the colon apply to this model only."""
    baseline: str = ""
    """Model with which all other models are compared."""
    seeds: Positive = 3
    """Number of runs of each model, by default with the seeds 0, 1, 2, ...; models are compared at equal seeds."""
    first_seed: Seed = 0
    """Seed of the first run of each model; further runs have the next integers as seeds."""
    preset: str | None = None
    """Name of a preset of `train` that applies to every run."""
    options: File | None = None
    """YAML file with options of `train` for every run, in the format of `train --config`."""
    start_epochs: Positive | None = None
    """For MODEL@START: how many of the --epochs train START; half by default. --max-steps is divided in proportion."""
    results: str | None = None
    """Also write the command, the options and the metrics of every run into this .json file, which is small enough to
    commit. The same command with other --models or another --first-seed adds its runs to the file."""
    jobs: Positive = 1
    """Number of runs to train in parallel, in processes that share the cores and the GPUs."""

    def check(self):
        if not self.models:
            raise InputError("--models: name at least one model.")
        if len(set(self.models)) < len(self.models):
            raise InputError(f"--models: expected each model only once. Received: {' '.join(self.models)}")
        path = None if self.results is None else pathlib.Path(self.results)
        if path is not None and not (path.suffix == ".json" and path.parent.is_dir()):
            raise InputError(f"--results: must be a .json file in an existing folder. Received: {path}")


@dataclasses.dataclass
class UncertaintyOptions:
    """Compare a run's sampled predictions with its mean prediction, on test, corrupted and out-of-distribution data."""

    run: TrainedRun
    """Folder of the run."""
    name: FileName = "uncertainty"
    """Name, without extension, of the .json file of metrics and the .npz file of predictions at the mean attention."""
    out: str | None = None
    """Folder in which both files are written; the run's folder by default."""
    num_draws: NoneOrSeveral | None = None
    """Number of sampled predictions, at least 2, or 0 for none; defaults to the number in the report of the run."""


@dataclasses.dataclass
class CompareClassesOptions(CompareOptions):
    """Options of `compare`, including those of `--layout uncertainty`."""

    ensemble: NoneOrSeveral = 5
    """Layout uncertainty: train ensembles of the baseline with this many members, one seed each; 0: no ensembles."""

    @property
    def num_members(self):
        """Number of members of each ensemble; 0 without `--layout uncertainty`."""
        return self.ensemble if "uncertainty" in self.layout else 0

    def check(self):
        super().check()
        for name in ("other", "corruption"):
            if getattr(self, name) is not None and "uncertainty" not in self.layout:
                raise InputError(f"--{name} requires --layout uncertainty.")
        if self.num_members and self.baseline not in self.models:
            raise InputError(f"--baseline: ensembles need a baseline in --models. Received: {self.baseline}")


COMMANDS = {"evaluate": EvaluateOptions, "predict": GenerateOptions, "compare": CompareOptions, "export": ExportOptions}
