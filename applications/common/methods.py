"""Compares stochastic attention with other uncertainty methods, for `uncertainty` and `compare --layout uncertainty`.

The table has one row per model and method:
- mean attention weights;
- mean attention weights, with a temperature fitted on validation data (Guo et al. 2017);
- an average over samples of dropout (Gal and Ghahramani 2016), of attention, or of both;
- in `compare`, an ensemble of baselines (Lakshminarayanan et al. 2017).

Shapes: M samples or ensemble members, N examples, C classes.
"""

import dataclasses
import pathlib
import typing

import numpy as np
import scipy.special

from applications.common.checkpoint import read_arrays
from applications.common.errors import InputError
from applications.common.option_values import first_value
from applications.common.progress import progress
from applications.common.records import read_record
from applications.common.runs import digest_of, replacing, write_json
from applications.common.tables import Column, difference_table, main_table, titled
from applications.common.training import load_run
from applications.common.uncertainty import calibration
from keras_vattn import metrics

# With the name "uncertainty", `compare` would overwrite the reports of the command `uncertainty`.
_COMPARED = "uncertainty_compared"
_REPORT_AGAIN = "Resume the run, which rewrites the file."
COLUMNS = (
    Column("accuracy (%)", "accuracy", 2, 100.0),
    Column("accuracy, corrupted (%)", "accuracy_corrupted", 2, 100.0),
    Column("NLL (nats)", "nll"),
    Column("ECE", "ece"),
    Column("Brier", "brier"),
    Column("risk-coverage area", "risk_coverage_area", 4),
    Column("AUROC, other data", "other"),
    Column("AUROC, corrupted", "corrupted"),
    Column("AUROC by MI, other data", "other_mi", against="other"),
    Column("AUROC by MI, corrupted", "corrupted_mi", against="corrupted"),
    Column("training (s)", "train_seconds", 0, differs=False),
    Column("prediction (ms/batch)", "ms", 1, differs=False),
)
_SAMPLED = {"dropout": "dropout sampled", "attention": "attention sampled", "both": "both sampled"}


@dataclasses.dataclass(frozen=True)
class Uncertainty:
    """Functions of a program that the commands `uncertainty` and `compare --layout uncertainty` call.

    Attributes:
        predictor: Function (run, part, corruption) that returns a `predictor.Predictor` for an encoded split, whose
            inputs are corrupted by the amount `corruption`.
        other: Function (options, path, codec=None) that reads a file of out-of-distribution data. Labels in this file
            are ignored.
        corruption: The default amount of corruption.
        refuse: Function (options) that raises `InputError` if a run with these options does not predict classes.
    """

    predictor: typing.Callable
    other: typing.Callable
    corruption: float
    refuse: typing.Callable = lambda options: None

    def require(self, options, parts, other):
        """Raise `InputError` if a run predicts no classes, lacks test data, or cannot read `other`."""
        self.refuse(options)
        if other is not None:
            self.other(options, other)
        if "test" not in parts:
            raise InputError("The uncertainty table needs test data. It uses validation data to fit temperatures.")

    def __call__(self, comparison):
        """Run the command `uncertainty` for every run of a `compare.Comparison`; return the tables."""
        options, rows = comparison.options, {}
        corruption = self.corruption if options.corruption is None else options.corruption
        words = ["--corruption", str(corruption), *(() if options.other is None else ("--other", options.other))]
        # An ensemble averages predictions at mean attention weights, so its members need no draws.
        no_draws = ["--num-draws", "0"]
        reports = comparison.evaluate(
            _COMPARED,
            lambda run: [*words, *no_draws * run.is_member],
            command="uncertainty",
            runs=[*comparison.planned, *comparison.members],
            files=[] if options.other is None else [options.other],
        )
        for name in comparison.records:
            for report in reports[name][: options.seeds]:
                for method, method_figures in report["methods"].items():
                    rows.setdefault(name + method, []).append(method_figures)
        # With S seeds, the ensemble of seed s has the members s, s + S, s + 2 S, ...
        baseline_runs = [run for run in (*comparison.planned, *comparison.members) if run.name == options.baseline]
        for first in range(options.seeds if options.num_members else 0):
            folders = [pathlib.Path(run.options.run.out) for run in baseline_runs[first :: options.seeds]]
            seconds = sum(x["methods"][""]["train_seconds"] for x in reports[options.baseline][first :: options.seeds])
            row = rows.setdefault(f"{options.baseline}, ensemble of {len(folders)}", [])
            row.append(figures(_ensemble([_read(folder / f"{_COMPARED}.npz") for folder in folders]), seconds))
        tables = [titled(reports[options.models[0]][0]["title"], main_table(COLUMNS, rows, ("method",)))]
        if options.seeds > 1 and options.baseline in rows:
            note = f"For {options.baseline}, all AUROCs are computed from the entropy"
            title = f"Differences from the model {options.baseline}, paired by seed: mean [95% interval]. {note}"
            tables.append(titled(title, difference_table(COLUMNS, rows, options.baseline)))
        return tables


