"""Trains rows x seeds, paired, and prints the papers' tables with means and 95% intervals."""

import dataclasses
import pathlib
import threading

import keras_vattn
from applications.common.command_line import find_preset, read_file
from applications.common.comparison import Comparison
from applications.common.errors import InputError
from applications.common.runs import RunFolder, write_json, write_text_atomically
from applications.nmt.data import load_splits
from applications.nmt.generation import Inference, default_inference
from applications.nmt.options import PRESETS, ROWS, find_row, validate
from applications.nmt.reporting import CURVE_LABELS, CURVES, HYPOTHESES, PICTURED, REFERENCES, ROW_PANELS
from applications.nmt.tables import crossing_table, tables_of
from applications.nmt.training import MAY_DIFFER
from applications.text.splits import check_split

CROSSING = "crossing"
# What a finished run has left.
LEFT = ("metrics.json", "history.csv", HYPOTHESES, REFERENCES, PICTURED)


@dataclasses.dataclass
class CompareOptions:
    """Train rows with several seeds on the same data and print the papers' tables."""

    out: str = "runs/nmt_compare"
    """Folder; every run is a folder in it. Runs that have finished are read, not trained again."""
    rows: tuple[str, ...] = ("soft", "marginal", "variational_sample", "variational_enum", "bam_weibull")
    """Rows. variational_sample@soft starts from a soft model of half the epochs and trains for the other half."""
    seeds: int = 3
    """Number of seeds, 0, 1, 2, ...; the rows of one seed form a pair."""
    baseline: str = "soft"
    """Differences are taken against this row."""
    preset: str = "small"
    """Preset of `train` for every run."""
    options: str | None = None
    """YAML file with options of `train` for every run, as `train --config` reads it."""
    jobs: int = 1
    """Runs trained at the same time; the processor's cores are shared out between them."""
    inference: tuple[str, ...] = ()
    """Also cross every row with these inferences, for instance exact kmax:5 soft (Table 2 of Deng et al. 2018)."""
    split: str = "test"
    """Split of the crossing."""
    k_curve: int = 0
    """Also log p for K = 1 ... this of the crossing."""


def compare(options):
    """Train what is missing, then write the tables, the differences and the pictures."""
    _validate(options)
    folder = pathlib.Path(options.out)
    comparison = Comparison("applications.nmt", folder, options.jobs, MAY_DIFFER, LEFT)
    runs = {(name, seed): _run_options(options, name, seed) for seed in range(options.seeds) for name in options.rows}
    first = {run: _first_half(options, *run) for run in runs if "@" in run[0]}
    for run, run_options in (*runs.items(), *first.items()):
        # With more epochs than before the one would go on, and not start again from a half that is longer.
        comparison.check(run_options, fixed=("epochs",) if run in first else ())
    # Bad input is found here once, and not by every run.
    splits = load_splits(runs[options.rows[0], 0])
    if options.inference:
        splits.split(options.split)
    missing = [run for run in runs if not comparison.is_finished(runs[run])]
    for run in runs:
        if run not in missing:
            splits.require_those_of(RunFolder.load(runs[run].out))
    comparison.make_folder()
    _train(comparison, [runs[run] for run in missing], [first[run] for run in missing if run in first])
    found = _of_rows(options, lambda run: comparison.read(runs[run], "metrics.json"))
    hypotheses = _of_rows(options, lambda run: comparison.lines(runs[run], HYPOTHESES))
    references = comparison.lines(runs[options.rows[0], 0], REFERENCES)
    table = tables_of(found, options.baseline, hypotheses, references)
    # What has been trained is not lost if the crossing fails.
    write_text_atomically(folder / "table.md", table)
    crossed = None
    if options.inference:
        crossed = _cross(options, comparison, runs)
        table = f"{table}\n{crossing_table(crossed)}"
        write_text_atomically(folder / "table.md", table)
    print(table)
    write_json(folder / "comparison.json", {"options": options, "runs": found, "crossing": crossed})
    histories = _of_rows(options, lambda run: comparison.history(runs[run], ("epoch", *CURVES)))
    keras_vattn.plots.training_curves(histories, list(CURVES), metric_labels=CURVE_LABELS, path=folder / "curves.png")
    _draw_alignments(options, comparison, runs, folder)
    print(f"written: {folder}")


def _train(comparison, missing, halves):
    """Train runs, and before those that start from one the first half that they start from."""
    halves = {half.out: half for half in halves if not comparison.is_finished(half)}
    ended = {out: threading.Event() for out in halves}
    trained = set()

    def train(run_options):
        if run_options.init_from in ended:
            ended[run_options.init_from].wait()
            if run_options.init_from not in trained:
                return f"train {pathlib.Path(run_options.out).name} was not begun: what it starts from is not trained."
        try:
            failure = comparison.train(run_options)
            if failure is None:
                trained.add(run_options.out)
            return failure
        finally:
            if run_options.out in ended:
                ended[run_options.out].set()

    # In this order whoever waits waits for a run that has begun.
    order = sorted(missing, key=lambda run_options: run_options.init_from in ended)
    comparison.in_parallel(train, [*halves.values(), *order])


