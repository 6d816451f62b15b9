"""What drawn attention is worth beside what people do today: the tables of `compare --layout uncertainty`.

Rows are the prediction of each model at the mean of its attention, the same with a temperature that was fitted on
validation (Guo et al. 2017), the mean of draws of dropout (Gal and Ghahramani 2016), of the attention and of both, and
an ensemble of the baseline (Lakshminarayanan et al. 2017).

Shapes: M draws or members, N examples, C classes.
"""

import pathlib

import keras
import numpy as np
import scipy.special

from applications.common import uncertainty
from applications.common.errors import InputError
from applications.common.progress import progress
from applications.common.runs import digest_of
from applications.common.tables import Column, difference_table, main_table, titled
from applications.common.training import load_run
from keras_vattn import metrics

# Predictions of a run, beside its other files.
FILE = "uncertainty.npz"
COLUMNS = (
    Column("accuracy (%)", "accuracy", 2, 100.0),
    Column("NLL (nats)", "nll"),
    Column("ECE", "ece"),
    Column("Brier", "brier"),
    Column("risk-coverage area", "risk_coverage_area", 4),
    Column("AUROC, other data", "other"),
    Column("AUROC, corrupted", "corrupted"),
    Column("by MI: other", "other_mi", differs=False),
    Column("corrupted", "corrupted_mi", differs=False),
    Column("training (s)", "train_seconds", 0, differs=False),
    Column("a batch (ms)", "ms", 1, differs=False),
)
_DRAWN = {"dropout": "dropout drawn", "attention": "attention drawn", "both": "both drawn"}


class Uncertainty:
    """The layout: a function of a `compare.Comparison` that returns its tables.

    Args:
        predictor: Function (run, part, corruption) that returns the `predictor.Predictor` of an encoded part with its
            inputs corrupted by so much.
        other: Function (run, path) that returns the encoded part of a file of other data, whose labels mean nothing.
        corruption: How much where the user does not say.
        refuse: Function of the options of a run that raises `InputError` where it predicts no classes.
    """

    def __init__(self, predictor, other, corruption, refuse=lambda options: None):
        self._predictor, self._other, self._corruption, self._refuse = predictor, other, corruption, refuse

    def require(self, options, parts):
        """Raise `InputError` for a run of whose data there can be no such table."""
        self._refuse(options)
        if "test" not in parts:
            raise InputError("--layout: uncertainty needs test data; temperatures are fitted on validation.")

    def __call__(self, comparison):
        options, rows = comparison.options, {}
        corruption = self._corruption if options.corruption is None else options.corruption
        runs = [*comparison.planned, *comparison.members]
        found = [self._predictions(comparison, run, corruption) for run in progress(runs, "predicting")]
        seconds = [comparison.read(run, "metrics.json")["train_seconds"] for run in runs]
        for run, sets, trained in zip(comparison.planned, found, seconds):
            for method, of_method in _methods(sets).items():
                rows.setdefault(run.name + method, []).append(figures(of_method, trained))
        # Member k of the ensemble of a seed is the run of the baseline with the seed after k rounds of seeds.
        of_baseline = [index for index, run in enumerate(runs) if run.name == options.baseline]
        for first in range(options.seeds if options.num_members else 0):
            members = of_baseline[first :: options.seeds]
            row = rows.setdefault(f"{options.baseline}, ensemble of {len(members)}", [])
            row.append(figures(_ensemble([found[k] for k in members]), sum(seconds[k] for k in members)))
        drawn = runs[0].options.reports.num_draws
        title = f"Uncertainty: {drawn} draws, corruption {corruption:g}; AUROC of entropy, and of mutual information"
        tables = [titled(title, main_table(COLUMNS, rows, ("method",)))]
        if options.seeds > 1 and options.baseline in rows:
            title = f"Paired differences over seeds against {options.baseline}, mean [95% interval]"
            tables.append(titled(title, difference_table(COLUMNS, rows, options.baseline)))
        return tables

    def _predictions(self, comparison, run, corruption):
        """Return the predictions of a run, a dictionary: of "valid", "test", "corrupted" and "other" examples."""
        application, options, folder = comparison.application, run.options, pathlib.Path(run.options.run.out)
        parts = {name: part for name, part in application.read(options).items() if name != "train"}
        other = comparison.options.other
        content = other and np.fromfile(other, np.uint8)
        known = digest_of([comparison.read(run, "metrics.json"), parts, content, corruption])
        if (folder / FILE).exists():
            with np.load(folder / FILE) as file:
                if str(file["digest"]) == known:
                    return _nested({name: file[name] for name in file.files if name != "digest"})
        keras.backend.clear_session()
        trained = load_run(application, str(folder))
        encoded = {name: application.encode(options, trained.codec, part) for name, part in parts.items()}
        if other:
            encoded["other"] = self._other(trained, other)
        amounts = dict.fromkeys(encoded, 0.0)
        if corruption:
            encoded["corrupted"], amounts["corrupted"] = encoded["test"], corruption
        flat = {}
        for name, part in encoded.items():
            predictions = self._predictor(trained, part, amounts[name]).predictions(options.reports.num_draws)
            flat |= {f"{name}/{key}": value for key, value in predictions.items()}
        np.savez(folder / FILE, digest=known, **flat)
        return _nested(flat)