def uncertainty(application, options):
    """Compute, print and write the metrics of each uncertainty method for one run.
    Also write an .npz file with the predictions at mean attention weights."""
    train_seconds = read_record(pathlib.Path(options.run, "metrics.json"), _REPORT_AGAIN)["train_seconds"]
    run, layout = load_run(application, options.run), application.layouts["uncertainty"]
    parts = application.read(run.options)
    run.folder.require_data(digest_of(parts))
    layout.require(run.options, parts, options.other)
    parts = {name: parts[name] for name in ("valid", "test")}
    if options.other is not None:
        parts["other"] = layout.other(run.options, options.other, run.codec)
    encoded = {name: application.encode(run.options, run.codec, part) for name, part in parts.items()}
    corruption = layout.corruption if options.corruption is None else options.corruption
    amounts = dict.fromkeys(encoded, 0.0)
    if corruption:
        encoded["corrupted"], amounts["corrupted"] = encoded["test"], corruption
    num_draws, sets, samplers = first_value("num_draws", options, run.options.reports), {}, {}
    for name, part in progress(encoded.items(), "predicting"):
        predictor = dataclasses.replace(layout.predictor(run, part, amounts[name]), samplers=samplers)
        sets[name] = predictor.predictions(0 if name == "valid" else num_draws)
    stored = ("labels", "mean", "mean_ms")
    results = _methods(sets, train_seconds)
    title = f"Uncertainty: metrics from {num_draws} draws, with corruption {corruption:g} (MI: mutual information)"
    rows = {f"{run.options.model}{method}": [result] for method, result in results.items()}
    print(f"{title}\n\n{main_table(COLUMNS, rows, ('method',))}", flush=True)
    path = pathlib.Path(options.out or run.folder.path, f"{options.name}.npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **{f"{name}/{key}": predictions[key] for name, predictions in sets.items() for key in stored})
    write_json(path.with_suffix(".json"), {"title": title, "options": options, "methods": results})
    print(f"written: {path.with_suffix('.json')}, {path.name}")


def _read(path):
    """Return a dictionary that maps each data set ("test", ...) to a dictionary of arrays."""
    sets = {}
    for name, array in read_arrays(path).items():
        first, second = name.split("/")
        sets.setdefault(first, {})[second] = array
    return sets


def _methods(sets, train_seconds):
    """Return the metrics of each method. Keys are suffixes of row labels, such as ", temperature"."""
    results = {"": figures(sets, train_seconds), ", temperature": figures(_with_temperature(sets), train_seconds)}
    drawn = {kind: text for kind, text in _SAMPLED.items() if kind in sets["test"]}
    return results | {f", {text}": figures(sets, train_seconds, kind) for kind, text in drawn.items()}


def _with_temperature(sets):
    """Return `sets` with "mean" predictions scaled by a temperature."""
    logits = {name: np.log(np.maximum(x["mean"], np.finfo("float32").tiny)) for name, x in sets.items()}
    labels = sets["valid"]["labels"]
    temperature = metrics.fit_temperature(logits["valid"][:, labels >= 0], labels[labels >= 0])
    return {name: x | {"mean": scipy.special.softmax(logits[name] / temperature, axis=-1)} for name, x in sets.items()}


def _ensemble(members):
    """Return the `sets` of all members, merged: "mean" is concatenated, and "mean_ms" is summed."""
    return {
        name: x
        | {
            "mean": np.concatenate([sets[name]["mean"] for sets in members]),
            "mean_ms": sum(float(sets[name]["mean_ms"]) for sets in members),
        }
        for name, x in members[0].items()
    }


def figures(sets, train_seconds, kind="mean"):
    """Return the metrics of one kind of prediction: "mean", "dropout", "attention" or "both".
    `sets` maps "test" and, optionally, "corrupted" and "other" to predictions. An AUROC measures how well an
    uncertainty score separates "corrupted" or "other" from "test". A label of -1 means unknown."""
    labels, draws, ms = (sets["test"][name] for name in ("labels", kind, f"{kind}_ms"))
    is_labelled = labels >= 0
    report = calibration(draws[:, is_labelled], labels[is_labelled])
    for end, name in {"": "test", "_corrupted": "corrupted"}.items():
        if name in sets:
            is_right = sets[name][kind].mean(axis=0).argmax(axis=-1) == labels
            report[f"accuracy{end}"] = float(is_right[is_labelled].mean())
    scores = {"": metrics.predictive_entropy}
    if len(draws) > 1:
        scores["_mi"] = metrics.mutual_information
    for name in (x for x in ("other", "corrupted") if x in sets):
        for end, score in scores.items():
            detection = metrics.out_of_distribution_detection(score(draws), score(sets[name][kind]))
            report[name + end] = detection["auroc"]
    return report | {"train_seconds": train_seconds, "ms": float(ms)}