def _of_rows(options, read):
    """Return a dictionary from each row's name to what is read of each seed's run."""
    return {name: [read((name, seed)) for seed in range(options.seeds)] for name in options.rows}


def _validate(options):
    if not options.rows:
        raise InputError("--rows: name at least one row.")
    for name in options.rows:
        row, _, start = name.partition("@")
        if row not in ROWS or (start if "@" in name else "soft") not in ROWS:
            raise InputError(f"--rows: expected {', '.join(ROWS)}, or two of them as ROW@START. Received: {name}")
    if options.k_curve < 0:
        raise InputError(f"--k-curve: must be at least 0. Received: {options.k_curve}")
    if not options.inference and (options.k_curve or options.split != "test"):
        raise InputError("--k-curve and --split are those of the crossing: name its --inference.")
    if len(set(options.rows)) < len(options.rows):
        raise InputError(f"--rows: every row once. Received: {' '.join(options.rows)}")
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name}: must be positive. Received: {getattr(options, name)}")
    check_split(options.split)
    for name in options.inference:
        # That of a row with a categorical alignment takes every name.
        Inference.parse(name, "marginal")


def _run_options(options, name, seed):
    """Return the options of one run."""
    row, _, start = name.partition("@")
    run_options = find_preset(PRESETS, options.preset)
    if options.options is not None:
        run_options = read_file("--options", options.options, run_options)
    out = pathlib.Path(options.out) / f"{name.replace('@', '_from_')}_seed_{seed}"
    run_options = dataclasses.replace(run_options, row=row, seed=seed, out=str(out))
    if start:
        half = run_options.epochs // 2
        if half < 1:
            raise InputError(f"--rows: {name} needs two epochs at least. Received: {run_options.epochs}")
        run_options = dataclasses.replace(
            run_options, epochs=run_options.epochs - half, init_from=str(_half_folder(options, start, seed))
        )
    validate(run_options)
    return run_options


def _first_half(options, name, seed):
    """Return the options of the run that another starts from."""
    start = name.partition("@")[2]
    run_options = _run_options(options, start, seed)
    out = str(_half_folder(options, start, seed))
    return dataclasses.replace(run_options, epochs=run_options.epochs // 2, out=out, export=False)


def _half_folder(options, start, seed):
    return pathlib.Path(options.out) / f"{start}_half_seed_{seed}"


def _draw_alignments(options, comparison, runs, folder):
    """Draw alignments.png: of the pairs of seed 0, what every row believes before and after it sees the word."""
    found = {name: comparison.read(runs[name, 0], PICTURED) for name in options.rows}
    panels, sources, targets, titles = [], [], [], []
    for index, pair in enumerate(found[options.rows[0]]["pairs"]):
        for name in options.rows:
            same = found[name]["pairs"][index]
            for kind in (kind for kind in ROW_PANELS if kind in same["weights"]):
                panels.append(same["weights"][kind])
                sources.append(pair["source"])
                targets.append(pair["target"])
                titles.append(f"{name}: {kind}")
    per_pair = len(panels) // len(found[options.rows[0]]["pairs"])
    keras_vattn.plots.alignment_heat_map(
        panels, sources, targets, titles, panels_per_row=per_pair, path=folder / "alignments.png"
    )


def _cross(options, comparison, runs):
    """Evaluate every run under every inference that it has; return what is known of each row's runs."""

    def evaluate(run):
        row = run[0].partition("@")[0]
        continuous = find_row(row).alignment is not None
        names = [name for name in options.inference if not continuous or name.split(":")[0] in ("soft", "sample")]
        names = names or [default_inference(row)]
        k_curve = 0 if continuous else options.k_curve
        if _is_crossed(comparison, runs[run], options.split, names, k_curve):
            return None
        arguments = ["--run", runs[run].out, "--split", options.split, "--name", CROSSING, "--inference", *names]
        return comparison.run(pathlib.Path(runs[run].out).name, ["evaluate", *arguments, "--k-curve", str(k_curve)])

    comparison.in_parallel(evaluate, list(runs))
    return _of_rows(options, lambda run: comparison.read(runs[run], f"{CROSSING}.json"))


def _is_crossed(comparison, run_options, split, names, k_curve):
    """Return whether a run's crossing.json is that of its weights, and what is asked for."""
    path, trained = (pathlib.Path(run_options.out) / name for name in (f"{CROSSING}.json", "metrics.json"))
    if not path.exists() or path.stat().st_mtime < trained.stat().st_mtime:
        return False
    known = comparison.read(run_options, path.name)
    curve = known.get("k_curve")
    asked = (split, "best", names, k_curve)
    return asked == (
        known.get("split"),
        known.get("weights"),
        [report["inference"] for report in known["inferences"]],
        0 if curve is None else len(curve["k"]),
    )
