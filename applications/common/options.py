"""Options of the programs: nested data classes, whose field names form one flat set on the command line, in YAML files
and in config.yaml.

An annotation states the valid values of an option, for pydantic. A class's method `check` checks several options
together. This module does not import TensorFlow, so that invalid options are rejected before it is loaded.
"""

import dataclasses
import json
import pathlib
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from applications.common.errors import InputError


def condition(words, holds):
    """Return a validator for `Annotated`: pydantic raises an error with the message `words` unless `holds(value)`."""

    def validate(value):
        if not holds(value):
            raise PydanticCustomError("condition", words)
        return value

    return AfterValidator(validate)


class OnDisk(AfterValidator):
    """A `condition` on a path. It is checked only if the context of pydantic is true: a run's files may be gone."""

    def __init__(self, words, holds):
        checked = condition(words, lambda path: holds(pathlib.Path(path)))
        super().__init__(lambda path, info: checked.func(path) if info.context else path)


Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
NoneOrSeveral = Annotated[int, condition("must be 0, or 2 at least", lambda value: value == 0 or value >= 2)]
NotNegativeFloat = Annotated[float, Field(ge=0)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**22)]
Seed32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
# Pipes are allowed, too.
File = Annotated[str, OnDisk("no such file", lambda path: path.exists() and not path.is_dir())]
Folder = Annotated[str, OnDisk("no such folder", lambda path: path.is_dir())]
FileName = Annotated[
    str, condition("must be the name of a file, without a folder", lambda x: pathlib.Path(x).name == x)
]
_IS_RUN = "must be the folder of a run, with its config.yaml"
TrainedRun = Annotated[str, OnDisk(_IS_RUN, lambda path: (path / "config.yaml").is_file())]


def group(options_class, **defaults):
    """Return the dataclass field of a nested group of options; `defaults` override defaults of the class."""
    return dataclasses.field(default_factory=lambda: options_class(**defaults))


