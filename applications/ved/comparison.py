"""Trains rows x seeds, paired, and prints the paper's tables with means and 95% intervals."""

import dataclasses
import pathlib

import keras_vattn
from applications.common.command_line import find_preset, read_file
from applications.common.comparison import Comparison
from applications.common.errors import InputError
from applications.common.runs import write_json, write_text_atomically
from applications.ved.data import load_splits
from applications.ved.options import PRESETS, validate
from applications.ved.reporting import CURVE_LABELS, CURVES
from applications.ved.tables import is_stochastic, split_name, table_of
from applications.ved.training import MAY_DIFFER


@dataclasses.dataclass
class CompareOptions:
    """Train rows with several seeds on the same data and print the paper's table."""

    out: str = "runs/ved_compare"
    """Folder; every run is a folder in it. Runs that have finished are read, not trained again."""
    rows: tuple[str, ...] = ("ded_dattn", "ved_dattn", "ved_vattn_0", "ved_vattn_mean")
    """Rows of Table 2. A row may carry another gamma_a, as in ved_vattn_mean:0.01 (Figure 5)."""
    seeds: int = 3
    """Number of seeds, 0, 1, 2, ...; the rows of one seed form a pair."""
    baseline: str = "ved_dattn"
    """Differences are taken against this row."""
    preset: str = "small"
    """Preset of `train` for every run."""
    options: str | None = None
    """YAML file with options of `train` for every run, as `train --config` reads it."""
    jobs: int = 1
    """Runs trained at the same time; the processor's cores are shared out between them."""
    layout: str = "table_2"
    """table_2: BLEU-1 to 4, entropy, Dist-1, Dist-2. table_4: BLEU-2, entropy, Dist-1, Dist-2."""
    latent_temperatures: tuple[float, ...] = ()
    """Also trace quality against diversity at these factors on sigma, for every stochastic row."""
    word_temperatures: tuple[float, ...] = ()
    """The same, drawing words instead of latents: the control."""
    curve_sources: int = 300
    """Different sources that the curves decode."""


def compare(options):
    """Train what is missing, then write the table, the differences and the pictures."""
    _validate(options)
    folder = pathlib.Path(options.out)
    comparison = Comparison("applications.ved", folder, options.jobs, MAY_DIFFER)
    runs = {(name, seed): _run_options(options, name, seed) for seed in range(options.seeds) for name in options.rows}
    for run_options in runs.values():
        comparison.check(run_options)
    missing = [run for run, run_options in runs.items() if not comparison.is_finished(run_options)]
    if missing:
        # Bad input is found here once, and not by every run.
        load_splits(runs[missing[0]])
    comparison.make_folder()
    comparison.in_parallel(lambda run: comparison.train(runs[run]), missing)
    records = {run: comparison.read(runs[run], "metrics.json") for run in runs}
    table = table_of(options, records)
    write_text_atomically(folder / "table.md", table)
    write_json(folder / "comparison.json", {"options": options, "runs": list(records.values())})
    columns = ("epoch", *CURVES)
    histories = {
        name: [comparison.history(runs[name, seed], columns) for seed in range(options.seeds)] for name in options.rows
    }
    shown = {name: rows for name, rows in histories.items() if is_stochastic(name)}
    if shown:
        keras_vattn.plots.training_curves(shown, list(CURVES), metric_labels=CURVE_LABELS, path=folder / "curves.png")
    if options.latent_temperatures or options.word_temperatures:
        _quality_diversity(options, comparison, {run: runs[run] for run in runs if is_stochastic(run[0])})
    print(table)
    print(f"written: {folder}")


def _validate(options):
    for name in (*options.rows, options.baseline):
        split_name(name)
    if not options.rows:
        raise InputError("--rows: name at least one row.")
    if not is_stochastic(options.baseline):
        raise InputError(f"--baseline: differences are those of draws; {options.baseline} has none.")
    if len(set(options.rows)) < len(options.rows):
        raise InputError(f"--rows: every row once. Received: {' '.join(options.rows)}")
    for name in ("seeds", "jobs", "curve_sources"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name.replace('_', '-')}: must be positive. Received: {getattr(options, name)}")
    if options.layout not in ("table_2", "table_4"):
        raise InputError(f"--layout: expected table_2 or table_4. Received: {options.layout}")


def _run_options(options, name, seed):
    """Return the options of one run."""
    run_options = find_preset(PRESETS, options.preset)
    if options.options is not None:
        run_options = read_file("--options", options.options, run_options)
    row, gamma = split_name(name)
    out = pathlib.Path(options.out) / f"{name.replace(':', '_gamma_')}_seed_{seed}"
    gamma = run_options.gamma_a if gamma is None else gamma
    run_options = dataclasses.replace(run_options, row=row, seed=seed, gamma_a=gamma, out=str(out))
    validate(run_options)
    return run_options


def _quality_diversity(options, comparison, runs):
    """Evaluate every run on validation at every temperature; draw BLEU-4 against entropy, means over seeds."""
    name = "quality_diversity"
    temperatures = []
    for option in ("latent_temperatures", "word_temperatures"):
        if getattr(options, option):
            temperatures += [f"--{option.replace('_', '-')}", *(f"{value:g}" for value in getattr(options, option))]

    def evaluate(run):
        out = pathlib.Path(runs[run].out)
        arguments = ["--run", str(out), "--split", "valid", "--max-sources", str(options.curve_sources)]
        return comparison.run(out.name, ["evaluate", *arguments, "--name", name, "--curves-only", *temperatures])

    comparison.in_parallel(evaluate, list(runs))
    points = {}
    for kind in ("latent", "word"):
        for row in dict.fromkeys(row for row, _ in runs):
            found = [comparison.read(runs[run], f"{name}.json")["curves"] for run in runs if run[0] == row]
            curves = [by_kind.get(kind, []) for by_kind in found]
            points[f"{row}, {kind}"] = [
                (
                    sum(point["entropy"] for point in same) / len(same),
                    sum(point["bleu_4"] for point in same) / len(same),
                    f"{same[0]['temperature']:g}",
                )
                for same in zip(*curves, strict=True)
            ]
    points = {label: curve for label, curve in points.items() if curve}
    write_json(comparison.folder / "quality_diversity.json", points)
    path = comparison.folder / "quality_diversity.png"
    keras_vattn.plots.quality_diversity(points, quality_label="BLEU-4", diversity_label="entropy (nats)", path=path)
