"""The tables of a comparison, on figures made by hand."""

import numpy as np
import pytest
from application_cases import HERE, Compared, tables_of
from nmt_cases import APPLICATION
from sacrebleu.metrics import BLEU

from applications.common.shown import Alignment, Shown
from applications.common.significance import compare_translations, mean_interval, paired_interval
from applications.common.tables import difference_table, main_table
from applications.nmt import report, tables
from applications.nmt.options import CompareNmt
from applications.nmt.report import over_sentences

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


FOUND = {
    "soft": [record(7.0, 32.0, 2.0, "plug-in"), record(7.4, 31.0, 2.2, "plug-in")],
    "marginal": [record(6.0, 33.0), record(6.2, 32.5)],
    "variational_sample@soft": [record(6.5, 33.5, seconds=0.7), record(6.6, 33.1, seconds=0.9)],
    "variational_enum": [record(6.4, 33.0), record(6.4, 33.0)],
    "wc": [record(6.9, 34.0, 1.5, "plug-in", name="mean"), record(6.9, 34.0, 1.5, "plug-in", name="mean")],
}


IWSLT = f"paper: IWSLT 2014 German-English; {HERE}"


def compared(folder, records=FOUND, reports=None, **options):
    seeds = len(next(iter(records.values())))
    given = CompareNmt(out=str(folder / "compared"), models=tuple(records), seeds=seeds, **options)
    return Compared(APPLICATION, given, records, reports)


def test_the_papers_layouts(tmp_path):
    found = tables_of("\n\n".join([*tables.deng(compared(tmp_path)), *tables.fan(compared(tmp_path / "again"))]))
    table_1 = {line["model"] + line["E"]: line for line in found[f"Table 1 of Deng et al. 2018; {IWSLT}"]}
    assert table_1["Soft Attention-"]["kind of PPL"] == "plug-in"
    assert table_1["Soft Attention-"]["PPL"].startswith("7.200 [")
    assert table_1["Variational Attention, from Soft AttentionSample"]["BLEU"].startswith("33.30 [")
    assert table_1["Variational Attention, from Soft AttentionSample"]["BLEU, paper"] == "33.09"
    entropies = found[f"Table 3 of Deng et al. 2018; {IWSLT}"]
    assert [line["entropy of p (nats), paper"] for line in entropies] == ["1.24", "0.82", "0.52", "0.54"]
    assert [line["entropy of p (nats)"].split()[0] for line in entropies] == ["2.100", "1.000", "1.000", "1.000"]
    table_4 = found[f"Table 4 of Fan et al. 2020; {IWSLT}"]
    assert [line["BLEU, paper"] for line in table_4] == ["32.77", "33.30", "33.68", "33.81"]
    assert [line["model"] for line in table_4] == [
        "Soft Attention",
        "Variational Attention + Sample, from Soft Attention",
        "Variational Attention + Enum",
        "BAM-WC",
    ]
    (title,) = (title for title in found if title.startswith("Table 8"))
    assert [line["params (M)"].split()[0] for line in found[title]] == ["3.000"] * 3
    assert found[title][0]["s/step"].startswith("0.800 [")


def test_a_layout_leaves_out_the_lines_that_it_has_not(tmp_path):
    """The entropy of Table 3 is that of a categorical distribution, and the papers' lines are models by name."""
    records = {"wc:units=8": FOUND["wc"], "marginal": FOUND["marginal"]}
    comparison = compared(tmp_path, records)
    found = tables_of("\n\n".join([*tables.deng(comparison), *tables.fan(comparison)]))
    assert [line["model"] for line in found[f"Table 1 of Deng et al. 2018; {IWSLT}"]] == [
        "BAM-WC (units=8)",
        "Marginal Likelihood",
    ]
    assert [line["model"] for line in found[f"Table 3 of Deng et al. 2018; {IWSLT}"]] == ["Marginal Likelihood"]
    assert [line["model"] for line in found[f"Table 4 of Fan et al. 2020; {IWSLT}"]] == ["BAM-WC (units=8)"]
    assert tables.fan(compared(tmp_path / "other", {"marginal": FOUND["marginal"]})) == []
    assert set(APPLICATION.layouts) == {"deng", "fan", "uncertainty"}


