"""Trains rows x seeds of a program, each run in a process of its own."""

import concurrent.futures
import csv
import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys

import yaml

from applications.common.errors import InputError
from applications.common.runs import RunFolder, write_text_atomically


class Comparison:
    """The runs of a comparison. `run_options` are the options of `train`, whose `out` is the folder of the run.

    Args:
        program: Module of the program, for instance "applications.ved".
        folder: Folder of the comparison; logs go there.
        jobs: How many runs at the same time; the processor's cores are shared out between them.
        may_differ: Names of options in which a finished run may differ.
        left: Names of the files that a finished run has left.
    """

    def __init__(self, program, folder, jobs, may_differ, left=("metrics.json",)):
        self.program = program
        self.folder = pathlib.Path(folder)
        self.jobs = jobs
        self.may_differ = may_differ
        self.left = left

    def make_folder(self):
        """Make the folder of the comparison; `InputError` if it cannot be."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out: {self.folder} cannot be made: {error.strerror}.") from error

    def check(self, run_options, fixed=()):
        """Raise `InputError` if the folder of a run holds one with other options.

        Args:
            run_options: Options of the run.
            fixed: Names of options in which this one may not differ, though others may.
        """
        out = pathlib.Path(run_options.out)
        if not (out / "config.yaml").exists():
            return
        stored, expected = RunFolder.load(out).config, dataclasses.asdict(run_options)
        may_differ = set(self.may_differ) - set(fixed)
        differing = [key for key in expected if key not in may_differ and stored.get(key) != expected[key]]
        if differing:
            raise InputError(f"{out} holds a run with other options ({', '.join(differing)}). Choose another --out.")

    def is_finished(self, run_options):
        """Return whether a run has been trained and reported on."""
        # One of an older version may lack a file: resumed it trains no more, and reports again.
        if not all((pathlib.Path(run_options.out) / name).exists() for name in self.left):
            return False
        # What a resumed run may change it may have changed: how it decodes, for instance.
        reported = self.read(run_options, "metrics.json").get("options", {})
        asked = dataclasses.asdict(run_options)
        ignored = ("resume", "out", "export")
        return all(reported.get(name) == asked[name] for name in asked if name not in ignored)

    def read(self, run_options, name):
        """Return what a .json file of a run holds."""
        path = pathlib.Path(run_options.out) / name
        text = _text(path)
        try:
            return json.loads(text)
        except ValueError as error:
            raise InputError(f"{path} is damaged: {error}. Remove it to train the run again.") from error

    def lines(self, run_options, name):
        """Return the lines of a text file of a run."""
        return _text(pathlib.Path(run_options.out) / name).split("\n")[:-1]

    def history(self, run_options, columns):
        """Return columns of a run's history.csv, `None` where a row has nothing."""
        path = pathlib.Path(run_options.out) / "history.csv"
        rows = list(csv.DictReader(io.StringIO(_text(path))))
        try:
            return {column: [float(row[column]) if row.get(column) else None for row in rows] for column in columns}
        except ValueError as error:
            raise InputError(f"{path} is damaged: {error}. Resume the run, which writes it again.") from error

    def in_parallel(self, function, items):
        """Call a function that returns an error message or `None` for all items; `InputError` with the messages."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as executor:
            failed = [message for message in executor.map(function, items) if message]
        if failed:
            raise InputError("\n".join(failed))

    def train(self, run_options):
        """Train one run, or go on with it; return an error message or `None`."""
        out = pathlib.Path(run_options.out)
        config = self.folder / f"{out.name}.yaml"
        values = {key: value for key, value in dataclasses.asdict(run_options).items() if key != "resume"}
        write_text_atomically(config, yaml.safe_dump(values, sort_keys=False))
        resume = ["--resume"] if (out / "config.yaml").exists() else []
        return self.run(out.name, ["train", "--config", str(config), *resume])

    def run(self, name, arguments):
        """Run a command of the program in a process of its own; return an error message or `None`."""
        threads = str(max(1, (os.cpu_count() or 1) // self.jobs))
        limits = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), threads)
        log = self.folder / f"{name}.log"
        print(f"{arguments[0]} {name}; its output goes to {log}", file=sys.stderr, flush=True)
        with open(log, "a", encoding="utf-8") as file:
            status = subprocess.run(
                [sys.executable, "-m", self.program, *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **limits},
            ).returncode
        print(f"{arguments[0]} {name}: status {status}", file=sys.stderr, flush=True)
        if status == 0:
            return None
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return f"{arguments[0]} {name} failed: {' '.join(last)}"


def _text(path):
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}. Resume the run, which writes it again.") from error
