"""Tests the tables of a comparison, computed from constructed metrics."""

from application_cases import HERE, Compared, tables_of
from captioning_cases import APPLICATION

from applications.captioning.options import CompareCaptioning


def record(bleu, meteor):
    captions = {f"bleu_{order}": bleu + 0.1 * (4 - order) for order in range(1, 5)}
    return {"report": {"captions": captions | {"cider": 1.1, "rouge_l": 0.5, "meteor": meteor}}}


RECORDS = {
    "soft": [record(0.30, 0.25), record(0.32, 0.27)],
    "wc@soft:weibull_k=5": [record(0.33, 0.28), record(0.35, 0.3)],
    "categorical": [record(0.3, 0.2), record(0.3, 0.2)],
}


def test_the_papers_layout(tmp_path):
    options = CompareCaptioning(out=str(tmp_path / "compared"), models=tuple(RECORDS), seeds=2)
    (text,) = APPLICATION.layouts["fan"](Compared(APPLICATION, options, RECORDS))
    ((title, lines),) = tables_of(text).items()
    assert title == f"Table 3 of Fan et al. 2020; paper: COCO, Karpathy split; {HERE}"
    heads = ["BLEU-4", "BLEU-3", "BLEU-2", "BLEU-1", "CIDEr", "ROUGE-L", "METEOR"]
    assert list(lines[0]) == ["model", *(head for name in heads for head in (name, f"{name}, paper"))]
    assert [line["CIDEr, paper"] for line in lines] == ["104.0", "104.5", "-"]
    assert [line["model"] for line in lines] == ["Soft", "BAM-WC, from Soft (weibull_k=5)", "Categorical"]
    assert lines[0]["BLEU-4"].startswith("31.0 [") and lines[0]["BLEU-1"].startswith("61.0 [")
    assert lines[0]["METEOR"].startswith("26.0 [") and lines[0]["CIDEr"].startswith("110.0 [")