def test_means_and_differences_over_seeds():
    (lines,) = tables_of("x\n\n" + main_table(APPLICATION.columns, FOUND)).values()
    by_model = {line["model"]: line for line in lines}
    assert by_model["soft"]["kind of PPL"] == "plug-in" and by_model["marginal"]["kind of PPL"] == "exact"
    assert by_model["marginal"]["exact match (%)"] == "25.0 [25.0, 25.0]"
    assert by_model["wc"]["entropy (nats)"].startswith("1.500")
    assert by_model["soft"]["parameters (M)"].startswith("2.000") and "PPL (ELBO)" not in by_model["soft"]
    (lines,) = tables_of("x\n\n" + difference_table(APPLICATION.columns, FOUND, "soft")).values()
    by_model = {line["model"]: line for line in lines}
    assert set(by_model) == set(FOUND) - {"soft"}
    # log(6 / 7), log(6.2 / 7.4): -0.154, -0.177.
    assert by_model["marginal"]["log PPL"].startswith("-0.166 [")
    assert by_model["marginal"]["BLEU"].startswith("1.25 [")
    assert by_model["marginal"]["entropy (nats)"].startswith("-1.100 [")
    assert not {"kind of PPL", "s/step", "parameters (M)", "inference (M)"} & set(by_model["marginal"])


def test_differences_over_sentences(tmp_path):
    comparison = compared(tmp_path)
    comparison.write(
        "hypotheses.txt",
        {name: [sentences(3), sentences(5)] for name in FOUND} | {"marginal": [sentences(0), sentences(5)]},
    )
    comparison.write("references.txt", {name: [REFERENCES, REFERENCES] for name in FOUND})
    ((title, lines),) = tables_of(over_sentences(comparison)).items()
    assert title == "Paired bootstrap over sentences against soft, 1000 resamples, p two-sided"
    by_run = {(line["model"], line["seed"]): line for line in lines}
    assert set(by_run) == {(name, seed) for name in set(FOUND) - {"soft"} for seed in "01"}
    assert by_run["marginal", "0"]["BLEU"].startswith("5.")
    assert by_run["marginal", "1"]["BLEU"] == "0.00 [0.00, 0.00]"
    assert by_run["marginal", "1"]["p of BLEU"] == by_run["marginal", "1"]["p of chrF"] == "1.000"


def test_other_references_are_not_compared_sentence_by_sentence(tmp_path):
    """Seeds have their numbers, and an entry with other test sentences, or another case of them, has no pairs."""
    others = {"wc:max_length=9": 10, "marginal:lowercase=false": 20}
    records = {name: FOUND["marginal"] for name in ("soft", "marginal", *others)}
    comparison = compared(tmp_path, records, first_seed=5)
    comparison.write("hypotheses.txt", {name: 2 * [sentences(3)[: others.get(name, 20)]] for name in records})
    of_names = {
        "wc:max_length=9": REFERENCES[:10],
        "marginal:lowercase=false": [x.title() for x in REFERENCES],
    }
    comparison.write("references.txt", {name: 2 * [of_names.get(name, REFERENCES)] for name in records})
    ((_, lines),) = tables_of(over_sentences(comparison)).items()
    assert [(line["model"], line["seed"]) for line in lines] == [("marginal", "5"), ("marginal", "6")]
    sentence = over_sentences(comparison).split("\n\n")[-1]
    assert sentence == f"Not compared with soft, whose reference sentences are others: {', '.join(others)}."


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


def test_intervals():
    # Student's t with 2 degrees of freedom at 97.5%: 4.30265. Standard error of 1, 2, 3: 1 / sqrt(3).
    half = 4.302652729911275 / np.sqrt(3)
    assert mean_interval([1, 2, 3]) == pytest.approx((2.0, 2.0 - half, 2.0 + half))
    assert paired_interval([11, 22, 33], [10, 20, 30]) == pytest.approx((2.0, 2.0 - half, 2.0 + half))
    single = mean_interval([5.0])
    assert single.mean == 5.0
    assert np.isnan([single.low, single.high]).all()
    with pytest.raises(ValueError, match="same seeds"):
        paired_interval([1], [1, 2])


def crossed(exact, kmax, soft, curve=None):
    """What `evaluate --inference ... --name crossing` writes of a run."""
    inferences = {
        name: {"likelihood": {"kind": name, "perplexity": value}, "translation": {"bleu": 10 * value}}
        for name, value in (("exact", exact), ("kmax:5", kmax), ("soft", soft))
        if value is not None
    }
    return {"report": {"inferences": inferences} | ({} if curve is None else {"k_curve": curve})}


