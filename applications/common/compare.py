"""Trains models with several seeds, paired, and prints tables with means, differences and 95% intervals."""

import concurrent.futures
import contextlib
import json
import pathlib
import sys

import numpy as np
import yaml

from applications.common.errors import InputError
from applications.common.jobs import Jobs
from applications.common.plan import plan
from applications.common.program import config_of
from applications.common.records import read_record
from applications.common.results import results_before, write_results
from applications.common.runs import RunFolder, digest_of, write_json, write_text_atomically
from applications.common.shown import SHOWN, Shown, joined
from keras_vattn.plots.chart import require_altair

_NO_BASELINE = "No differences: the baseline {} is not among the models."


class Comparison:
    """The runs of a comparison, and their results.

    Attributes:
        application: `Application`.
        options: Options of `compare`.
        folder: `pathlib.Path`.
        planned: List of `Planned`.
        members: List of `Planned` that are there for ensembles alone.
        jobs: `Jobs`, the processes that train and evaluate.
        records: Dictionary from the name of a model to the metrics.json of each seed, after training.
        reports: Dictionary from the folder of a run to a dictionary of its other reports, by name.
        results_before: The file of results that this one adds to, a dictionary; `None` if there is none.
    """

    def __init__(self, application, options):
        self.application = application
        self.options = options
        self.folder = pathlib.Path(options.out)
        runs = plan(application.program, options)
        self.planned, self.members = ([run for run in runs if run.is_member == kind] for kind in (False, True))
        self.results_before = options.results and results_before(application.program, options, self.planned)
        self.jobs = Jobs(application.program, options.jobs)
        self.reports = {}

    def train(self):
        """Train the missing runs, and read the records."""
        runs = [*self.planned, *self.members]
        missing = [run for run in runs if not self._is_finished(run.options)]
        # Bad input is found here once, and not by every run.
        known = []
        for run in runs:
            digest = self._digest_of_data(run.options, known)
            if run not in missing:
                RunFolder.load(run.options.run.out).require_data(digest)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out: {self.folder} cannot be made: {error.strerror}.") from error
        if self.options.baseline not in self.models:
            print(
                f"{_NO_BASELINE.format(self.options.baseline)} --baseline names another.", file=sys.stderr, flush=True
            )
        starts = {run.start.run.out: run.start for run in missing if run.start and not self._is_finished(run.start)}
        # Starts come first, so that a run only waits for one that has begun.
        order = sorted((run.options for run in missing), key=lambda options: options.run.start_from in starts)
        with self._threads() as executor:
            begun = {out: executor.submit(self._train, options) for out, options in starts.items()}

            def train(options):
                start = begun.get(options.run.start_from)
                if start is not None and start.result() is not None:
                    name = pathlib.Path(options.run.out).name
                    return f"train {name} was not begun: what it starts from is not trained."
                return self._train(options)

            _raise_failures([*begun.values(), *(executor.submit(train, options) for options in order)])
        self.records = self.of_models(lambda run: self.read(run, "metrics.json"))

    @contextlib.contextmanager
    def _threads(self):
        """Return a context with threads that wait for commands. After an error no other command begins."""
        executor = concurrent.futures.ThreadPoolExecutor(self.options.jobs)
        try:
            yield executor
        finally:
            executor.shutdown(cancel_futures=True)

    def of_models(self, read, planned=None):
        """Return a dictionary from the name of each model to the results of a function of a `Planned`, one a seed."""
        results = {}
        for run in planned or self.planned:
            results.setdefault(run.name, []).append(read(run))
        return results

    def evaluate(self, name, arguments_of, command="evaluate", written=None):
        """Run `evaluate` or another command for every run, and return the reports, as `of_models` does.

        Args:
            name: `--name` of the reports.
            arguments_of: Function of a `Planned` that returns its other arguments, a list of str; `None` leaves it out.
            command, written: As of `report`.
        """
        planned = [run for run in self.planned if arguments_of(run) is not None]
        reports = self.report(command, name, arguments_of, planned, written=written)
        of_runs = {run.options.run.out: report for run, report in zip(planned, reports, strict=True)}
        return self.of_models(lambda run: of_runs[run.options.run.out], planned)

    def report(self, command, name, arguments_of, runs, files=(), written=None):
        """Run a command that reports on runs, unless it has done so before, and return the reports, a list.

        Args:
            command: "evaluate" or "uncertainty", or another one, with `written`.
            name: Its `--name`: it writes NAME.json into the folder of the run.
            arguments_of: Function of a `Planned` that returns its other arguments, a list of str.
            runs: List of `Planned`.
            files: Paths among these, whose contents count.
            written: The .json file of a command without `--name`, in the folder of the run.
        """
        contents = [np.fromfile(path, np.uint8) for path in files]

        def report(run):
            arguments = ["--run", run.options.run.out, *([] if written else ["--name", name]), *arguments_of(run)]
            known = pathlib.Path(run.options.run.out, f"{name}.arguments.json")
            digest = digest_of([arguments, self.read(run, "metrics.json"), *contents])
            path = pathlib.Path(run.options.run.out, written or f"{name}.json")
            if path.exists() and _has_digest(known, digest):
                return None
            if not written:
                path.unlink(missing_ok=True)
            failure = self._command(pathlib.Path(run.options.run.out).name, [command, *arguments])
            if failure is None:
                write_json(known, digest)
            return failure

        with self._threads() as executor:
            _raise_failures([executor.submit(report, run) for run in runs])
        reports = [self.read(run, written or f"{name}.json") for run in runs]
        for run, of_run in zip(runs, reports, strict=True):
            self.reports.setdefault(run.options.run.out, {})[name] = of_run
        return reports

    def read(self, run, name):
        """Return the content of a .json file of a run."""
        return _json(pathlib.Path(run.options.run.out, name))

    def lines(self, run, name):
        """Return the lines of a text file that a run has left, one of `Application.files`."""
        return _text(pathlib.Path(run.options.run.out, f"{name}.txt")).split("\n")[:-1]

    def shown(self):
        """Return what the runs of the first seed show, a dictionary from the names of models to `Shown`; nothing of a
        run that ended before there were pages."""

        def of(run):
            return Shown.of(self.read(run, SHOWN)) if pathlib.Path(run.options.run.out, SHOWN).exists() else Shown()

        return {run.name: of(run) for run in self.of_first_seed}

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

    def _digest_of_data(self, run_options, known):
        """Return the digest of a run's data, which are read unless a list has the digest for these options."""
        for asked, digest in known:
            if all(getattr(run_options, name) == value for name, value in asked.items()):
                return digest
        watched = _Watched(run_options)
        parts = self.application.read(watched)
        if getattr(self.options, "has_methods", False):
            self.application.layouts["uncertainty"].require(watched, parts, self.options.other)
        known.append((watched.asked, digest_of(parts)))
        return known[-1][1]

    def _is_finished(self, run_options):
        """Return whether a run with these options has been trained and reported on."""
        path = pathlib.Path(run_options.run.out, "metrics.json")
        if not path.exists():
            return False
        # A resumed run may have changed some options, such as the number of beams.
        asked, default = (json.loads(json.dumps(config_of(x))) for x in (run_options, self.application.program.default))
        # An option that the record of a run lacks has its default.
        reported = default | _json(path).get("options", {})
        return all(reported[name] == asked[name] for name in asked if name not in ("out", "export"))

    def _train(self, run_options):
        """Train one run, or go on with it; return an error message or `None`."""
        out = pathlib.Path(run_options.run.out)
        resumed = (out / "config.yaml").exists()
        config = self.folder / f"{out.name}.yaml"
        plain = json.loads(json.dumps(config_of(run_options)))
        write_text_atomically(config, yaml.safe_dump(plain, sort_keys=False))
        return self._command(out.name, ["train", "--config", str(config), *(["--resume"] if resumed else [])])

    def _command(self, name, arguments):
        """Run a command of the program in another process; return an error message or `None`."""
        log = self.folder / f"{name}.log"
        print(f"{arguments[0]} {name}; its output goes to {log}", file=sys.stderr, flush=True)
        status = self.jobs.run(arguments, log)
        print(f"{arguments[0]} {name}: status {status}", file=sys.stderr, flush=True)
        if status == 0:
            return None
        if status is None:
            return f"{arguments[0]} {name} failed: its process ended, see {log}. The same comparison goes on."
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return f"{arguments[0]} {name} failed: {' '.join(last)}"


