"""Writes docs/reproduction.md, verdicts on the papers' claims, from docs/claims.yaml and results files.

    python -m tools.reproduction

The page depends only on these files. A test generates the page again and compares it with the stored page.
"""

import dataclasses
import pathlib

import numpy as np
import scipy.stats
import yaml

from applications.common.results import read_results
from applications.common.significance import paired_interval
from applications.common.tables import Column, interval_text, main_table, table

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERDICTS = ("holds", "contradicted", "no effect", "not decided", "pending", "not tried")
MIN_SEEDS = 3
# If a decision would need more paired seeds, the verdict is "no effect".
MAX_SEEDS = 40


def results_file(name):
    """Return the path of the results file for a name of the form PROGRAM/NAME."""
    program, _, stem = name.partition("/")
    return ROOT / "applications" / program / "results" / f"{stem}.json"


def verdict_of(claim, runs):
    """Return three strings: the verdict on a claim, the observed difference, and the number of seeds needed.

    A claim states that the metric `of` is larger in the model `more` than in the model `than`, by more than the margin
    `by`. The verdicts are:
    - "not tried": the claim has no metric `of`.
    - "pending": there are no runs.
    - "holds": with at least three seeds, the paired 95% interval lies above the margin.
    - "contradicted": with at least three seeds, the interval lies below the margin.
    - "no effect": a decision would need more than 40 seeds.
    - "not decided": all other cases.

    Args:
        claim: Dictionary of docs/claims.yaml.
        runs: Dictionary that maps a model name to a list of records, one per seed; `None` if there are no results.
    """
    if "of" not in claim:
        return "not tried", "", ""
    more, than = claim["more"], claim["than"]
    if runs is None or not {more, than} <= runs.keys():
        return "pending", "", ""
    column = _column("", claim)
    other = dataclasses.replace(column, of=column.against or column.of)
    values, baselines = _values(column, runs[more]), _values(other, runs[than])
    by = claim.get("by", 0.0)
    for model, model_values in ((more, values), (than, baselines)):
        if not np.isfinite([*model_values.values()]).all():
            raise ValueError(
                f"{claim['place']}, {claim['claim']}: expected finite values. Received: {model} has {model_values}"
            )
    values, baselines = _paired(values, baselines)
    if not len(values):
        return "not decided", "", "the models share no seed"
    interval = paired_interval(values, baselines)
    unit = f" {claim['unit']}" if "unit" in claim else ""
    shown = np.exp(interval) if column.logarithm else interval
    difference = f"{more} {'/' if column.logarithm else '-'} {than}" if than != more else more
    text = f"`{difference}`: {'ratio ' if column.logarithm else ''}{interval_text(shown, column.digits)}{unit}"
    if len(values) < MIN_SEEDS:
        return "not decided", text, ""
    if interval[1] > by or interval[2] < by:
        return "holds" if interval[1] > by else "contradicted", text, ""
    seeds = required_seeds(values - baselines - by)
    if seeds is None:
        return "no effect", text, f"more than {MAX_SEEDS} seeds"
    cost = sum(np.mean([run["cpu_seconds"] for run in runs[model]]) for model in {more, than}) / 3600
    return "not decided", text, f"about {seeds} seeds in all, {max(seeds - len(values), 1) * cost:.1f} more CPU hours"


def required_seeds(differences):
    """Return how many paired seeds decide an effect of the observed size; `None` if more than 40.

    This is the smallest number with which Student's two-sided test at 5% has a power of at least 0.8, if the true mean
    and standard deviation equal the observed values.

    Args:
        differences: Paired differences over seeds, minus the margin of the claim.
    """
    effect = abs(np.mean(differences)) / np.std(differences, ddof=1)
    seeds = np.arange(MIN_SEEDS, MAX_SEEDS + 1)
    critical = scipy.stats.t.ppf(0.975, seeds - 1)
    noncentrality = effect * np.sqrt(seeds)
    power = scipy.stats.nct.sf(critical, seeds - 1, noncentrality) + scipy.stats.nct.cdf(
        -critical, seeds - 1, noncentrality
    )
    enough = seeds[power >= 0.8]
    return int(enough[0]) if len(enough) else None