def test_the_crossing(tmp_path, monkeypatch):
    """Every model under the inferences that it has; continuous alignments have no sum over them, and no K curve."""
    curve = {"k": [1, 2], "renormalised": [-1.0, -0.5], "plain": [-2.0, -0.5]}
    reports = {
        "soft": [crossed(2.0, 3.0, 4.0, curve)],
        "hard_enum": [crossed(2.0, 3.0, 4.0, curve)],
        "hard_sample": [crossed(2.5, 3.5, 4.5, curve)],
        "wc": [crossed(None, None, 5.0)],
    }
    records = {name: [record(4.0, 1.0)] for name in reports}
    options = {"inference": ("exact", "kmax:5", "soft"), "k_curve": 2, "baseline": "marginal"}
    comparison = compared(tmp_path, records, reports, **options)
    monkeypatch.setattr(comparison, "read", lambda run, name: {"split": "test"})
    figures, draw = [], tables.training_curves
    monkeypatch.setattr(tables, "training_curves", lambda *given, **named: figures.append(draw(*given, **named)))
    shown = {name: Shown([], [Alignment("", **drawn(name))]) for name in reports}
    monkeypatch.setattr(comparison, "shown", lambda: shown)
    parsed = tables_of("\n\n".join(APPLICATION.compared(comparison)))
    every = ["--split", "test", "--inference", "exact", "kmax:5", "soft", "--k-curve", "2"]
    continuous = ["--split", "test", "--inference", "soft", "--k-curve", "0"]
    assert comparison.asked == {"soft": every, "hard_enum": every, "hard_sample": every, "wc": continuous}
    lines = parsed["Crossing of training and inference"]
    assert [(line["model"], line["inference"]) for line in lines[-2:]] == [
        ("hard_sample", "soft"),
        ("wc", "soft"),
    ]
    assert len(lines) == 10 and lines[0]["PPL"] == "2.000" and lines[0]["BLEU"] == "20.00"
    left = parsed[f"Table 2 of Deng et al. 2018, left; paper: IWSLT 2014 German-English, K = 5; {HERE}"]
    assert [line["PPL, K-max 5, paper"] for line in left] == ["-", "7.37", "7.38"]
    assert [line["model"] for line in left] == ["Soft Attention", "Hard Attention + Enum", "Hard Attention + Sample"]
    assert [left[2][name] for name in ("PPL, exact", "PPL, K-max 5", "BLEU, exact", "BLEU, K-max 5")] == [
        "2.500",
        "3.500",
        "25.00",
        "35.00",
    ]
    (right,) = (lines for title, lines in parsed.items() if "Table 2 of Deng et al. 2018, right" in title)
    assert [(line["sum"], line["K 1"]) for line in right[:2]] == [("renormalised", "2.718"), ("plain", "7.389")]
    assert len(right) == 6
    (axes,) = figures[0].axes
    soft, plug_in, *hard = (line.get_xydata().round(3).tolist() for line in axes.get_lines())
    assert [soft, *hard] == 3 * [[[1, 2.718], [2, 1.649]]] and plug_in == [[1, 4.0], [2, 4.0]]
    assert (axes.get_xlabel(), axes.get_title()) == ("K", "perplexity, K-max")
    assert (comparison.folder / "k_curve.png").read_bytes().startswith(b"\x89PNG")
    picture = comparison.folder / "alignments.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    # A run of before there were pages has no alignments.
    picture.unlink()
    shown["wc"] = Shown()
    assert APPLICATION.compared(comparison) and not picture.exists()


def drawn(model):
    """What `report` keeps of a pair to be drawn."""
    kinds = ("mean",) if model == "wc" else ("prior", "exact")
    weights = np.random.default_rng(len(model)).dirichlet(np.ones(2), size=3).tolist()
    return {"source": ["a", "b"], "target": ["c", "d", "<end>"], "weights": dict.fromkeys(kinds, weights)}


def test_the_first_sentences():
    report = {
        "num_sentences": 800,
        "translation": {"exact_match": 0.9, "bleu": 95.25},
        "alignment": {"mean_entropy": 0.5, "prior": {"aer": 0.125}},
        "controls": {"source": {"nats": 40.0}},
    }
    assert APPLICATION.summary(report) == [
        "720 of 800 translations equal their reference; BLEU 95.2.",
        "Alignment error rate on gold links: 0.125 (prior).",
        "Attending to another sentence's source costs 40.0 nats a sentence.",
    ]
    assert len(APPLICATION.summary(report | {"alignment": {}, "controls": {}})) == 1


@pytest.mark.parametrize("is_built_in", [False, True])
def test_samples_of_the_built_in_text_are_judged(monkeypatch, is_built_in):
    """Other text has several right translations."""
    monkeypatch.setattr(report, "attention", lambda run, part: [])
    outputs = {"sources": ["a", "b"], "references": ["x", "y"], "hypotheses": {"soft": ["x", "z"]}}
    samples = report.shown(None, None, outputs | {"is_built_in": is_built_in}).samples
    verdicts = [dict(sample).get("judged") for sample in samples]
    assert verdicts == (["right", "wrong: differs from the reference"] if is_built_in else [None, None])
