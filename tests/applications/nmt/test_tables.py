"""Tests the tables of a comparison, computed from constructed metrics."""

import numpy as np
import pytest
from application_cases import HERE, Compared, tables_of
from nmt_cases import APPLICATION

from applications.common.shown import Alignment, Shown
from applications.nmt import report, tables
from applications.nmt.options import CompareNmt


def record(perplexity, bleu, entropy=1.0, kind="exact", seconds=0.5, parameters=(2e6, 1e6), name="prior"):
    return {
        "split": "test",
        "step_seconds": seconds,
        "parameters": dict(zip(("generative", "inference"), parameters, strict=True)),
        "report": {
            "num_sentences": 20,
            "likelihood": {"kind": kind, "perplexity": perplexity},
            "translation": {"bleu": bleu, "chrf": 60.0, "exact_match": 0.25, "bleu_signature": "signature"},
            "alignment": {f"{name}_entropy": entropy, name: {"f1": 0.5}},
        },
    }


RECORDS = {
    "soft": [record(7.0, 32.0, 2.0, "plug-in"), record(7.4, 31.0, 2.2, "plug-in")],
    "marginal": [record(6.0, 33.0), record(6.2, 32.5)],
    "variational_sample@soft": [record(6.5, 33.5, seconds=0.7), record(6.6, 33.1, seconds=0.9)],
    "variational_enum": [record(6.4, 33.0), record(6.4, 33.0)],
    "wc": [record(6.9, 34.0, 1.5, "plug-in", name="mean"), record(6.9, 34.0, 1.5, "plug-in", name="mean")],
}
IWSLT = f"paper: IWSLT 2014 German-English; {HERE}"
ARGUMENTS = ["--split", "test", "--inference", "kmax:5"]


def compared(folder, records=RECORDS, **options):
    """Return a comparison whose models have perplexity 8 and BLEU 30 under K-max."""
    seeds = len(next(iter(records.values())))
    options = CompareNmt(out=str(folder / "compared"), models=tuple(records), seeds=seeds, **options)
    comparison = Compared(APPLICATION, options, records, {name: [record(8.0, 30.0)] * seeds for name in records})
    comparison.read = lambda run, name: {"split": "test"}
    return comparison


def test_the_papers_layouts(tmp_path):
    comparison = compared(tmp_path)
    printed = tables_of("\n\n".join([*tables.deng(comparison), *tables.fan(comparison)]))
    table_1 = {line["model"] + line["E"]: line for line in printed[f"Table 1 of Deng et al. 2018; {IWSLT}"]}
    assert table_1["Soft Attention-"]["kind of PPL"] == "plug-in"
    assert table_1["Soft Attention-"]["PPL"].startswith("7.200 [")
    assert table_1["Variational Attention, from Soft AttentionSample"]["BLEU"].startswith("33.30 [")
    assert table_1["Variational Attention, from Soft AttentionSample"]["BLEU, paper"] == "33.09"
    kmax = printed[f"Table 2 of Deng et al. 2018; paper: IWSLT 2014 German-English, K = 5; {HERE}"]
    # Only models with exact inference are evaluated with K-max.
    assert comparison.evaluate_arguments == {name: None if name in ("soft", "wc") else ARGUMENTS for name in RECORDS}
    assert [line["PPL, exact"].split()[0] for line in kmax] == ["6.100", "6.550", "6.400"]
    assert [line["PPL, K-max 5"].split()[0] for line in kmax] == ["8.000"] * 3
    assert [line["BLEU, K-max 5, paper"] for line in kmax] == ["32.97", "33.01", "33.00"]
    entropies = printed[f"Table 3 of Deng et al. 2018; {IWSLT}"]
    assert [line["entropy of p (nats), paper"] for line in entropies] == ["1.24", "0.82", "0.52", "0.54"]
    assert [line["entropy of p (nats)"].split()[0] for line in entropies] == ["2.100", "1.000", "1.000", "1.000"]
    table_4 = printed[f"Table 4 of Fan et al. 2020; {IWSLT}"]
    assert [line["BLEU, paper"] for line in table_4] == ["32.77", "33.30", "33.68", "33.81"]
    assert table_4[1]["model"] == "Variational Attention + Sample, from Soft Attention"
    (title,) = (title for title in printed if title.startswith("Table 8"))
    assert [line["params (M)"].split()[0] for line in printed[title]] == ["3.000"] * 3
    assert printed[title][0]["s/step"].startswith("0.800 [")


def test_a_layout_skips_missing_models(tmp_path):
    """Table 3 omits models without a categorical distribution. Rows of the papers are matched by model name."""
    comparison = compared(tmp_path, {"wc:units=8": RECORDS["wc"], "soft": RECORDS["soft"]})
    printed = tables_of("\n\n".join([*tables.deng(comparison), *tables.fan(comparison)]))
    models = {title.partition(";")[0]: [line["model"] for line in lines] for title, lines in printed.items()}
    assert models == {
        "Table 1 of Deng et al. 2018": ["BAM-WC (units=8)", "Soft Attention"],
        "Table 3 of Deng et al. 2018": ["Soft Attention"],
        "Table 4 of Fan et al. 2020": ["BAM-WC (units=8)", "Soft Attention"],
        "Table 8 of Fan et al. 2020": ["BAM-WC (units=8)"],
    }


def test_the_picture_of_a_comparison(tmp_path):
    def alignment(*kinds):
        weights = np.random.default_rng(0).dirichlet(np.ones(2), size=3)
        return Alignment("", ["c", "d", "<end>"], dict.fromkeys(kinds, weights), source=["a", "b"])

    comparison = compared(tmp_path)
    shown = {"soft": Shown([], [alignment("prior", "exact")]), "wc": Shown([], [alignment("mean")])}
    comparison.shown = lambda: shown
    picture = comparison.folder / "alignments.png"
    assert APPLICATION.compared(comparison) == [] and picture.read_bytes().startswith(b"\x89PNG")
    # If a run has no report.html, its alignments are missing and no picture is written.
    picture.unlink()
    shown["wc"] = Shown()
    assert APPLICATION.compared(comparison) == [] and not picture.exists()


def test_the_first_sentences():
    figures = {
        "num_sentences": 800,
        "translation": {"exact_match": 0.9, "bleu": 95.25},
        "alignment": {"mean_entropy": 0.5, "prior": {"aer": 0.125}},
        "controls": {"source": {"nats": 40.0}},
    }
    assert APPLICATION.summary(figures) == [
        "720 of 800 translations equal their reference; BLEU 95.2.",
        "Alignment error rate on gold links: 0.125 (prior).",
        "With another sentence's source, log p drops by 40.0 nats per sentence.",
    ]
    assert len(APPLICATION.summary(figures | {"alignment": {}, "controls": {}})) == 1


@pytest.mark.parametrize("is_built_in", [False, True])
def test_samples_of_the_built_in_text_are_judged(monkeypatch, is_built_in):
    """Only translations of the built-in text are judged, because other text has several right translations."""
    monkeypatch.setattr(report, "attention", lambda run, part: [])
    outputs = {"sources": ["a", "b"], "references": ["x", "y"], "hypotheses": ["x", "z"]}
    samples = report.shown(None, None, outputs | {"is_built_in": is_built_in}).samples
    verdicts = [dict(sample).get("judged") for sample in samples]
    assert verdicts == (["right", "wrong: differs from the reference"] if is_built_in else [None, None])
