"""Trains rows x seeds, paired, and prints the papers' tables with means and 95% intervals."""

import dataclasses
import pathlib

import keras_vattn
from applications.common.command_line import find_preset, read_file
from applications.common.comparison import Comparison
from applications.common.errors import InputError
from applications.common.runs import write_json, write_text_atomically
from applications.common.splits import check_split
from applications.nmt.data import load_splits
from applications.nmt.generation import Inference, default_inference
from applications.nmt.options import PRESETS, find_row, validate
from applications.nmt.reporting import CURVE_LABELS, CURVES, HYPOTHESES, PICTURED, REFERENCES, ROW_PANELS
from applications.nmt.tables import crossing_table, tables_of
from applications.nmt.training import MAY_DIFFER

CROSSING = "crossing"


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
    comparison = Comparison("applications.nmt", folder, options.jobs, MAY_DIFFER)
    runs = {(name, seed): _run_options(options, name, seed) for seed in range(options.seeds) for name in options.rows}
    first = {run: _first_half(options, *run) for run in runs if "@" in run[0]}
    for run_options in (*runs.values(), *first.values()):
        comparison.check(run_options)
    missing = [run for run in runs if not comparison.is_finished(runs[run])]
    if missing:
        # Bad input is found here once, and not by every run.
        splits = load_splits(runs[missing[0]])
        if options.inference:
            splits.split(options.split)
    folder.mkdir(parents=True, exist_ok=True)
    halves = {half.out: half for run, half in first.items() if run in missing}
    comparison.in_parallel(comparison.train, [half for half in halves.values() if not comparison.is_finished(half)])
    comparison.in_parallel(lambda run: comparison.train(runs[run]), missing)
    records = {run: comparison.read(runs[run], "metrics.json") for run in runs}
    hypotheses = {run: comparison.lines(runs[run], HYPOTHESES) for run in runs}
    references = comparison.lines(runs[options.rows[0], 0], REFERENCES)
    tables = [tables_of(options.rows, options.seeds, options.baseline, records, hypotheses, references)]
    # What has been trained is not lost if the crossing fails.
    write_text_atomically(folder / "table.md", tables[0])
    if options.inference:
        tables.append(_cross(options, comparison, runs))
    table = "\n".join(tables)
    write_text_atomically(folder / "table.md", table)
    write_json(folder / "comparison.json", {"options": options, "runs": list(records.values())})
    columns = ("epoch", *CURVES)
    histories = {
        name: [comparison.history(runs[name, seed], columns) for seed in range(options.seeds)] for name in options.rows
    }
    keras_vattn.plots.training_curves(histories, list(CURVES), metric_labels=CURVE_LABELS, path=folder / "curves.png")
    _draw_alignments(options, comparison, runs, folder)
    print(table)
    print(f"written: {folder}")


def _validate(options):
    if not options.rows:
        raise InputError("--rows: name at least one row.")
    for name in options.rows:
        for part in name.split("@", 1):
            find_row(part)
    if options.baseline not in options.rows and options.seeds > 1:
        raise InputError(f"--baseline: expected one of the rows. Received: {options.baseline}")
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
            if same["source"] != pair["source"] or same["target"] != pair["target"]:
                raise InputError(f"{runs[name, 0].out} has been trained on other pairs.")
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
    """Evaluate every run under every inference that it has; return the table, PPL and BLEU of each pair."""

    def evaluate(run):
        row = run[0].partition("@")[0]
        continuous = find_row(row).alignment is not None
        names = [name for name in options.inference if not continuous or name.split(":")[0] in ("soft", "sample")]
        arguments = ["--run", runs[run].out, "--split", options.split, "--name", CROSSING]
        arguments += ["--inference", *(names or [default_inference(row)])]
        if options.k_curve and not continuous:
            arguments += ["--k-curve", str(options.k_curve)]
        return comparison.run(pathlib.Path(runs[run].out).name, ["evaluate", *arguments])

    comparison.in_parallel(evaluate, list(runs))
    found = {run: comparison.read(runs[run], f"{CROSSING}.json") for run in runs}
    return crossing_table(options.rows, options.seeds, found)
