"""Tests the sheets of sentences for human ratings."""

import csv
import json

import numpy as np
import pytest
import scipy.stats

from tools.human_evaluation import main, read_ratings, write_sheet

NAMES = ("dattn", "vattn")


@pytest.fixture
def runs(tmp_path):
    """Return the folders of two runs that contain the same 12 sources in different orders."""
    folders = []
    for name in NAMES:
        samples = [
            [("source", f"source {row}"), ("reference", "r"), ("MAP", f"{name} says, {row};\nand more"), ("draw", "d")]
            for row in (range(12) if name == "dattn" else reversed(range(12)))
        ]
        (tmp_path / name).mkdir()
        (tmp_path / name / "shown.json").write_text(json.dumps({"samples": samples, "alignments": []}))
        folders.append(tmp_path / name)
    return folders


def rows_of(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def filled(folder, name, rating, delimiter=","):
    """Write a copy of a sheet with its rows in reverse order; `rating` computes the rating of a row."""
    rows, path = rows_of(folder / "sheet.csv"), folder / name
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(row | {"rating": rating(row)} for row in rows[::-1])
    return path


def test_a_sheet_is_blind_and_its_key_is_not(runs, tmp_path):
    out = tmp_path / "sheet"
    main(["sheet", *map(str, runs), "--out", str(out), "--outputs", "10"])
    rows, key = rows_of(out / "sheet.csv"), json.loads((out / "key.json").read_text())["rows"]
    assert list(rows[0]) == ["number", "source", "output", "rating"] and len(rows) == 20
    for row, entry in zip(rows, key, strict=True):
        number, name = entry["source"].split()[1], entry["run"].rpartition("/")[2]
        output = f"{name} says, {number};\nand more"
        assert (row["source"], row["output"], row["rating"]) == (entry["source"], output, "")
    sources = {name: {entry["source"] for entry in key if entry["run"].endswith(name)} for name in NAMES}
    assert sources["dattn"] == sources["vattn"] and len(sources["dattn"]) == 10
    with pytest.raises(SystemExit, match="expected a folder without a sheet"):
        write_sheet(runs, out, 10)


@pytest.mark.slow
def test_figures_of_ratings(runs, tmp_path, capsys):
    out = tmp_path / "sheet"
    write_sheet(runs, out, 12)

    def first(row):
        return int(row["source"].split()[1]) % 4 + 1 + row["output"].startswith("vattn")

    def second(row):
        return min(5, first(row) + (row["number"] in ("3", "8")))

    sheets = [filled(out, "one.csv", first), filled(out, "two.csv", second, ";")]
    main(["read", str(out / "key.json"), *map(str, sheets)])
    printed = capsys.readouterr().out
    rows = rows_of(out / "sheet.csv")
    ratings = np.array([[rate(row) for row in rows] for rate in (first, second)])
    means = dict(zip([(row["output"].split()[0], row["source"]) for row in rows], ratings.mean(axis=0), strict=True))
    by_source = np.array([[means[name, f"source {row}"] for row in range(12)] for name in NAMES])
    cells = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]
    for line, model_means in zip(cells[2:4], by_source, strict=True):
        assert line[1].strip() == "12" and line[2].startswith(f"{model_means.mean():.2f} [")
    (line,) = (line for line in cells if " - " in line[0])
    assert line[1].startswith(f"{(by_source[0] - by_source[1]).mean():.2f} [")
    assert line[2].strip() == f"{scipy.stats.wilcoxon(*by_source).pvalue:.3f}"
    assert f"mean {scipy.stats.spearmanr(*ratings).statistic:.2f}" in printed


def test_a_sheet_that_cannot_be_read(runs, tmp_path):
    out = tmp_path / "sheet"
    write_sheet(runs, out, 12)
    path = filled(out, "one.csv", lambda row: 3)
    path.write_bytes(path.read_bytes().replace(b",3\r\n", b",6\r\n", 1))
    with pytest.raises(SystemExit, match=r"the rating must be 1 to 5\. Received: '6'"):
        read_ratings(path, 24)
    with pytest.raises(SystemExit, match="--outputs: expected 1 to 12, the number of shared sources"):
        write_sheet(runs, tmp_path / "other", 13)