@dataclasses.dataclass
class RunOptions:
    """The run"""

    out: str
    """Folder of the run."""
    resume: bool = False
    """Continue the run in the folder; its options need not be repeated."""
    overwrite: bool = False
    """Start again: the run in the folder is renamed, and deleted when the new run has finished."""
    start_from: str | None = None
    """Finished run whose training this run continues: its shared weights, optimizer, steps and schedules. Its epochs
    count towards --epochs."""
    seed: Seed = 0
    """Seed of the initial weights, the noise and the order of the batches."""
    export: bool = True
    """Write a SavedModel at the end."""

    def layer_seed(self, index):
        """Return the seed of a stochastic layer: models with the same seed share their noise, other seeds do not."""
        return 256 * self.seed + index % 256 + (index // 256 << 24)

    def check(self):
        if self.resume and self.overwrite:
            raise InputError("--overwrite and --resume exclude each other.")


@dataclasses.dataclass
class FitOptions:
    """Training"""

    batch_size: Positive = 32
    """Examples of a batch."""
    epochs: Positive = 10
    """Number of passes over the training data."""
    max_steps: Positive | None = None
    """Stop after this many steps, even within an epoch."""
    optimizer: Literal["adam", "adamw", "adagrad", "rmsprop", "sgd"] = "adam"
    """Optimizer; sgd has no momentum."""
    beta_2: Dropout = 0.999
    """Decay rate of the squared gradients, for adam and adamw."""
    learning_rate: PositiveFloat = 1e-3
    """Learning rate of the first step, or after the warm-up."""
    weight_decay: NotNegativeFloat | None = None
    """Decoupled weight decay; none for the optimizer's default: 0.004 for adamw, 0 for the others."""
    schedule: Literal["constant", "exponential", "linear", "cosine", "plateau"] = "constant"
    """Learning rate schedule. exponential: multiply by learning_rate_decay after every epoch; linear, cosine: decay to
    0 at the last step; plateau: multiply after more than `patience` epochs without a lower validation loss."""
    learning_rate_decay: Share = 0.5
    """Factor on the learning rate in the schedules exponential and plateau."""
    decay_after: NotNegative = 0
    """Epochs before the first decay of the schedule exponential."""
    decay_every: Positive = 1
    """Epochs between two decays of the schedule exponential."""
    patience: NotNegative = 0
    """Epochs without a lower validation loss that the schedule plateau tolerates."""
    warmup_steps: NotNegative = 0
    """Steps over which the learning rate grows from 0."""
    warmup_epochs: NotNegative = 0
    """Warm up over this many epochs instead, one increment per epoch."""
    clip_norm: PositiveFloat | None = 5.0
    """Largest norm of the gradient of all weights; none for no limit."""
    clip_value: PositiveFloat | None = None
    """Largest absolute value of each element of the gradient; replaces clip_norm."""
    early_stopping: Positive | None = None
    """Stop after this many epochs without a lower validation loss."""
    keep: Literal["best", "last"] = "best"
    """Weights for the report and the export. best: of the epoch with the lowest validation loss; last: of the last."""
    checkpoint_steps: Positive | None = 500
    """Save the state of training every this many steps, in addition to after each epoch; none for epochs only."""
    tensorboard: bool = True
    """Write logs for TensorBoard."""
    jit: Literal["auto", "on", "off"] = "auto"
    """Compile the training step with XLA; auto: on a GPU, if all layers allow it; on: always, LSTMs without cuDNN."""
    mixed_precision: Literal["none", "float16", "bfloat16"] = "none"
    """Compute in half precision; weights and losses are float32."""
    strategy: Literal["none", "mirrored", "multi_worker"] = "none"
    """Split each batch between copies of the model. mirrored: on all GPUs of this machine; multi_worker: on the
    machines that TF_CONFIG names; run the same command on each machine."""

    def check(self):
        if self.warmup_steps and self.schedule == "plateau":
            raise InputError("--warmup-steps: the schedule plateau has no warm-up; choose another --schedule.")
        if self.warmup_epochs and self.schedule not in ("constant", "exponential"):
            raise InputError(
                f"--warmup-epochs: the schedule {self.schedule} has no warm-up; choose another --schedule."
            )
        if self.warmup_epochs and self.warmup_steps:
            raise InputError("--warmup-epochs and --warmup-steps exclude each other.")
        if self.jit == "on" and self.strategy != "none":
            raise InputError("--jit: XLA does not compile a step of several replicas; omit --jit or --strategy.")

    @property
    def use_cudnn(self):
        """`use_cudnn` of LSTMs; XLA cannot compile cuDNN."""
        return False if self.jit == "on" else "auto"

    @property
    def jit_compile(self):
        """`jit_compile` of `keras.Model.compile`."""
        return {"auto": "auto" if self.strategy == "none" else False, "on": True, "off": False}[self.jit]


def check_workers(text):
    """Raise `InputError` unless the text is a TF_CONFIG that names the workers and this process."""
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
    """Report on a split of a run's data."""

    run: TrainedRun
    """Folder of the run."""
    split: Literal["valid", "test"] = "valid"
    """Split of the run's data."""
    name: FileName | None = None
    """Name of the .json file; evaluation_SPLIT by default."""
    out: str | None = None
    """Folder of the report; the run's folder by default."""


@dataclasses.dataclass
class GenerateOptions:
    """Read lines from a file or standard input, and print an output for each."""

    run: TrainedRun
    """Folder of the run."""
    input: File | None = None
    """File with one input per line, plain or .gz; standard input by default."""


@dataclasses.dataclass
class ExportOptions:
    """Write the SavedModel of a run."""

    run: TrainedRun
    """Folder of the run."""
    out: str | None = None
    """Folder of the SavedModel; saved_model in the run's folder by default."""

    def check(self):
        path = pathlib.Path(self.out or pathlib.Path(self.run, "saved_model"))
        if path.exists() and not (path / "saved_model.pb").is_file() and (path.is_file() or any(path.iterdir())):
            raise InputError(f"--out: {path} is not empty and contains no SavedModel. Choose a new or empty folder.")


@dataclasses.dataclass
class CompareOptions:
    """Train models with several seeds on the same data, and print tables with differences and intervals. Options of
    `train` apply to every run."""

    # Values of the options of `train` that are set on the command line.
    train_values = {}

    out: str = "runs/compare"
    """Folder for the folders of all runs. Finished runs are not trained again; shorter runs are continued."""
    models: tuple[str, ...] = ()
    """MODEL[@START][:option=value,...]. MODEL@START trains START, then MODEL from it (`train --start-from`); options
    of `train` after the colon apply to this entry only."""
    baseline: str = ""
    """Model that the others are compared with."""
    seeds: Positive = 3
    """Number of seeds, 0, 1, 2, ...; models are compared pairwise at the same seed."""
    first_seed: Seed = 0
    """The first seed."""
    preset: str | None = None
    """Preset of `train` for every run."""
    options: File | None = None
    """YAML file with options of `train` for every run, as `train --config` reads it."""
    start_epochs: Positive | None = None
    """Epochs of START, part of the epochs of MODEL@START; half of them by default. `max_steps` is scaled with them."""
    results: str | None = None
    """Also write the command, the options and the figures of every run into this .json, a small file to commit with the
    code. Runs of other models in an existing file of the same command are preserved."""
    jobs: Positive = 1
    """Runs trained at the same time, in processes that share the cores and the GPUs."""

    def check(self):
        if not self.models:
            raise InputError("--models: name at least one model.")
        if len(set(self.models)) < len(self.models):
            raise InputError(f"--models: name every model once. Received: {' '.join(self.models)}")
        path = None if self.results is None else pathlib.Path(self.results)
        if path is not None and not (path.suffix == ".json" and path.parent.is_dir()):
            raise InputError(f"--results: must be a .json file in an existing folder. Received: {path}")


@dataclasses.dataclass
class UncertaintyOptions:
    """Compare draws of a run with its mean and a fitted temperature, on test, other and corrupted data."""

    run: TrainedRun
    """Folder of the run."""
    name: FileName = "uncertainty"
    """Name of the .json file of figures, and of the .npz file of predictions at the mean."""
    out: str | None = None
    """Folder of both files; the run's folder by default."""
    num_draws: NoneOrSeveral | None = None
    """Number of draws, at least 2, or 0; the run's number by default."""


@dataclasses.dataclass
class CompareClassesOptions(CompareOptions):
    """Options of `compare` for the layout uncertainty."""

    ensemble: NoneOrSeveral = 5
    """Members of each ensemble of the baseline in the layout uncertainty, with different seeds; 0 for no ensembles."""

    @property
    def num_members(self):
        """Number of runs of each ensemble; 0 without the layout uncertainty."""
        return self.ensemble if "uncertainty" in self.layout else 0

    def check(self):
        super().check()
        for name in ("other", "corruption"):
            if getattr(self, name) is not None and "uncertainty" not in self.layout:
                raise InputError(f"--{name} belongs to --layout uncertainty.")
        if self.num_members and self.baseline not in self.models:
            raise InputError(f"--baseline: must be one of the models, to train ensembles. Received: {self.baseline}")


# Commands with the same options in every program.
COMMANDS = {"evaluate": EvaluateOptions, "predict": GenerateOptions, "compare": CompareOptions, "export": ExportOptions}
