"""The tables of a comparison, on figures made by hand."""

from application_cases import HERE, Compared, tables_of
from captioning_cases import APPLICATION

from applications.captioning.options import CompareCaptioning
from applications.common.tables import difference_table, figures_of, main_table


def record(perplexity, bleu, kind="plug-in", meteor=None, deviation=None, pointing=0.4):
    captions = {f"bleu_{order}": bleu + 0.1 * (4 - order) for order in range(1, 5)} | {"cider": 1.1, "rouge_l": 0.5}
    attention = {"entropy": 1.5, "pointing": {"all": {"accuracy": pointing, "chance": 1 / 16}}}
    return {
        "split": "test",
        "step_seconds": 0.1,
        "parameters": {"generative": 2_000_000},
        "report": {
            "num_images": 3,
            "num_captions": 15,
            "likelihood": {"kind": kind, "perplexity": perplexity}
            | ({"num_draws": 5, "predictive": 3.0} if deviation else {}),
            "captions": captions | {"tokenizer": "PTBTokenizer"} | ({} if meteor is None else {"meteor": meteor}),
            "attention": attention | ({} if deviation is None else {"weights_sd": deviation, "prior_entropy": 2.5}),
        },
    }


FOUND = {
    "soft": [record(7.0, 0.30, meteor=0.25), record(7.4, 0.32, meteor=0.27)],
    "wc@soft:weibull_k=5": [
        record(6.9, 0.33, meteor=0.28, deviation=2e-4),
        record(7.3, 0.35, meteor=0.3, deviation=2e-4),
    ],
    "categorical": [record(6.0, 0.3, "exact", 0.2, pointing=0.7), record(6.5, 0.3, "exact", 0.2, pointing=0.8)],
}


def lines_of(text):
    ((lines,),) = (tables_of(f"x\n\n{text}").values(),)
    return {line["model"]: line for line in lines}


def test_the_papers_layout(tmp_path):
    given = CompareCaptioning(out=str(tmp_path / "compared"), models=tuple(FOUND), seeds=2)
    (text,) = APPLICATION.layouts["fan"](Compared(APPLICATION, given, FOUND))
    ((title, lines),) = tables_of(text).items()
    assert title == f"Table 3 of Fan et al. 2020; paper: COCO, split of Karpathy; {HERE}"
    heads = ["BLEU-4", "BLEU-3", "BLEU-2", "BLEU-1", "CIDEr", "ROUGE-L", "METEOR"]
    assert list(lines[0]) == ["model", *(head for each in heads for head in (each, f"{each}, paper"))]
    assert [line["CIDEr, paper"] for line in lines] == ["104.0", "104.5", "-"]
    assert [line["model"] for line in lines] == ["Soft", "BAM-WC, from Soft (weibull_k=5)", "Categorical"]
    assert lines[0]["BLEU-4"].startswith("31.0 [") and lines[0]["BLEU-1"].startswith("61.0 [")
    assert lines[0]["METEOR"].startswith("26.0 [") and lines[0]["CIDEr"].startswith("110.0 [")


def test_without_java_there_is_no_meteor(tmp_path):
    given = CompareCaptioning(out=str(tmp_path / "compared"), models=("soft",), seeds=1)
    (text,) = APPLICATION.layouts["fan"](Compared(APPLICATION, given, {"soft": [record(7.0, 0.3)]}))
    assert "METEOR" not in text and "ROUGE-L" in text


def test_means_and_differences_over_seeds():
    by_model = lines_of(main_table(APPLICATION.columns, FOUND))
    assert by_model["soft"]["kind of PPL"] == "plug-in" and by_model["categorical"]["kind of PPL"] == "exact"
    assert by_model["soft"]["sd of weights"] == "-"
    assert by_model["wc@soft:weibull_k=5"]["sd of weights"] == "2.0e-04, effectively deterministic"
    assert by_model["categorical"]["pointing, all (%)"].startswith("75.0 [")
    assert by_model["soft"]["chance (%)"] == "6.2 [6.2, 6.2]"
    by_model = lines_of(difference_table(APPLICATION.columns, FOUND, "soft"))
    # log(6 / 7), log(6.5 / 7.4): -0.154, -0.130.
    assert by_model["categorical"]["log PPL"].startswith("-0.142 [")
    assert not {"kind of PPL", "chance (%)", "s/step", "sd of weights"} & set(by_model["categorical"])


def test_the_heading_says_what_was_measured():
    plain, drawn = (APPLICATION.heading(record(7.0, 0.3, deviation=deviation)) for deviation in (None, 0.1))
    assert plain == "3 test images with 15 captions; tokens of the metrics: PTBTokenizer"
    assert drawn == f"{plain}; predictive PPL of 5 draws"
    lines = figures_of(APPLICATION.columns, record(7.0, 0.3, deviation=0.1)).splitlines()
    assert [line.split("|")[2].strip() for line in lines if "sd of weights" in line] == ["0.1000"]
