"""Options of programs: nested data classes whose names are flat on the command line, in YAML files and in config.yaml.

What a value must be stands in its annotation, as pydantic reads it. A method `check` of a class checks what concerns
several options. Nothing here imports TensorFlow: wrong options are refused before it is loaded.
"""

import dataclasses
import json
import pathlib
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from applications.common.errors import InputError


def condition(words, holds):
    """Return a validator for `Annotated`: an error with these words unless `holds(value)`."""

    def validate(value):
        if not holds(value):
            raise PydanticCustomError("condition", words)
        return value

    return AfterValidator(validate)


class OnDisk(AfterValidator):
    """A `condition` on a path, which the context of pydantic turns on: files of a run may be gone."""

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
# A pipe is a file, too.
File = Annotated[str, OnDisk("no such file", lambda path: path.exists() and not path.is_dir())]
Folder = Annotated[str, OnDisk("no such folder", lambda path: path.is_dir())]
FileName = Annotated[
    str, condition("must be the name of a file, without a folder", lambda x: pathlib.Path(x).name == x)
]
_IS_RUN = "must be the folder of a run, with its config.yaml"
TrainedRun = Annotated[str, OnDisk(_IS_RUN, lambda path: (path / "config.yaml").is_file())]


def group(options_class, **defaults):
    """Return the field of a nested group of options, with other defaults for some of them."""
    return dataclasses.field(default_factory=lambda: options_class(**defaults))


