"""Trains models with several seeds, paired, and prints tables with means, differences and 95% intervals."""

import concurrent.futures
import json
import pathlib
import sys

import numpy as np
import yaml

from applications.common.errors import InputError
from applications.common.jobs import Jobs
from applications.common.option_values import values_of
from applications.common.page import Page, pictures_in, write_page
from applications.common.plan import plan
from applications.common.program import config_of
from applications.common.records import read_record
from applications.common.results import results_before, write_results
from applications.common.runs import RunFolder, digest_of, write_json, write_text_atomically
from applications.common.shown import SHOWN, Shown, joined
from applications.common.tables import difference_table, main_table, titled
from applications.common.training_curves import training_curves
from keras_vattn.plots.chart import require_altair

_MEND = "Remove it to train the run again."
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
        first_of = {run.name: run.options for run in reversed(runs)}
        digests = {name: self._digest_of_data(options) for name, options in first_of.items()}
        for run in runs:
            if run not in missing:
                RunFolder.load(run.options.run.out).require_data(digests[run.name])
        self.folder.mkdir(parents=True, exist_ok=True)
        baseline = self.options.baseline
        if baseline not in self.models:
            print(f"{_NO_BASELINE.format(baseline)} --baseline names another.", file=sys.stderr, flush=True)
        starts = {run.start.run.out: run.start for run in missing if run.start and not self._is_finished(run.start)}
        failures = dict(zip(starts, self._in_parallel(self._train, starts.values()), strict=True))
        begun = [run.options for run in missing if failures.get(run.options.run.start_from) is None]
        _raise_failures([*failures.values(), *self._in_parallel(self._train, begun)])
        self.records = self.of_models(lambda run: self.read(run, "metrics.json"))

    def _in_parallel(self, function, items):
        """Return the results of a function for each item, `--jobs` at a time. After an exception no call begins."""
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as executor:
            return list(executor.map(function, items))

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
        reports = iter(self.report(command, name, arguments_of, planned, written=written))
        return self.of_models(lambda run: next(reports), planned)

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
        contents, file = [np.fromfile(path, np.uint8) for path in files], written or f"{name}.json"

        def report(run):
            folder = pathlib.Path(run.options.run.out)
            arguments = ["--run", str(folder), *([] if written else ["--name", name]), *arguments_of(run)]
            digest = digest_of([arguments, self.read(run, "metrics.json"), *contents])
            path, digest_file = folder / file, folder / f"{name}.arguments.json"
            if path.exists() and digest_file.exists() and digest in digest_file.read_text(encoding="utf-8"):
                return None
            if not written:
                path.unlink(missing_ok=True)
            failure = self._command(folder.name, [command, *arguments])
            if failure is None:
                write_json(digest_file, digest)
            return failure

        _raise_failures(self._in_parallel(report, runs))
        reports = [self.read(run, file) for run in runs]
        for run, of_run in zip(runs, reports, strict=True):
            self.reports.setdefault(run.options.run.out, {})[name] = of_run
        return reports

    def read(self, run, name):
        """Return the content of a .json file of a run."""
        return read_record(pathlib.Path(run.options.run.out, name), _MEND)

    def lines(self, run, name):
        """Return the lines of a text file that a run has left, one of `Application.files`."""
        path = pathlib.Path(run.options.run.out, f"{name}.txt")
        try:
            return path.read_text(encoding="utf-8").split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}. Resume the run, which writes it again.") from error

    def shown(self):
        """Return what the runs of the first seed show, a dictionary from the names of models to `Shown`, an empty one
        for a run without pages."""

        have = {run.name: pathlib.Path(run.options.run.out, SHOWN).exists() for run in self.of_first_seed}
        return {run.name: Shown.of(self.read(run, SHOWN)) if have[run.name] else Shown() for run in self.of_first_seed}

    @property
    def of_first_seed(self):
        """The planned runs of the first seed, one of each model."""
        return [run for run in self.planned if run.seed == self.options.first_seed]

    @property
    def models(self):
        """Dictionary from each name to the model of `train` that it is."""
        return {run.name: run.options.model for run in self.planned}

    def _digest_of_data(self, run_options):
        parts = self.application.read(run_options)
        if getattr(self.options, "has_methods", False):
            self.application.layouts["uncertainty"].require(run_options, parts, self.options.other)
        return digest_of(parts)

    def _is_finished(self, run_options):
        """Return whether a run with these options has been trained and reported on."""
        path = pathlib.Path(run_options.run.out, "metrics.json")
        if not path.exists():
            return False
        # A resumed run may have changed some options, such as the number of beams.
        asked, default = (json.loads(json.dumps(config_of(x))) for x in (run_options, self.application.program.default))
        # An option that the record of a run lacks has its default.
        reported = default | read_record(path, _MEND).get("options", {})
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
        if status < 0:
            return f"{arguments[0]} {name} failed: its process ended, see {log}. The same comparison goes on."
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return f"{arguments[0]} {name} failed: {' '.join(last)}"


def compare(application, options):
    """Train the missing runs, then write the tables, the differences and the curves."""
    require_altair()
    comparison = Comparison(application, options)
    comparison.train()
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
    histories = comparison.of_models(lambda run: RunFolder.load(run.options.run.out).history())
    training_curves(histories, application.curves, comparison.folder / "curves.png")
    parts += application.compared(comparison)
    table = "\n\n".join(parts) + "\n"
    write_text_atomically(comparison.folder / "table.md", table)
    print(table, flush=True)
    page = Page(
        title=f"{application.program.name.rpartition('.')[2]}: {', '.join(records)}",
        heading=f"{len(records)} models; {claim}",
        tables=table,
        pictures=pictures_in(comparison.folder),
        shown=joined(comparison.shown()),
        details={"Options": values_of(options)},
    )
    write_page(comparison.folder / "report.html", page)
    if options.results is not None:
        write_results(comparison, options.results)
    print(f"written: {comparison.folder}")


def _raise_failures(messages):
    """Raise `InputError` with the messages of commands that failed, one a line; the others have `None`."""
    failures = list(filter(None, messages))
    if failures:
        raise InputError("\n".join(failures))
