"""Options of the program. Nothing here imports TensorFlow: wrong options are refused before it is loaded."""

import dataclasses
from typing import Literal

from applications.common.errors import InputError
from applications.common.options import (
    CompareOptions,
    EvaluateOptions,
    ExportOptions,
    File,
    FitOptions,
    GenerateOptions,
    NotNegative,
    NotNegativeFloat,
    Positive,
    RunOptions,
    group,
)
from applications.common.program import Program


@dataclasses.dataclass
class DataOptions:
    """Examples; without a file, synthetic ones"""

    data: File | None = None
    """Lines of 25 numbers, the class and then the steps; the first tenth is for test, the next for validation."""
    num_examples: Positive = 2000
    """How many synthetic examples."""
    standardize: bool = True
    """Divide the numbers by the standard deviation that they have in the training data."""


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    units: Positive = 16
    """Width of the layers."""
    gamma: NotNegativeFloat = 0.1
    """Factor on the KL of the attention."""


@dataclasses.dataclass
class Options:
    """Train a classifier of sequences; without a file, on synthetic ones."""

    model: Literal["deterministic", "gaussian"] = "gaussian"
    """The attention's context: the attended vector, or a Gaussian around it."""
    run: RunOptions = group(RunOptions, out="runs/toy")
    data: DataOptions = group(DataOptions)
    network: NetworkOptions = group(NetworkOptions)
    fit: FitOptions = group(FitOptions, batch_size=40, learning_rate=0.01)


@dataclasses.dataclass
class EvaluateToy(EvaluateOptions):
    """Report on a part of the data of a run, or on another file."""

    data: File | None = None
    """Another file, as `train --data` reads it."""
    num_draws: NotNegative = 0
    """Also the accuracy of the mean prediction of so many draws."""

    def check_run(self, options):
        """Check what depends on the model of the run."""
        if self.num_draws and options.model == "deterministic":
            raise InputError("--num-draws: the model deterministic draws nothing.")


@dataclasses.dataclass
class CompareToy(CompareOptions):
    """Train models with several seeds on the same data, and print tables with differences and intervals."""

    out: str = "runs/toy_compare"
    models: tuple[str, ...] = ("deterministic", "gaussian")
    baseline: str = "deterministic"


COMMANDS = {
    "train": Options,
    "evaluate": EvaluateToy,
    "predict": GenerateOptions,
    "compare": CompareToy,
    "export": ExportOptions,
}
PROGRAM = Program("toy_program", COMMANDS, renamed={"width": "--units"})