def _column(title, metric):
    return Column(title, **{x.name: metric[x.name] for x in dataclasses.fields(Column) if x.name in metric})


def _values(column, records):
    """Return a dictionary that maps seeds to values or, if `column.logarithm`, to logarithms."""
    values = {record["seed"]: np.array(column.value(record), float) for record in records}
    return {seed: np.log(value) for seed, value in values.items()} if column.logarithm else values


def _paired(*models):
    """Return one array of values per model, for the seeds that all models share."""
    seeds = sorted(set.intersection(*map(set, models)))
    return [np.array([values[seed] for seed in seeds]) for values in models]


def page(claims):
    """Return the text of docs/reproduction.md. `claims` is the content of docs/claims.yaml."""
    loaded = {name: read_results(results_file(name)) for name in claims["results"] if results_file(name).exists()}
    parts, counts = [], {}
    for paper, title in claims["papers"].items():
        rows = []
        for group in (group for group in claims["groups"] if group["paper"] == paper):
            results = loaded.get(group.get("results"))
            for claim in group["claims"]:
                metric = claims["metrics"].get(claim.get("metric"), {})
                verdict, ours, needs = verdict_of(claim | metric, results and results["runs"])
                counts.setdefault(paper, []).append(verdict)
                why = claim["why"] or "Its runs are still to come."
                rows.append((claim["place"], claim["claim"], claim["theirs"], ours, f"**{verdict}**", needs, why))
        heads = ("where", "claim", "paper", "ours", "verdict", "needed to decide", "why")
        parts.append(f"## {title}\n\n{table(heads, rows)}")
    total = [verdict for paper_verdicts in counts.values() for verdict in paper_verdicts]
    verdicts = [verdict for verdict in VERDICTS if verdict in total]
    rows = [(claims["papers"][paper], *map(paper_verdicts.count, verdicts)) for paper, paper_verdicts in counts.items()]
    summary = table(("paper", *verdicts), [*rows, ("all", *map(total.count, verdicts))])
    tables = _tables(claims, loaded)
    names = [("`{}`".format(models.replace(", ", "`, `")), name) for models, name in claims["names"].items()]
    names = table(("here", "in the papers"), names)
    parts += ["## Tables", *tables] if tables else []
    parts.append(_runs(claims, loaded))
    return "\n\n".join([claims["head"].strip(), names, summary, *parts]) + "\n"


def _tables(claims, loaded):
    parts = []
    for entry in claims["tables"]:
        if entry["results"] in loaded:
            columns = [_column(title, claims["metrics"][name]) for title, name in entry["columns"].items()]
            means = main_table(columns, loaded[entry["results"]]["runs"])
            parts.append(f"### {entry['title']}\n\n{entry['text'].strip()}\n\n{means}")
    return parts


def _runs(claims, loaded):
    rows, commands = [], []
    for name, (theirs, ours_text) in claims["results"].items():
        if name not in loaded:
            continue
        results, runs = loaded[name], [run for seed_runs in loaded[name]["runs"].values() for run in seed_runs]
        unit, count = next(iter(results["data"]["train"].items()))
        seeds = sorted({len(seed_runs) for seed_runs in results["runs"].values()})
        hours = sum(run["cpu_seconds"] for run in runs) / 3600
        epochs = max(run["epochs"] for run in runs)
        ours = f"{ours_text}; {count:,} {unit}, {epochs} epochs"
        rows.append((name, theirs, ours, len(results["runs"]), " or ".join(map(str, seeds)), f"{hours:.1f}"))
        places = f"--out runs/{name} --results {results_file(name).relative_to(ROOT)}"
        commands.append(f"    {results['command']} {places}")
    heads = ("results", "the paper's data", "our data and training", "models", "seeds", "CPU hours")
    return f"## Runs\n\n{claims['runs'].strip()}\n\n{table(heads, rows)}\n\n" + "\n".join(commands)


def main():
    claims = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text(encoding="utf-8"))
    (ROOT / "docs" / "reproduction.md").write_text(page(claims), encoding="utf-8")


if __name__ == "__main__":
    main()
