"""`python -m applications.ved {train,evaluate,generate,compare,export}`."""

import sys

from applications.common.command_line import run
from applications.ved.comparison import CompareOptions, compare
from applications.ved.inference import (
    EvaluateOptions,
    ExportOptions,
    GenerateOptions,
    evaluate,
    export_run,
    generate,
)
from applications.ved.options import PRESETS, Options
from applications.ved.training import train

COMMANDS = {
    "train": (train, Options, PRESETS),
    "evaluate": (evaluate, EvaluateOptions, None),
    "generate": (generate, GenerateOptions, None),
    "compare": (compare, CompareOptions, None),
    "export": (export_run, ExportOptions, None),
}

if __name__ == "__main__":
    sys.exit(run("python -m applications.ved", COMMANDS))
