"""Trains rows x seeds, paired, and prints the papers' tables with means and 95% intervals."""

import dataclasses
import math
import pathlib

import keras_vattn
from applications.common.command_line import find_preset, read_file
from applications.common.comparison import Comparison
from applications.common.errors import InputError
from applications.common.metrics import mean_interval, paired_interval
from applications.common.runs import write_json, write_text_atomically
from applications.common.splits import check_split
from applications.nmt.data import load_splits
from applications.nmt.generation import Inference, default_inference
from applications.nmt.options import PRESETS, find_row, validate
from applications.nmt.reporting import CURVE_LABELS, CURVES
from applications.nmt.training import MAY_DIFFER


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
    tables = [table_of(options, records)]
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


def table_of(options, records):
    """Return the table of all rows in Markdown: means with 95% intervals, then paired differences."""
    first = next(iter(records.values()))
    claim = "one seed, no claim" if options.seeds == 1 else f"{options.seeds} seeds, mean [95% interval]"
    translation = first["report"]["translation"]
    columns = {
        "PPL": lambda record: record["report"]["likelihood"]["perplexity"],
        "PPL (ELBO)": lambda record: record["report"]["likelihood"].get("elbo_perplexity"),
        "BLEU": lambda record: record["report"]["translation"]["bleu"],
        "chrF": lambda record: record["report"]["translation"]["chrf"],
        "exact match": lambda record: 100 * record["report"]["translation"]["exact_match"],
        "prior entropy": lambda record: record["report"]["alignment"].get("prior_entropy"),
        "posterior entropy": lambda record: record["report"]["alignment"].get("posterior_entropy"),
        "F1": lambda record: _percent(record["report"]["alignment"].get("prior", {}).get("f1")),
        "s/step": lambda record: record["step_seconds"],
        "parameters (M)": lambda record: record["parameters"]["generative"] / 1e6,
        "inference (M)": lambda record: record["parameters"]["inference"] / 1e6,
    }
    lines = [
        f"{claim}; {first['report']['num_sentences']} {first['split']} sentences; {translation['bleu_signature']}",
        "",
        "| row | kind of PPL | " + " | ".join(columns) + " |",
        "|" + "---|" * (len(columns) + 2),
    ]
    for name in options.rows:
        rows = [records[name, seed] for seed in range(options.seeds)]
        cells = [_cell([of(record) for record in rows]) for of in columns.values()]
        lines.append(f"| {name} | {rows[0]['report']['likelihood']['kind']} | " + " | ".join(cells) + " |")
    if options.seeds > 1 and options.baseline in options.rows:
        compared = {
            "log PPL": lambda record: math.log(record["report"]["likelihood"]["perplexity"]),
            "BLEU": columns["BLEU"],
        }
        lines += ["", f"Paired differences against {options.baseline}:", ""]
        lines += ["| row | " + " | ".join(compared) + " |", "|" + "---|" * (len(compared) + 1)]
        for name in options.rows:
            if name != options.baseline:
                cells = [
                    _cell(
                        [[of(records[row, seed]) for seed in range(options.seeds)] for row in (name, options.baseline)],
                        lambda pair: paired_interval(*pair),
                    )
                    for of in compared.values()
                ]
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cross(options, comparison, runs):
    """Evaluate every run under every inference that it has; return the table, PPL and BLEU of each pair."""

    def evaluate(run):
        row = run[0].partition("@")[0]
        continuous = find_row(row).alignment is not None
        names = [name for name in options.inference if not continuous or name.split(":")[0] in ("soft", "sample")]
        arguments = ["--run", runs[run].out, "--split", options.split, "--name", "crossing"]
        arguments += ["--inference", *(names or [default_inference(row)])]
        if options.k_curve and not continuous:
            arguments += ["--k-curve", str(options.k_curve)]
        return comparison.run(pathlib.Path(runs[run].out).name, ["evaluate", *arguments])

    comparison.in_parallel(evaluate, list(runs))
    lines = ["| row | inference | kind of PPL | PPL | BLEU |", "|---|---|---|---|---|"]
    found = {run: comparison.read(runs[run], "crossing.json")["inferences"] for run in runs}
    for name in options.rows:
        for same in zip(*(found[name, seed] for seed in range(options.seeds)), strict=True):
            perplexity, bleu = (
                _cell([report[part][key] for report in same])
                for part, key in (("likelihood", "perplexity"), ("translation", "bleu"))
            )
            kind = same[0]["likelihood"]["kind"]
            lines.append(f"| {name} | {same[0]['inference']} | {kind} | {perplexity} | {bleu} |")
    return "\n".join(lines) + "\n"


def _percent(value):
    return None if value is None else 100 * value


def _cell(values, interval_of=mean_interval):
    if any(value is None for value in values):
        return "-"
    interval = interval_of(values)
    if interval.low != interval.low:
        return f"{interval.mean:.3f}"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
