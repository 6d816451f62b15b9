"""Trains rows x seeds, paired, and prints the paper's tables with means and 95% intervals."""

import concurrent.futures
import csv
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import keras_vattn
from applications.common.errors import InputError
from applications.common.metrics import mean_interval, paired_interval
from applications.common.runs import write_json, write_text_atomically
from applications.ved.options import find_row

COLUMNS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "entropy", "dist_1", "dist_2")
CURVES = ("val_bleu_2", "val_bleu_4", "val_entropy", "val_dist_1")


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
    options: str | None = None
    """YAML file with options of `train` for every run."""
    jobs: int = 1
    """Runs trained at the same time; the processor's cores are shared out between them."""
    layout: str = "table_2"
    """table_2: BLEU-1 to 4, entropy, Dist-1, Dist-2. table_4: BLEU-2, entropy, Dist-1, Dist-2."""


def compare(options):
    """Train what is missing, then write the table, the differences and the pictures."""
    _validate(options)
    folder = pathlib.Path(options.out)
    runs = [(name, seed) for seed in range(options.seeds) for name in options.rows]
    missing = [run for run in runs if not _metrics_path(folder, *run).exists()]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as executor:
        failed = [message for message in executor.map(lambda run: _train(options, folder, *run), missing) if message]
    if failed:
        raise InputError("\n".join(failed))
    records = {run: json.loads(_metrics_path(folder, *run).read_text(encoding="utf-8")) for run in runs}
    table = table_of(options, records)
    write_text_atomically(folder / "table.md", table)
    write_json(folder / "comparison.json", {"options": options, "runs": [records[run] for run in runs]})
    histories = {name: [_history(folder, name, seed) for seed in range(options.seeds)] for name in options.rows}
    shown = {name: runs for name, runs in histories.items() if find_row(_split(name)[0]).stochastic}
    if shown:
        keras_vattn.plots.training_curves(shown, list(CURVES), path=folder / "curves.png")
    print(table)
    print(f"written: {folder}")


def _validate(options):
    for name in (*options.rows, options.baseline):
        row, gamma = _split(name)
        find_row(row)
        if gamma is not None and not gamma >= 0:
            raise InputError(f"--rows: gamma_a must be a number of at least 0. Received: {name}")
    if len(set(options.rows)) < len(options.rows):
        raise InputError(f"--rows: every row once. Received: {' '.join(options.rows)}")
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name}: must be positive. Received: {getattr(options, name)}")
    if options.layout not in ("table_2", "table_4"):
        raise InputError(f"--layout: expected table_2 or table_4. Received: {options.layout}")
    if options.options is not None and not pathlib.Path(options.options).is_file():
        raise InputError(f"--options: {options.options} does not exist.")


def _split(name):
    row, _, gamma = name.partition(":")
    try:
        return row, float(gamma) if gamma else None
    except ValueError as error:
        raise InputError(f"--rows: {name}: gamma_a must be a number.") from error


def _run_folder(folder, name, seed):
    return folder / f"{name.replace(':', '_gamma_')}_seed_{seed}"


def _metrics_path(folder, name, seed):
    return _run_folder(folder, name, seed) / "metrics.json"


def _train(options, folder, name, seed):
    """Train one run in a process of its own; return an error message or `None`."""
    row, gamma = _split(name)
    out = _run_folder(folder, name, seed)
    command = [sys.executable, "-m", "applications.ved", "train", "--preset", options.preset]
    if options.options is not None:
        command += ["--config", options.options]
    command += ["--row", row, "--seed", str(seed), "--out", str(out)]
    if gamma is not None:
        command += ["--gamma-a", str(gamma)]
    if (out / "config.yaml").exists():
        command += ["--resume"]
    threads = str(max(1, (os.cpu_count() or 1) // options.jobs))
    environment = {
        **os.environ,
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "OMP_NUM_THREADS": threads,
    }
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{out.name}.log"
    print(f"training {name}, seed {seed}; its output goes to {log}", file=sys.stderr, flush=True)
    with open(log, "a", encoding="utf-8") as file:
        status = subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
        ).returncode
    print(f"finished {name}, seed {seed}, status {status}", file=sys.stderr, flush=True)
    if status == 0:
        return None
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return f"{name}, seed {seed}, failed: {' '.join(last)}"


def _history(folder, name, seed):
    with open(_run_folder(folder, name, seed) / "history.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {column: [float(row[column]) if row.get(column) else None for row in rows] for column in ("epoch", *CURVES)}


def table_of(options, records):
    """Return the table in Markdown: means with 95% intervals, then paired differences against the baseline."""
    columns = COLUMNS if options.layout == "table_2" else ("bleu_2", *COLUMNS[4:])
    claim = "one seed, no claim" if options.seeds == 1 else f"{options.seeds} seeds, mean [95% interval]"
    first = next(iter(records.values()))
    lines = [
        f"{claim}; {first['report']['num_sources']} {first['split']} sources; "
        f"{first['report']['map']['bleu_signature']}",
        "",
    ]
    lines += ["| row | inference | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 2)]
    for name in options.rows:
        for inference in ("map", "sampling"):
            values = [
                [records[name, seed]["report"].get(inference, {}).get(column) for seed in range(options.seeds)]
                for column in columns
            ]
            if any(None not in entries for entries in values):
                lines.append(
                    f"| {name} | {inference} | "
                    + " | ".join(
                        _cell(mean_interval, column, entries) for column, entries in zip(columns, values, strict=True)
                    )
                    + " |"
                )
    if options.seeds > 1 and options.baseline in options.rows:
        lines += ["", f"Paired differences against {options.baseline}, sampling:", ""]
        lines += ["| row | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 1)]
        for name in options.rows:
            if name == options.baseline or not find_row(_split(name)[0]).stochastic:
                continue
            cells = []
            for column in columns:
                pair = [
                    [records[row, seed]["report"]["sampling"][column] for seed in range(options.seeds)]
                    for row in (name, options.baseline)
                ]
                cells.append(_cell(lambda entries: paired_interval(*entries), column, pair))
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(interval_of, column, values):
    if any(value is None for value in values):
        return "-"
    interval = interval_of(values)
    digits = 2 if column.startswith("bleu") else 3
    if interval.low != interval.low:
        return f"{interval.mean:.{digits}f}"
    return f"{interval.mean:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
