"""docs/reproduction.md agrees with docs/claims.yaml and the results of the runs."""

import importlib
import json
import re
import shlex

import numpy as np
import pytest
import scipy.stats
import yaml

from applications.common.option_values import read_values
from applications.common.program import config_of
from tools import reproduction

CLAIMS = yaml.safe_load((reproduction.ROOT / "docs" / "claims.yaml").read_text(encoding="utf-8"))


def test_the_page_agrees_with_the_results():
    assert (reproduction.ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8") == reproduction.page(CLAIMS)


def test_every_claim_can_be_decided_or_says_why_not():
    for group in CLAIMS["groups"]:
        path = "results" in group and reproduction.results_file(group["results"])
        runs = reproduction.read_results(path)["runs"] if path and path.exists() else None
        for claim in group["claims"]:
            place = f"{group['paper']}, {claim['place']}: {claim['claim']}"
            assert claim["theirs"], place
            assert "still to come" not in claim["why"], place
            if path:
                assert group["results"] in CLAIMS["results"] and claim["metric"] in CLAIMS["metrics"], place
            # A results file may lack models: they are added when their runs end.
            verdict, ours, needs = reproduction.verdict_of(claim | CLAIMS["metrics"].get(claim.get("metric"), {}), runs)
            missing = runs is None or not {claim["more"], claim["than"]} <= runs.keys() if path else False
            assert (verdict == "pending") == missing, place
            assert claim["why"] or missing, f"{place} has no reason"
            assert verdict != "not decided" or needs, place
            assert verdict in ("pending", "not tried") or (ours and "nan" not in ours.lower()), place


def test_every_model_of_a_claim_is_in_its_command():
    """The head of an options file has the command of its results, with every model that a claim needs."""
    for group in CLAIMS["groups"]:
        path = reproduction.results_file(group["results"]) if "results" in group else None
        files = sorted((path.parents[1] / "experiments").glob("*.yaml")) if path else ()
        heads = [re.sub(r"\\?\n# *", " ", file.read_text(encoding="utf-8")) for file in files]
        commands = [command for head in heads for command in head.split("python -m ")]
        for claim in group["claims"] if path else ():
            (command,) = (command for command in commands if re.search(rf"/{path.name}\s", command))
            models = set(re.search(r"--models ([^\n]*)", command)[1].split())
            assert {claim["more"], claim["than"]} <= models, (group["results"], claim["claim"])


@pytest.mark.parametrize(
    "values, baselines, by, verdict",
    [
        ([1.2, 1.3, 1.1], [1.0, 1.05, 0.95], 0.0, "holds"),
        ([1.0, 1.05, 0.95], [1.2, 1.3, 1.1], 0.0, "contradicted"),
        ([1.2, 1.0, 1.1], [1.0, 1.1, 1.1], 0.0, "no effect"),
        ([1.2, 1.15, 1.1], [1.0, 1.1, 1.1], 0.0, "not decided"),
        ([1.0, 1.05, 0.95], [1.2, 1.3, 1.1], -0.5, "holds"),
        ([1.2, 1.3], [1.0, 1.05], 0.0, "not decided"),
    ],
)
@pytest.mark.parametrize("logarithm", [False, True])
def test_a_verdict(values, baselines, by, verdict, logarithm):
    """Student's interval of paired differences decides; fewer than three seeds decide nothing."""
    runs = {
        "a": [{"seed": seed, "x": {"y": value}, "cpu_seconds": 1800.0} for seed, value in enumerate([*values, 9.0])],
        # In another order, and without the last seed.
        "b": [{"seed": seed, "x": {"z": baselines[seed]}, "cpu_seconds": 1800.0} for seed in range(len(values))[::-1]],
    }
    claim = {"more": "a", "than": "b", "of": "x.y", "against": "x.z", "by": by, "logarithm": logarithm, "unit": "nats"}
    actual, text, needs = reproduction.verdict_of(claim, runs)
    difference = np.subtract(*(np.log(row) if logarithm else row for row in (values, baselines)))
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, difference.mean(), scipy.stats.sem(difference))
    assert actual == verdict
    seeds = reproduction.required_seeds(difference) or 0
    estimate = f"about {seeds} seeds in all, {seeds - 3:.1f} more CPU hours"
    texts = {"no effect": "more than 40 seeds", "not decided": estimate}
    assert needs == (texts.get(verdict, "") if len(values) > 2 else "")
    shown = [np.exp(x) if logarithm else x for x in (difference.mean(), low, high)]
    expected = "{:.3f} [{:.3f}, {:.3f}] nats".format(*shown)
    assert text == (f"`a / b`: ratio {expected}" if logarithm else f"`a - b`: {expected}")
    with pytest.raises(ValueError, match=r"Table 1, better: .*b has .*nan"):
        names = {"place": "Table 1", "claim": "better", "against": "x.lost"}
        reproduction.verdict_of(claim | names, runs)
    assert reproduction.verdict_of(claim, None) == ("pending", "", "")
    assert reproduction.verdict_of({"place": "Table 2"}, runs) == ("not tried", "", "")


