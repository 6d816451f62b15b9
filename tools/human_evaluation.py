"""Writes a sheet of sentences for human raters, and evaluates filled-in sheets (Bahuleyan et al. 2018, section 4.1).

    python -m tools.human_evaluation sheet RUN RUN --out FOLDER [--outputs 100] [--label MAP] [--seed 0]
    python -m tools.human_evaluation read FOLDER/key.json FILLED.csv FILLED.csv ...

A RUN is the folder of a finished run of a program that generates sentences. The file shown.json contains the outputs
for up to 100 sources. Runs on the same test split contain the same sources.

`sheet` writes two files. sheet.csv contains the outputs of all runs in random order, without the names of the models.
key.json records which run wrote which output; do not show this file to the raters. Each rater fills in the column
"rating" of a copy of sheet.csv: 5 flawless, 4 good, 3 adequate, 2 poor, 1 incomprehensible (Stent et al. 2005).
`--label` selects which output of a run is rated: MAP (ved), translation (nmt), caption (captioning).

`read` prints up to three tables. The first contains the mean rating of each model, with a 95% interval over outputs.
The second contains the mean difference between each pair of models, paired by source, with a 95% interval and the
p-value of Wilcoxon's signed-rank test. The third contains Spearman's correlation between each pair of raters.
"""

import argparse
import csv
import io
import itertools
import json
import pathlib

import numpy as np
import scipy.stats

from applications.common.significance import mean_interval, paired_interval
from applications.common.tables import interval_text, table, titled

HEADS = ("number", "source", "output", "rating")
RATINGS = ("1", "2", "3", "4", "5")


def outputs_of(run, label):
    """Return a dictionary that maps each source in shown.json of a run to the output called `label`."""
    path = pathlib.Path(run, "shown.json")
    try:
        samples = json.loads(path.read_text(encoding="utf-8"))["samples"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"expected the folder of a finished run. Received: {run} ({path} cannot be read)") from error
    outputs = {}
    for (_, source), *lines in samples:
        texts = [text for name, text in lines if name == label]
        if not texts:
            labels = ", ".join(dict.fromkeys(name for name, _ in lines))
            raise SystemExit(f"--label: expected one of the labels in {path}: {labels}. Received: {label}")
        outputs[source] = texts[0] if isinstance(texts[0], str) else " ".join(word for word, _ in texts[0])
    return outputs


def write_sheet(runs, out, num_outputs=100, label="MAP", seed=0):
    """Write sheet.csv and key.json to the folder `out`. Return the number of rows to rate."""
    out, outputs = pathlib.Path(out), {str(run): outputs_of(run, label) for run in runs}
    if len(outputs) < 2:
        raise SystemExit("expected at least two different runs")
    shared = [source for source in next(iter(outputs.values())) if all(source in texts for texts in outputs.values())]
    if not 0 < num_outputs <= len(shared):
        raise SystemExit(
            f"--outputs: expected 1 to {len(shared)}, the number of shared sources. Received: {num_outputs}"
        )
    if (out / "key.json").exists() or (out / "sheet.csv").exists():
        raise SystemExit(
            f"--out: expected a folder without a sheet. Received: {out}, which contains a sheet that may be in use"
        )
    generator = np.random.default_rng(seed)
    chosen = [shared[row] for row in generator.choice(len(shared), num_outputs, replace=False)]
    rows = [(run, source) for run in outputs for source in chosen]
    rows = [rows[place] for place in generator.permutation(len(rows))]
    out.mkdir(parents=True, exist_ok=True)
    with (out / "sheet.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADS)
        for number, (run, source) in enumerate(rows, start=1):
            writer.writerow((number, source, outputs[run][source], ""))
    key = [{"run": run, "source": source} for run, source in rows]
    (out / "key.json").write_text(json.dumps({"label": label, "seed": seed, "rows": key}, indent=1), encoding="utf-8")
    return len(rows)


def read_ratings(path, num_rows):
    """Return the ratings of a filled-in sheet: an integer array, sorted by the column "number"."""
    try:
        text = pathlib.Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from error
    # Some spreadsheet programs separate columns with semicolons.
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if ";" in text.partition("\n")[0] else ",")
    if not {"number", "rating"} <= set(lines.fieldnames or ()):
        raise SystemExit(f"{path}: expected the columns {', '.join(HEADS)}")
    ratings = {}
    for line in lines:
        number, rating = ((line[head] or "").strip() for head in ("number", "rating"))
        if rating not in RATINGS:
            raise SystemExit(f"{path}, number {number}: the rating must be 1 to 5. Received: {rating!r}")
        if number in ratings:
            raise SystemExit(f"{path}: expected each number once. Received: {number} twice")
        ratings[number] = int(rating)
    expected = [str(number) for number in range(1, num_rows + 1)]
    if ratings.keys() != set(expected):
        raise SystemExit(f"{path}: expected the numbers 1 to {num_rows}, each once. Received: {len(ratings)} rows")
    return np.array([ratings[number] for number in expected])


