"""Trains models with several seeds, paired, and prints tables with means, differences and 95% intervals."""

import concurrent.futures
import contextlib
import gc
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading

import yaml

from applications.common.errors import InputError, input_error_in
from applications.common.jobs import environment_of, hidden_gpus
from applications.common.options import with_values
from applications.common.plan import plan
from applications.common.program import config_of
from applications.common.runs import RunFolder, digest_of, write_json, write_text_atomically

# Runs in one process. TensorFlow keeps some of what it compiled for each, 50 to 200 MB, whatever is deleted.
RUNS_OF_A_PROCESS = 16


class Comparison:
    """The runs of a comparison, and what they have left.

    Attributes:
        application: `Application`.
        options: Options of `compare`.
        folder: `pathlib.Path`.
        planned: List of `Planned`.
        records: Dictionary from the name of a model to what metrics.json holds of each seed's run. Once they are
            trained.
    """

    def __init__(self, application, options):
        self.application = application
        self.options = options
        self.folder = pathlib.Path(options.out)
        self.planned = plan(application.program, options)
        self._here_count = 0
        self._gpus = [] if options.in_process else hidden_gpus()
        self._free = queue.SimpleQueue()
        for index in range(options.jobs):
            self._free.put(index)

    def train(self):
        """Train what is missing, and read the records."""
        missing = [run for run in self.planned if not self._is_finished(run.options)]
        # Bad input is found here once, and not by every run.
        known = []
        for run in self.planned:
            digest = self._digest_of_data(run.options, known)
            if run not in missing:
                RunFolder.load(run.options.run.out).require_data(digest)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out: {self.folder} cannot be made: {error.strerror}.") from error
        starts = {run.start.run.out: run.start for run in missing if run.start and not self._is_finished(run.start)}
        ended, trained = {out: threading.Event() for out in starts}, set()

        def train(options):
            out = options.run.out
            start = options.run.start_from
            if start in ended:
                ended[start].wait()
                if start not in trained:
                    return f"train {pathlib.Path(out).name} was not begun: what it starts from is not trained."
            try:
                failure = self._train(options)
                if failure is None:
                    trained.add(out)
                return failure
            finally:
                if out in ended:
                    ended[out].set()

        # In this order whoever waits waits for a run that has begun.
        order = sorted((run.options for run in missing), key=lambda options: options.run.start_from in ended)
        self.in_parallel(train, [*starts.values(), *order])
        self.records = self.of_models(lambda run: self.read(run, "metrics.json"))

    def of_models(self, read, planned=None):
        """Return a dictionary from each model's name to what a function of a `Planned` returns for each seed."""
        found = {}
        for run in planned or self.planned:
            found.setdefault(run.name, []).append(read(run))
        return found

    def evaluate(self, name, arguments_of):
        """Run `evaluate` for every run, and return what it wrote, as `of_models` does.

        Args:
            name: `--name` of the reports.
            arguments_of: Function of a `Planned` that returns its other arguments, a list of str; `None` leaves it out.
        """

        def evaluate(run):
            arguments = ["--run", run.options.run.out, "--name", name, *arguments_of(run)]
            known = pathlib.Path(run.options.run.out, f"{name}.arguments.json")
            digest = digest_of([arguments, self.read(run, "metrics.json")])
            report = known.with_name(f"{name}.json")
            if known.exists() and report.exists() and self.read(run, known.name) == digest:
                return None
            report.unlink(missing_ok=True)
            folder = pathlib.Path(run.options.run.out).name
            if self.options.in_process:
                failure = self._evaluate_here(folder, arguments)
            else:
                failure = self._command(folder, ["evaluate", *arguments])
            if failure is None:
                write_json(known, digest)
            return failure

        planned = [run for run in self.planned if arguments_of(run) is not None]
        self.in_parallel(evaluate, planned)
        return self.of_models(lambda run: self.read(run, f"{name}.json"), planned)

    def read(self, run, name):
        """Return what a .json file of a run holds."""
        return _json(pathlib.Path(run.options.run.out, name))

    def lines(self, run, name):
        """Return the lines of a text file that a run has left, one of `Application.files`."""
        return _text(pathlib.Path(run.options.run.out, f"{name}.txt")).split("\n")[:-1]

    def history(self, run):
        """Return the rows of a run's history.csv, `None` where one has nothing."""
        return RunFolder(run.options.run.out, {}).history()

    @property
    def of_first_seed(self):
        """The planned runs of the first seed, one of each model."""
        return [run for run in self.planned if run.seed == self.options.first_seed]

    @property
    def models(self):
        """Dictionary from each name to the model of `train` that it is."""
        return {run.name: run.options.model for run in self.planned}

    def in_parallel(self, function, items):
        """Call a function that returns an error message or `None` for all items; `InputError` with the messages."""
        if self.options.in_process:
            # In this thread, which is the one that an interruption reaches.
            failed = []
            for item in items:
                if self._here_count >= RUNS_OF_A_PROCESS:
                    self._go_on_in_another_process()
                failed += filter(None, [function(item)])
        else:
            with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as executor:
                failed = [message for message in executor.map(function, items) if message]
        if failed:
            raise InputError("\n".join(failed))

    def _go_on_in_another_process(self):
        """Call the command again in this one's place: what is finished it knows by the files."""
        of_command = sys.orig_argv[-len(sys.argv) - 1 : 1 - len(sys.argv)]
        if of_command == ["-m", self.application.program.name]:
            sys.stdout.flush()
            os.execv(sys.executable, sys.orig_argv)

    def _digest_of_data(self, run_options, known):
        """Return the digest of a run's data, which are read unless a list has the digest for these options."""
        for asked, digest in known:
            if all(getattr(run_options, name) == value for name, value in asked.items()):
                return digest
        watched = _Watched(run_options)
        known.append((watched.asked, digest_of(self.application.read(watched))))
        return known[-1][1]

    def _is_finished(self, run_options):
        """Return whether a run has been trained and reported on, as it is asked for."""
        path = pathlib.Path(run_options.run.out, "metrics.json")
        if not path.exists():
            return False
        # What a resumed run may change it may have changed: how it decodes, for instance.
        reported = _json(path).get("options", {})
        asked = json.loads(json.dumps(config_of(run_options)))
        return all(reported.get(name) == asked[name] for name in asked if name not in ("out", "export"))

    def _train(self, run_options):
        """Train one run, or go on with it; return an error message or `None`."""
        out = pathlib.Path(run_options.run.out)
        resumed = (out / "config.yaml").exists()
        if self.options.in_process:
            return self._train_here(with_values(run_options, {"resume": resumed}), out.name)
        config = self.folder / f"{out.name}.yaml"
        plain = json.loads(json.dumps(config_of(run_options)))
        write_text_atomically(config, yaml.safe_dump(plain, sort_keys=False))
        return self._command(out.name, ["train", "--config", str(config), *(["--resume"] if resumed else [])])

    def _here(self, command, name, function):
        """Call a function in this process, its output in the log of a run; return an error message or `None`."""
        import keras
        import tensorflow as tf

        # It takes the same function of another model for one that is traced again and again.
        tf.get_logger().setLevel("ERROR")
        print(f"{command} {name}", file=sys.stderr, flush=True)
        try:
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(open(self.folder / f"{name}.log", "a", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stdout(file))
                stack.enter_context(contextlib.redirect_stderr(file))
                function()
            self._here_count += 1
        except (InputError, FloatingPointError, OSError, MemoryError, tf.errors.OpError) as error:
            return f"{command} {name} failed: {input_error_in(error) or error}"
        finally:
            keras.backend.clear_session()
            gc.collect()
        return None

    def _train_here(self, run_options, name):
        def function():
            self.application.program.check_train(run_options)
            self.application.program.train(run_options)

        return self._here("train", name, function)

    def _evaluate_here(self, name, arguments):
        from applications.common.command_line import prepare, read_options
        from applications.common.commands import evaluate

        def function():
            options = read_options(self.application.program, "evaluate", arguments)
            prepare(self.application.program, "evaluate", options)
            evaluate(self.application, options)

        return self._here("evaluate", name, function)

    def _command(self, name, arguments):
        """Run a command of the program in a process of its own; return an error message or `None`."""
        log = self.folder / f"{name}.log"
        print(f"{arguments[0]} {name}; its output goes to {log}", file=sys.stderr, flush=True)
        index = self._free.get()
        try:
            with open(log, "a", encoding="utf-8") as file:
                status = subprocess.run(
                    [sys.executable, "-m", self.application.program.name, *arguments],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=os.environ | environment_of(self._gpus, self.options.jobs, index),
                ).returncode
        finally:
            self._free.put(index)
        print(f"{arguments[0]} {name}: status {status}", file=sys.stderr, flush=True)
        if status == 0:
            return None
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return f"{arguments[0]} {name} failed: {' '.join(last)}"


class _Watched:
    """Options that remember which of them, or which groups of them, were asked for."""

    def __init__(self, options):
        self._options, self.asked = options, {}

    def __getattr__(self, name):
        return self.asked.setdefault(name, getattr(self._options, name))


def compare(application, options):
    """Train what is missing, then write the tables, the differences and the curves."""
    from applications.common.reporting import curves_of
    from applications.common.tables import difference_table, main_table, titled
    from applications.common.training_curves import training_curves

    comparison = Comparison(application, options)
    comparison.train()
    records, columns = comparison.records, application.columns
    (first, *others) = next(iter(records.values()))
    claim = f"{1 + len(others)} seeds, mean [95% interval]" if others else "one seed, no claim"
    parts = [titled(f"{application.heading(first)}; {claim}", main_table(columns, records))]
    if options.baseline not in records:
        parts.append(f"No differences: the baseline {options.baseline} is not among the models.")
    elif others and len(records) > 1:
        title = f"Paired differences over seeds against {options.baseline}, mean [95% interval]"
        parts.append(titled(title, difference_table(columns, records, options.baseline)))
    for layout in getattr(options, "layout", ()):
        parts += application.layouts[layout](comparison)
    # What has been trained is not lost if the rest fails.
    write_text_atomically(comparison.folder / "table.md", "\n\n".join(parts) + "\n")
    write_json(comparison.folder / "comparison.json", {"options": options, "runs": records})
    histories = comparison.of_models(comparison.history)
    curves = curves_of(application, [row for rows in histories.values() for of_seed in rows for row in of_seed])
    columns_of = ("epoch", *curves)
    training_curves(
        {
            name: [{column: [row.get(column) for row in rows] for column in columns_of} for rows in of_seeds]
            for name, of_seeds in histories.items()
        },
        list(curves),
        metric_labels=curves,
        path=comparison.folder / "curves.png",
    )
    parts += application.compared(comparison)
    table = "\n\n".join(parts) + "\n"
    write_text_atomically(comparison.folder / "table.md", table)
    print(table)
    print(f"written: {comparison.folder}")


def _json(path):
    text = _text(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}. Remove it to train the run again.") from error


def _text(path):
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}. Resume the run, which writes it again.") from error