@dataclasses.dataclass
class RunOptions:
    """The run"""

    out: str
    """Folder of the run."""
    resume: bool = False
    """Go on with the run in the folder; its options need not be repeated."""
    overwrite: bool = False
    """Begin anew: the run that is in the folder is renamed, and deleted when the new one has finished."""
    start_from: str | None = None
    """Finished run whose training this run continues: its shared weights, optimizer, steps and schedules. Its epochs
    count among this run's."""
    seed: Seed = 0
    """Seed of the initial weights, the noise and the order of the batches."""
    export: bool = True
    """Write the SavedModel at the end."""

    def layer_seed(self, index):
        """Return the seed of a layer that draws: models of one seed share their noise, runs of other seeds do not."""
        return 256 * self.seed + index % 256 + (index // 256 << 24)

    def check(self):
        if self.resume and self.overwrite:
            raise InputError("--overwrite: a run is resumed or begun anew; leave out one of --resume and --overwrite.")


@dataclasses.dataclass
class FitOptions:
    """Training"""

    batch_size: Positive = 32
    """Examples of a batch."""
    epochs: Positive = 10
    """Passes over the training data."""
    max_steps: Positive | None = None
    """Stop after that many steps, within an epoch if need be."""
    optimizer: Literal["adam", "adamw", "adagrad", "rmsprop", "sgd"] = "adam"
    """Rule of the update; sgd has no momentum."""
    beta_2: Dropout = 0.999
    """Decay of the squared gradients of adam and adamw."""
    learning_rate: PositiveFloat = 1e-3
    """Learning rate of the first step, or after the warm-up."""
    weight_decay: NotNegativeFloat | None = None
    """Decoupled from the gradient; none for the optimizer's own: 0.004 of adamw, 0 of the others."""
    schedule: Literal["constant", "exponential", "linear", "cosine", "plateau"] = "constant"
    """Decay of the learning rate: none; by learning_rate_decay after every epoch; to 0 at the last step, linear or as a
    cosine; by learning_rate_decay after more than `patience` epochs without a better loss on validation."""
    learning_rate_decay: Share = 0.5
    """Factor of the schedules exponential and plateau."""
    decay_after: NotNegative = 0
    """Epochs before the first factor of exponential."""
    decay_every: Positive = 1
    """Epochs from one factor of exponential to the next."""
    patience: NotNegative = 0
    """Epochs without a better loss on validation that plateau lets pass."""
    warmup_steps: NotNegative = 0
    """Steps over which the learning rate grows from 0."""
    warmup_epochs: NotNegative = 0
    """Epochs over which the learning rate grows instead, one step an epoch."""
    clip_norm: PositiveFloat | None = 5.0
    """Largest norm of the gradient of all weights; none for no limit."""
    clip_value: PositiveFloat | None = None
    """Largest absolute value of each element of the gradient, in the place of clip_norm."""
    early_stopping: Positive | None = None
    """Stop after that many epochs without a better loss on validation."""
    keep: Literal["best", "last"] = "best"
    """Weights of the report and the export: of the epoch of the smallest loss on validation, or of the last one."""
    checkpoint_steps: Positive | None = 500
    """Steps of the run between two saved states, in addition to each epoch of several steps; none for epochs alone."""
    tensorboard: bool = True
    """Write logs for TensorBoard."""
    jit: Literal["auto", "on", "off"] = "auto"
    """Compile the training step with XLA; auto: on a GPU, unless a layer cannot be. on runs LSTMs without cuDNN."""
    mixed_precision: Literal["none", "float16", "bfloat16"] = "none"
    """Compute in half precision; weights and losses stay float32."""
    strategy: Literal["none", "mirrored", "multi_worker"] = "none"
    """Copies of the model share each batch. mirrored: on every GPU of this machine; multi_worker: on the machines
    that TF_CONFIG names; run this command on each machine."""

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
            raise InputError("--jit: a step of several replicas is not compiled; leave out --jit or --strategy.")

    @property
    def use_cudnn(self):
        """`use_cudnn` of LSTMs: XLA compiles no cuDNN."""
        return False if self.jit == "on" else "auto"

    @property
    def jit_compile(self):
        """`jit_compile` of `keras.Model.compile`."""
        return {"auto": "auto" if self.strategy == "none" else False, "on": True, "off": False}[self.jit]


def check_workers(text):
    """Raise `InputError` unless a TF_CONFIG names the workers and this one."""
    try:
        config = json.loads(text)
        workers, task = config["cluster"][config["task"]["type"]], config["task"]
        is_named = 0 <= int(task["index"]) < len(workers)
    except (KeyError, TypeError, ValueError):
        is_named = False
    if not is_named:
        raise InputError(
            "--strategy multi_worker: the variable TF_CONFIG must name the workers and this one, "
            '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}. '
            f"Received: {text}"
        )


@dataclasses.dataclass
class EvaluateOptions:
    """Report on a part of the data of a run."""

    run: TrainedRun
    """Folder of the run."""
    split: Literal["valid", "test"] = "valid"
    """Part of the run's own data."""
    name: FileName | None = None
    """Name of the .json file; evaluation_SPLIT where it is left out."""
    out: str | None = None
    """Folder of the report; the run's where it is left out."""


@dataclasses.dataclass
class GenerateOptions:
    """Read lines from a file or standard input, and write a line for each."""

    run: TrainedRun
    """Folder of the run."""
    input: File | None = None
    """File with one input a line, plain or .gz; standard input where it is left out."""


@dataclasses.dataclass
class ExportOptions:
    """Write the SavedModel of a run."""

    run: TrainedRun
    """Folder of the run."""
    out: str | None = None
    """Folder of the SavedModel; saved_model in the run's folder where it is left out."""

    def check(self):
        path = pathlib.Path(self.out or pathlib.Path(self.run, "saved_model"))
        if path.exists() and not (path / "saved_model.pb").is_file() and (path.is_file() or any(path.iterdir())):
            raise InputError(f"--out: {path} is not empty and holds no SavedModel. Choose a new or empty folder.")


@dataclasses.dataclass
class CompareOptions:
    """Train models with several seeds on the same data, and print tables with differences and intervals. Options of
    `train` are options of every run."""

    # The values of the options of `train` that the command line names.
    train_values = {}

    out: str = "runs/compare"
    """Folder with a folder for each run. Finished runs are not trained again; shorter runs are continued."""
    models: tuple[str, ...] = ()
    """MODEL[@START][:option=value,...]: MODEL@START trains START, then MODEL from it (`train --start-from`); options of
    `train` for this entry follow the colon."""
    baseline: str = ""
    """Model that the others are compared with."""
    seeds: Positive = 3
    """Number of seeds, 0, 1, 2, ...; the models of one seed form a pair."""
    first_seed: Seed = 0
    """The first seed."""
    preset: str | None = None
    """Preset of `train` for every run."""
    options: File | None = None
    """YAML file with options of `train` for every run, as `train --config` reads it."""
    start_epochs: Positive | None = None
    """Epochs of START, out of all epochs of MODEL@START; half of them where it is left out. `max_steps` is scaled."""
    results: str | None = None
    """Also write the command, the options and the figures of every run into this .json, to keep with the code. Runs of
    other models in a file of the same command stay."""
    jobs: Positive = 1
    """Runs trained at the same time, in processes that share the cores and the GPUs."""

    def check(self):
        if not self.models:
            raise InputError("--models: name at least one model.")
        if len(set(self.models)) < len(self.models):
            raise InputError(f"--models: every model once. Received: {' '.join(self.models)}")
        path = None if self.results is None else pathlib.Path(self.results)
        if path is not None and not (path.suffix == ".json" and path.parent.is_dir()):
            raise InputError(f"--results: must be a .json in a folder that exists. Received: {path}")


@dataclasses.dataclass
class UncertaintyOptions:
    """Compare draws of a run with its mean and a fitted temperature, on test, other and corrupted data."""

    run: TrainedRun
    """Folder of the run."""
    name: FileName = "uncertainty"
    """Name of the .json with the figures, and of the .npz with the predictions at the mean."""
    out: str | None = None
    """Folder of both; the run's where it is left out."""
    num_draws: NoneOrSeveral | None = None
    """Draws instead of the run's, 2 at least; 0 for none."""


@dataclasses.dataclass
class CompareClassesOptions(CompareOptions):
    """Options of `compare` for the layout uncertainty."""

    ensemble: NoneOrSeveral = 5
    """Members of an ensemble of the baseline in the layout uncertainty, with seeds of their own; 0 for no ensembles."""

    @property
    def num_members(self):
        """How many runs each ensemble has; 0 without the layout uncertainty."""
        return self.ensemble if "uncertainty" in self.layout else 0

    def check(self):
        super().check()
        for name in ("other", "corruption"):
            if getattr(self, name) is not None and "uncertainty" not in self.layout:
                raise InputError(f"--{name} belongs to --layout uncertainty.")
        if self.num_members and self.baseline not in self.models:
            raise InputError(f"--baseline: the ensembles are of one of the models. Received: {self.baseline}")


# Commands without options of the program's own.
COMMANDS = {"evaluate": EvaluateOptions, "predict": GenerateOptions, "compare": CompareOptions, "export": ExportOptions}