class _Watched:
    """Options that remember which of them, or which groups of them, were asked for."""

    def __init__(self, options):
        self._options, self.asked = options, {}

    def __getattr__(self, name):
        return self.asked.setdefault(name, getattr(self._options, name))


def compare(application, options):
    """Train the missing runs, then write the tables, the differences and the curves."""
    require_altair()
    comparison = Comparison(application, options)
    with comparison.jobs:
        comparison.train()
        _write(application, options, comparison)


def _write(application, options, comparison):
    from applications.common.option_values import values_of
    from applications.common.page import Page, write_page
    from applications.common.tables import difference_table, main_table, titled
    from applications.common.training_curves import training_curves

    records, columns = comparison.records, application.columns
    (first, *others) = next(iter(records.values()))
    claim = f"{1 + len(others)} seeds, mean [95% interval]" if others else "one seed, no claim"
    parts = [titled(f"{application.heading(first)}; {claim}", main_table(columns, records))]
    if options.baseline not in records:
        parts.append(_NO_BASELINE.format(options.baseline))
    elif others and len(records) > 1:
        title = f"Paired differences over seeds against {options.baseline}, mean [95% interval]"
        parts.append(titled(title, difference_table(columns, records, options.baseline)))
    for layout in getattr(options, "layout", ()):
        parts += application.layouts[layout](comparison)
    # The table is not lost if a picture fails.
    write_text_atomically(comparison.folder / "table.md", "\n\n".join(parts) + "\n")
    write_json(comparison.folder / "comparison.json", {"options": options, "runs": records})
    histories = comparison.of_models(comparison.history)
    training_curves(histories, application.curves, comparison.folder / "curves.png")
    parts += application.compared(comparison)
    table = "\n\n".join(parts) + "\n"
    write_text_atomically(comparison.folder / "table.md", table)
    print(table, flush=True)
    page = Page(
        title=f"{application.program.name.rpartition('.')[2]}: {', '.join(records)}",
        heading=f"{len(records)} models; {claim}",
        tables=table,
        histories=histories,
        curves=application.curves,
        shown=joined(comparison.shown()),
        details={"Options": values_of(options)},
    )
    write_page(comparison.folder / "report.html", page)
    if options.results is not None:
        write_results(comparison, options.results)
    print(f"written: {comparison.folder}")


def _raise_failures(futures):
    """Raise `InputError` with the messages that calls have returned, one a line."""
    failures = [message for future in futures if (message := future.result()) is not None]
    if failures:
        raise InputError("\n".join(failures))


def _has_digest(path, digest):
    try:
        return json.loads(path.read_text(encoding="utf-8")) == digest
    except (OSError, ValueError):
        return False


def _json(path):
    return read_record(path, "Remove it to train the run again.")


def _text(path):
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}. Resume the run, which writes it again.") from error