@pytest.mark.parametrize("effect", [0.5, 0.9, 1.5, 3.0])
def test_required_seeds_have_the_power(effect):
    """The required number of seeds has a power of 0.8 in 20,000 simulated experiments, to three standard errors."""
    seeds = reproduction.required_seeds(np.array([effect - 1.0, effect, effect + 1.0]))
    generator = np.random.default_rng(0)
    for number, enough in ((seeds, True), (seeds - 1, False)):
        _, p = scipy.stats.ttest_1samp(generator.normal(effect, 1.0, (20_000, number)), 0.0, axis=1)
        power, error = np.mean(p < 0.05), 3 * np.sqrt(0.8 * 0.2 / 20_000)
        assert number < 3 or (power > 0.8 - error if enough else power < 0.8 + error)
    assert reproduction.required_seeds(np.array([-1.0, 0.4, 1.0])) is None


def test_a_page_of_synthetic_results(tmp_path, monkeypatch):
    """The page has the counts, a line for each claim, a table of all models, and the cost of the runs."""
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    path = reproduction.results_file("toy/table")
    path.parent.mkdir(parents=True)
    runs = [
        {"name": name, "seed": seed, "epochs": 2, "cpu_seconds": 600.0, "report": {"x": value + 0.1 * seed}}
        for name, value in (("a", 1.0), ("b", 3.0))
        for seed in range(3)
    ]
    content = {"command": "python -m toy compare", "data": {"train": {"pairs": 1200}}, "runs": runs}
    path.write_text(json.dumps(content), encoding="utf-8")
    claim = {"place": "Table 1", "theirs": "2 against 1", "why": "it is.", "metric": "x"}
    claims = {
        "head": "# Head",
        "runs": "Below.",
        "papers": {"one": "Paper One", "two": "Paper Two"},
        "names": {"a, b": "A, B"},
        "results": {"toy/table": ["9,000 pairs", "a part"], "toy/none": ["none", "none"]},
        "metrics": {"x": {"of": "report.x", "digits": 1, "unit": "nats"}},
        "tables": [{"results": "toy/table", "title": "All", "text": "Both models.", "columns": {"x": "x"}}],
        "groups": [
            {
                "paper": "one",
                "results": "toy/table",
                "claims": [
                    claim | {"claim": "b is larger", "more": "b", "than": "a"},
                    claim | {"claim": "a is larger", "more": "a", "than": "b"},
                ],
            },
            {
                "paper": "two",
                "results": "toy/none",
                "claims": [claim | {"claim": "c", "more": "c", "than": "d", "why": ""}],
            },
        ],
    }
    rows = [line.strip("| ").split("|") for line in reproduction.page(claims).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows]
    for row in (
        ["Paper One", "1", "1", "0"],
        ["all", "1", "1", "1"],
        ["`a`, `b`", "A, B"],
        ["Table 1", "b is larger", "2 against 1", "`b - a`: 2.0 [2.0, 2.0] nats", "**holds**", "", "it is."],
        ["Table 1", "a is larger", "2 against 1", "`a - b`: -2.0 [-2.0, -2.0] nats", "**contradicted**", "", "it is."],
        ["Table 1", "c", "2 against 1", "", "**pending**", "", "Its runs are still to come."],
        ["a", "1.1 [0.9, 1.3]"],
        ["toy/table", "9,000 pairs", "a part; 1,200 pairs, 2 epochs", "2", "3", "1.0"],
    ):
        assert row in rows
    assert "### All\n\nBoth models." in reproduction.page(claims)
    command = "    python -m toy compare --out runs/toy/table --results applications/toy/results/table.json\n"
    assert command in reproduction.page(claims)


def test_results_have_the_options_of_their_experiments():
    """A new default of a program changes neither an experiment nor the options that its results record."""
    for path in (reproduction.ROOT / "applications").glob("*/results/*.json"):
        program = importlib.import_module(f"applications.{path.parts[-3]}.options").PROGRAM
        results = reproduction.read_results(path)
        words = shlex.split(results["command"])
        values = read_values("--options", reproduction.ROOT / words[words.index("--options") + 1], program.options)
        named = {word.removeprefix("--").replace("-", "_") for word in words}
        for runs in results["runs"].values():
            for run in runs:
                recorded = config_of(program.default) | results["options"] | run["options"]
                overridden = {*named, *(item.partition("=")[0] for item in run["name"].partition(":")[2].split(","))}
                differ = {x: (recorded[x], values[x]) for x in values if x in recorded and x not in overridden}
                differ = {x: pair for x, pair in differ.items() if pair[0] != pair[1]}
                assert not differ.keys() - {"export"}, (path.name, run["name"], differ)
