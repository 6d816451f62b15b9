"""The tables of a comparison, on figures made by hand."""

import re

import pytest
from sacrebleu.metrics import BLEU

from applications.common.significance import compare_translations
from applications.nmt.options import ROWS
from applications.nmt.tables import MODELS, crossing_table, tables_of

REFERENCES = [f"the {color} dog saw a cat near house {number}" for number in range(10) for color in ("red", "blue")]


def record(perplexity, bleu, entropy=1.0, kind="exact", seconds=0.5, parameters=(2e6, 1e6), name="prior"):
    return {
        "split": "test",
        "step_seconds": seconds,
        "parameters": dict(zip(("generative", "inference"), parameters, strict=True)),
        "report": {
            "num_sentences": len(REFERENCES),
            "likelihood": {"kind": kind, "perplexity": perplexity},
            "translation": {"bleu": bleu, "chrf": 60.0, "exact_match": 0.25, "bleu_signature": "signature"},
            "alignment": {f"{name}_entropy": entropy, name: {"f1": 0.5}},
        },
    }


def sentences(changed):
    """Translations of which so many are wrong in a word."""
    return [text.replace("cat", "cow") if index < changed else text for index, text in enumerate(REFERENCES)]


def tables(found, hypotheses, baseline="soft"):
    """The tables as a dictionary from the start of a title to its lines, each a list of cells."""
    text = tables_of(found, baseline, hypotheses, REFERENCES)
    assert text.endswith("|\n") or "No differences" in text
    return by_title(text)


def by_title(text):
    parsed, title = {}, None
    for part in text.strip().split("\n\n"):
        if part.startswith("|"):
            rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in part.splitlines()]
            parsed[title] = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
        title = part
    return parsed


FOUND = {
    "soft": [record(7.0, 32.0, 2.0, "plug-in"), record(7.4, 31.0, 2.2, "plug-in")],
    "marginal": [record(6.0, 33.0), record(6.2, 32.5)],
    "variational_sample@soft": [record(6.5, 33.5, seconds=0.7), record(6.6, 33.1, seconds=0.9)],
    "variational_enum": [record(6.4, 33.0), record(6.4, 33.0)],
    "bam_weibull": [record(6.9, 34.0, 1.5, "plug-in", name="mean"), record(6.9, 34.0, 1.5, "plug-in", name="mean")],
}
HYPOTHESES = {name: [sentences(3), sentences(5)] for name in FOUND} | {"marginal": [sentences(0), sentences(5)]}


def test_every_row_has_its_words():
    assert set(MODELS) == set(ROWS)


def test_the_papers_layouts():
    found = tables(FOUND, HYPOTHESES)
    table_1 = {line["model"] + line["E"]: line for line in found["Table 1 of Deng et al. 2018"]}
    assert table_1["Soft Attention-"]["kind of PPL"] == "plug-in"
    assert table_1["Soft Attention-"]["PPL"].startswith("7.200 [")
    assert table_1["Variational Attention, from Soft AttentionSample"]["BLEU"].startswith("33.300 [")
    entropies = found["Table 3 of Deng et al. 2018, right"]
    assert [line["entropy of p (nats)"].split()[0] for line in entropies] == ["2.100", "1.000", "1.000", "1.000"]
    table_4 = found["Table 4 of Fan et al. 2020"]
    assert [line["model"] for line in table_4] == [
        "Soft Attention",
        "Variational Attention + Sample, from Soft Attention",
        "Variational Attention + Enum",
        "BAM-WC",
    ]
    (title,) = (title for title in found if title.startswith("Table 8"))
    assert [line["params (M)"].split()[0] for line in found[title]] == ["3.000"] * 3
    assert found[title][0]["s/step"].startswith("0.800 [")


def test_differences_over_seeds():
    found = tables(FOUND, HYPOTHESES)
    lines = {line["row"]: line for line in found["Paired differences over seeds against soft"]}
    assert set(lines) == set(FOUND) - {"soft"}
    # log(6 / 7), log(6.2 / 7.4): -0.154, -0.177.
    assert lines["marginal"]["log PPL"].startswith("-0.166 [")
    assert lines["marginal"]["BLEU"].startswith("1.250 [")
    assert lines["marginal"]["entropy"].startswith("-1.100 [")
    assert lines["marginal"]["kinds of PPL"] == "exact - plug-in"


def test_differences_over_sentences():
    found = tables(FOUND, HYPOTHESES)
    (lines,) = (lines for title, lines in found.items() if title.startswith("Paired bootstrap over sentences"))
    by_run = {(line["row"], line["seed"]): line for line in lines}
    assert by_run["marginal", "0"]["BLEU"].startswith("5.")
    assert by_run["marginal", "1"]["BLEU"] == "0.00 [0.00, 0.00]"
    assert by_run["marginal", "1"]["p of BLEU"] == by_run["marginal", "1"]["p of chrF"] == "1.000"


def test_one_seed_and_no_baseline():
    one = {name: records[:1] for name, records in FOUND.items()}
    text = tables_of(one, "hard_enum", {name: rows[:1] for name, rows in HYPOTHESES.items()}, REFERENCES)
    assert text.startswith("one seed, no claim; 20 test sentences; signature")
    assert "No differences: the baseline hard_enum is not among the rows." in text
    assert "7.000 |" in text


def test_the_paired_bootstrap():
    metric = BLEU(force=True)
    same = compare_translations(metric, sentences(3), sentences(3), REFERENCES)
    assert same == (0.0, 0.0, 0.0, 1.0)
    better = compare_translations(metric, sentences(0), sentences(8), REFERENCES)
    expected = 100.0 - metric.corpus_score(sentences(8), [REFERENCES]).score
    assert better.value == pytest.approx(expected)
    assert 0 < better.low < better.value < better.high
    assert better.p < 0.05
    worse = compare_translations(metric, sentences(8), sentences(0), REFERENCES)
    assert (worse.value, worse.p) == (pytest.approx(-expected), better.p)
    # One sentence of twenty: a third of the resamples do not have it.
    assert compare_translations(metric, sentences(1), sentences(0), REFERENCES).p > 0.2


def crossing(exact, kmax, soft, curve=None):
    inferences = [
        {"inference": name, "likelihood": {"kind": name, "perplexity": value}, "translation": {"bleu": 10 * value}}
        for name, value in (("exact", exact), ("kmax:5", kmax), ("soft", soft))
        if value is not None
    ]
    return {"inferences": inferences, "k_curve": curve}


def test_the_crossing():
    curve = {"k": [1, 2], "renormalised": [-1.0, -0.5], "plain": [-2.0, -0.5]}
    found = {
        "hard_enum": [crossing(2.0, 3.0, 4.0, curve)],
        "hard_sample": [crossing(2.5, 3.5, 4.5, curve)],
        "bam_weibull": [crossing(None, None, 5.0)],
    }
    parsed = by_title(crossing_table(found))
    assert len(parsed["Crossing of training and inference"]) == 7
    left = parsed["Table 2 of Deng et al. 2018, left"]
    assert [line["model"] for line in left] == ["Hard Attention + Enum", "Hard Attention + Sample"]
    assert [left[1][name] for name in ("PPL, exact", "PPL, K-max 5", "BLEU, exact", "BLEU, K-max 5")] == [
        "2.500",
        "3.500",
        "25.000",
        "35.000",
    ]
    (right,) = (lines for title, lines in parsed.items() if "Table 2 of Deng et al. 2018, right" in title)
    assert [(line["sum"], line["K 1"]) for line in right[:2]] == [("renormalised", "2.718"), ("plain", "7.389")]
    assert len(right) == 4
