"""Trains models with several seeds and prints tables with means, paired differences and 95% intervals."""

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

_MEND = "Remove it to repeat the run."
_NO_BASELINE = "No table of differences: the baseline {} is not among the models."


class Comparison:
    """Trains and evaluates the runs that the command `compare` shows in its tables.

    Attributes:
        application: `Application`.
        options: Options of `compare`.
        folder: `pathlib.Path`.
        planned: List of `Planned`: the runs whose results the tables show.
        members: List of `Planned`: additional runs that serve only as members of ensembles.
        records: Dictionary {name of a model: list with the content of each run's metrics.json}; set by `train`.
        reports: Dictionary {folder of a run: {name of a report: report}}; filled by `evaluate`.
        results_before: Previous content of the file `--results`, a dictionary; `None` if there is no such file.
    """

    def __init__(self, application, options):
        self.application = application
        self.options = options
        self.folder = pathlib.Path(options.out)
        runs = plan(application.program, options)
        self.planned, self.members = ([run for run in runs if run.is_member == kind] for kind in (False, True))
        self.results_before = options.results and results_before(application.program, options)
        self._jobs = Jobs(application.program, options.jobs)
        self.reports = {}

    def train(self):
        """Train all runs that are missing or unfinished, then set `records`."""
        runs = [*self.planned, *self.members]
        missing = [run for run in runs if not self._is_finished(run.options)]
        # Read all data here, so that bad files raise an error before any training starts.
        digests = {run.name: self._digest_of_data(run.options) for run in runs if run.seed == self.options.first_seed}
        for run in runs:
            if run not in missing:
                RunFolder.load(run.options.run.out).require_data(digests[run.name])
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.options.baseline not in {run.name for run in self.planned}:
            message = _NO_BASELINE.format(self.options.baseline)
            print(f"{message} Choose another --baseline.", file=sys.stderr, flush=True)
        starts = {run.start.run.out: run.start for run in missing if run.start and not self._is_finished(run.start)}
        failures = dict(zip(starts, self._in_parallel(self._train, starts.values()), strict=True))
        begun = [run.options for run in missing if failures.get(run.options.run.start_from) is None]
        _raise_failures([*failures.values(), *self._in_parallel(self._train, begun)])
        self.records = self.results_by_model(lambda run: self.read(run, "metrics.json"))

    def _in_parallel(self, function, items):
        """Return `function(item)` for each item. `--jobs` calls run at a time."""
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as executor:
            return list(executor.map(function, items))

    def results_by_model(self, read, runs=None):
        """Return a dictionary {name of a model: list of `read(run)`, one per seed}."""
        results = {}
        for run in self.planned if runs is None else runs:
            results.setdefault(run.name, []).append(read(run))
        return results

    def evaluate(self, name, arguments_of, command="evaluate", written=None, runs=None, files=()):
        """Write the missing and the outdated reports. Return all reports, as `results_by_model` does.

        Args:
            name: Name of the reports. The command writes NAME.json into the folder of each run.
            arguments_of: Function of a `Planned` that returns command-line arguments, or `None` to skip the run.
            command: Name of the command that writes the report.
            written: Name of the .json file, if the command has no option `--name`.
            runs: List of `Planned`. Defaults to `None`: the runs in `planned`.
            files: Paths of files that the command reads. If a file changes, the command runs again.
        """
        runs = [run for run in (self.planned if runs is None else runs) if arguments_of(run) is not None]
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
        for run in runs:
            self.reports.setdefault(run.options.run.out, {})[name] = self.read(run, file)
        return self.results_by_model(lambda run: self.reports[run.options.run.out][name], runs)

    def read(self, run, name):
        """Return the content of the .json file `name` in the folder of a run."""
        return read_record(pathlib.Path(run.options.run.out, name), _MEND)

    def shown(self):
        """Return a dictionary that maps each model name to the `Shown` of its run with the first seed."""
        first = [run for run in self.planned if run.seed == self.options.first_seed]
        paths = {run.name: pathlib.Path(run.options.run.out, SHOWN) for run in first}
        return {name: Shown.of(read_record(path, _MEND)) if path.exists() else Shown() for name, path in paths.items()}

    @property
    def models(self):
        """Dictionary that maps each name in `--models`, such as `wc:prior_beta=10`, to its model: `wc`."""
        return {run.name: run.options.model for run in self.planned}

    def _digest_of_data(self, run_options):
        parts = self.application.read(run_options)
        # In programs without the option `--other`, this layout is a function and has no method `require`.
        if "uncertainty" in getattr(self.options, "layout", ()) and hasattr(self.options, "other"):
            self.application.layouts["uncertainty"].require(run_options, parts, self.options.other)
        return digest_of(parts)

    def _is_finished(self, run_options):
        path = pathlib.Path(run_options.run.out, "metrics.json")
        if not path.exists():
            return False
        # `--resume` may change config.yaml, so read the options from metrics.json.
        config, default = (_plain_config(x) for x in (run_options, self.application.program.default))
        reported = default | read_record(path, _MEND).get("options", {})
        return all(reported[name] == config[name] for name in config if name not in ("out", "export"))

    def _train(self, run_options):
        """Train or resume one run. Return an error message, or `None` on success."""
        out = pathlib.Path(run_options.run.out)
        config = self.folder / f"{out.name}.yaml"
        write_text_atomically(config, yaml.safe_dump(_plain_config(run_options), sort_keys=False))
        resume = ["--resume"] if (out / "config.yaml").exists() else []
        return self._command(out.name, ["train", "--config", str(config), *resume])

    def _command(self, name, arguments):
        """Run a command in another process. Return an error message, or `None` on success."""
        log = self.folder / f"{name}.log"
        print(f"{arguments[0]} {name}; its output goes to {log}", file=sys.stderr, flush=True)
        status = self._jobs.run(arguments, log)
        print(f"{arguments[0]} {name}: status {status}", file=sys.stderr, flush=True)
        if status == 0:
            return None
        if status < 0:
            return f"{arguments[0]} {name} failed: its process ended, see {log}. Run the same command to continue."
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return f"{arguments[0]} {name} failed: {' '.join(last)}"


def compare(application, options):
    """Train the missing runs, write tables of metrics and differences, and plot training curves."""
    require_altair()
    comparison = Comparison(application, options)
    comparison.train()
    records, columns = comparison.records, application.columns
    first, *rest = next(iter(records.values()))
    claim = f"{1 + len(rest)} seeds, mean [95% interval]" if rest else "one seed, no claim"
    parts = [titled(f"{application.heading(first)}; {claim}", main_table(columns, records))]
    if options.baseline not in records:
        parts.append(_NO_BASELINE.format(options.baseline))
    elif rest and len(records) > 1:
        title = f"Differences from the model {options.baseline}, paired by seed: mean [95% interval]"
        parts.append(titled(title, difference_table(columns, records, options.baseline)))
    for layout in getattr(options, "layout", ()):
        parts += application.layouts[layout](comparison)
    write_json(comparison.folder / "comparison.json", {"options": options, "runs": records})
    histories = comparison.results_by_model(lambda run: RunFolder.load(run.options.run.out).history())
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


def _plain_config(options):
    """Return the dictionary that config.yaml stores, with lists in place of tuples."""
    return json.loads(json.dumps(config_of(options)))


def _raise_failures(messages):
    """Raise an `InputError` that lists all messages except `None`, if there are any."""
    failures = list(filter(None, messages))
    if failures:
        raise InputError("\n".join(failures))