def _nested(flat):
    sets = {}
    for name, value in flat.items():
        first, second = name.split("/")
        sets.setdefault(first, {})[second] = value
    return sets


def _methods(sets):
    """Return what each method makes of the predictions of a run, a dictionary from the end of the name of its row to
    {set of examples: (labels, probabilities (M, N, C), milliseconds)}."""
    kinds = {"mean": ""} | {kind: f", {text}" for kind, text in _DRAWN.items() if kind in sets["test"]}
    drawn = {
        text: {name: (x["labels"], x[kind], float(x[f"{kind}_ms"])) for name, x in sets.items()}
        for kind, text in kinds.items()
    }
    logits = {name: np.log(np.maximum(x["mean"], np.finfo("float32").tiny)) for name, x in sets.items()}
    labels = sets["valid"]["labels"]
    temperature = metrics.fit_temperature(logits["valid"][:, labels >= 0], labels[labels >= 0])
    tempered = {
        name: (labels, scipy.special.softmax(logits[name] / temperature, axis=-1), ms)
        for name, (labels, _, ms) in drawn[""].items()
    }
    return {"": drawn[""], ", temperature": tempered} | drawn


def _ensemble(found):
    """Return the predictions of runs as draws of one model, as `_methods` does."""
    return {
        name: (
            x["labels"],
            np.concatenate([sets[name]["mean"] for sets in found]),
            sum(float(sets[name]["mean_ms"]) for sets in found),
        )
        for name, x in found[0].items()
    }


def figures(sets, train_seconds):
    """Return the figures of a method.

    Args:
        sets: Dictionary of (labels (N,), -1 for unknown, probabilities (M, N, C), milliseconds): "test", and perhaps
            "corrupted" and "other", which are to be told from it.
        train_seconds: What training took.
    """
    labels, draws, ms = sets["test"]
    known = labels >= 0
    right = draws.mean(axis=0).argmax(axis=-1) == labels
    report = {"accuracy": float(right[known].mean()), **uncertainty.calibration(draws[:, known], labels[known])}
    scores = {"": metrics.predictive_entropy}
    if len(draws) > 1:
        scores["_mi"] = metrics.mutual_information
    for name in sets.keys() & {"other", "corrupted"}:
        for end, score in scores.items():
            told = metrics.out_of_distribution_detection(score(draws), score(sets[name][1]))
            report[name + end] = told["auroc"]
    return report | {"train_seconds": train_seconds, "ms": ms}
