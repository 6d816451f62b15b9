"""`python -m applications.nmt {train,evaluate,generate,compare,export}`."""

import sys

from applications.common.command_line import run
from applications.nmt.comparison import CompareOptions, compare
from applications.nmt.inference import EvaluateOptions, ExportOptions, GenerateOptions, evaluate, export_run, generate
from applications.nmt.options import PRESETS, Options
from applications.nmt.training import train

COMMANDS = {
    "train": (train, Options, PRESETS),
    "evaluate": (evaluate, EvaluateOptions, None),
    "generate": (generate, GenerateOptions, None),
    "compare": (compare, CompareOptions, None),
    "export": (export_run, ExportOptions, None),
}

if __name__ == "__main__":
    sys.exit(run("python -m applications.nmt", COMMANDS))