def report(key, sheets):
    """Return the tables for filled-in rating sheets, joined into one string."""
    try:
        rows = json.loads(pathlib.Path(key).read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"expected the key.json that `sheet` wrote. Received: {key}") from error
    ratings = {str(path): read_ratings(path, len(rows)) for path in sheets}
    run_means = {}
    for row, mean in zip(rows, np.mean(list(ratings.values()), axis=0), strict=True):
        run_means.setdefault(row["run"], {})[row["source"]] = mean
    lines = [
        (run, len(scores), interval_text(mean_interval(list(scores.values())), 2)) for run, scores in run_means.items()
    ]
    means = titled(f"Ratings of {len(ratings)} raters, 1 to 5", table(("run", "outputs", "mean [95% interval]"), lines))
    return "\n\n".join([means, _differences(run_means), *([_agreement(ratings)] if len(ratings) > 1 else [])])


def _differences(run_means):
    lines = []
    for one, other in itertools.combinations(run_means, 2):
        first, second = (np.array([run_means[run][source] for source in run_means[one]]) for run in (one, other))
        # Wilcoxon's test is undefined if all differences are 0.
        p = f"{scipy.stats.wilcoxon(first, second).pvalue:.3f}" if np.any(first != second) else "-"
        lines.append((f"{one} - {other}", interval_text(paired_interval(first, second), 2), p))
    heads = ("runs", "difference [95% interval]", "p, Wilcoxon")
    return titled("Differences paired by source, not corrected for multiple comparisons", table(heads, lines))


def _agreement(ratings):
    pairs = list(itertools.combinations(ratings, 2))
    # The correlation is undefined if a rater gave the same rating to all outputs.
    rhos = {
        (one, other): scipy.stats.spearmanr(ratings[one], ratings[other]).statistic
        for one, other in pairs
        if np.ptp(ratings[one]) and np.ptp(ratings[other])
    }
    lines = [(*pair, f"{rhos[pair]:.2f}" if pair in rhos else "-") for pair in pairs]
    mean = f"{np.mean(list(rhos.values())):.2f}" if rhos else "-"
    return titled(f"Spearman's correlation between two raters, mean {mean}", table(("rater", "rater", "rho"), lines))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sheet = commands.add_parser("sheet", help="write sheet.csv, for the raters, and key.json")
    sheet.add_argument("runs", nargs="+")
    sheet.add_argument("--out", required=True)
    sheet.add_argument("--outputs", type=int, default=100, help="number of outputs to rate per run")
    sheet.add_argument("--label", default="MAP")
    sheet.add_argument("--seed", type=int, default=0)
    read = commands.add_parser("read", help="print statistics of the filled-in sheets")
    read.add_argument("key")
    read.add_argument("sheets", nargs="+")
    options = parser.parse_args(arguments)
    if options.command == "sheet":
        num_rows = write_sheet(options.runs, options.out, options.outputs, options.label, options.seed)
        print(f"written: {options.out}/sheet.csv, {num_rows} rows, and {options.out}/key.json, not for the raters")
    else:
        print(report(options.key, options.sheets))


if __name__ == "__main__":
    main()
