"""The tables and the curve of a comparison, on figures made by hand."""

import pytest
from application_cases import HERE, Compared, tables_of
from ved_cases import APPLICATION

from applications.common.tables import difference_table, figures_of, main_table
from applications.ved.options import CompareVed
from applications.ved.report import draw_curves


def figures(bleu, entropy=None):
    names = {f"bleu_{order}": bleu + order for order in range(1, 5)}
    return names | ({} if entropy is None else {"entropy": entropy, "dist_1": 0.25, "dist_2": 0.5})


def record(bleu, perplexity, sampling=None):
    report = {"map": figures(bleu), "likelihood": {"perplexity": perplexity}}
    if sampling is not None:
        report["sampling"] = sampling
        report["likelihood"] |= {"elbo_perplexity": 2 * perplexity, "kl": {"latent_kl": 1.5}, "active_units": 3}
    return {"split": "valid", "report": report}


RECORDS = {
    "ded_dattn": [record(10.0, 4.0), record(12.0, 4.0)],
    "ved_dattn@ved": [record(11.0, 3.0, figures(8.0, 2.0)), record(13.0, 3.0, figures(9.0, 2.2))],
}


def compared(folder, reports=None, **options):
    options = CompareVed(out=str(folder / "compared"), models=tuple(RECORDS), seeds=2, baseline="ded_dattn", **options)
    return Compared(APPLICATION, options, RECORDS, reports)


def test_means_and_differences_over_seeds():
    lines = {line["model"]: line for line in tables_of("x\n\n" + main_table(APPLICATION.columns, RECORDS))["x"]}
    assert lines["ved_dattn@ved"]["BLEU-4, MAP"].startswith("16.00 [")
    assert lines["ved_dattn@ved"]["BLEU-4, draws"].startswith("12.50 [") and lines["ded_dattn"]["BLEU-4, draws"] == "-"
    assert lines["ved_dattn@ved"]["KL of z (nats)"].startswith("1.500")
    assert lines["ved_dattn@ved"]["active units of z"].startswith("3 [")
    # No model draws attention.
    assert "KL of attention (nats)" not in lines["ved_dattn@ved"]
    table = tables_of("x\n\n" + difference_table(APPLICATION.columns, RECORDS, "ded_dattn"))["x"]
    assert [line["model"] for line in table] == ["ved_dattn@ved"]
    # log(3 / 4).
    assert table[0]["BLEU-4, MAP"].startswith("1.00 [") and table[0]["log PPL (plug-in)"].startswith("-0.288 [")


def test_figures_of_a_run_are_those_that_it_has():
    lines = tables_of("x\n\n" + figures_of(APPLICATION.columns, RECORDS["ded_dattn"][0]))["x"]
    assert [(line["figure"], line["value"]) for line in lines] == [("BLEU-4, MAP", "14.00"), ("PPL (plug-in)", "4.000")]


@pytest.mark.parametrize(
    "layout, data", [("table_2", "SQuAD, split of Du et al. 2017"), ("table_4", "Cornell Movie-Dialogs")]
)
def test_the_papers_tables(tmp_path, layout, data):
    """A table for each inference; a deterministic model does not sample, and MAP has no entropy."""
    name = f"Table {layout[-1]} of Bahuleyan et al. 2018"
    found = tables_of("\n\n".join(APPLICATION.layouts[layout](compared(tmp_path))))
    at_mean, drawn = (found[f"{name}, {inference}; paper: {data}; {HERE}"] for inference in ("map", "sampling"))
    assert [line["model"] for line in at_mean] == ["ded_dattn", "ved_dattn@ved"]
    assert [line["BLEU-2"].split()[0] for line in at_mean] == ["13.00", "14.00"]
    assert [line["model"] for line in drawn] == ["ved_dattn@ved"]
    assert (drawn[0]["BLEU-2"].split()[0], drawn[0]["entropy (nats)"].split()[0]) == ("10.50", "2.100")
    # The paper has a line for the model that begins without attention in one of the tables.
    printed = {"table_2": ("14.33", "13.02", "2.241"), "table_4": ("1.84", "1.68", "2.113")}[layout]
    assert (*(line["BLEU-2, paper"] for line in at_mean), drawn[0]["entropy (nats), paper"]) == printed
    assert ("BLEU-4" in at_mean[0]) == (layout == "table_2") and "entropy (nats)" not in at_mean[0]


def test_the_pilot_study(tmp_path):
    """Paired over seeds; of the autoencoders alone."""
    found = {
        "vae": [record(10.0, 4.0, figures(8.0, 2.0)), record(10.0, 4.0, figures(8.0, 2.4))],
        "ved_dattn": [record(10.0, 4.0, figures(8.0, 9.0))] * 2,
        "vae_hidden_init": [record(10.0, 4.0, figures(8.0, 1.6)), record(10.0, 4.0, figures(8.0, 1.8))],
    }
    given = CompareVed(out=str(tmp_path / "compared"), models=tuple(found), seeds=2, layout=("table_1",))
    ((title, lines),) = tables_of(APPLICATION.layouts["table_1"](Compared(APPLICATION, given, found))[0]).items()
    assert title.startswith("Pilot study of Bahuleyan et al. 2018, Table 1; paper: 80,000 sentences of SNLI")
    assert [line["model"] for line in lines] == ["vae", "vae_hidden_init"]
    assert [line["difference to vae"].split()[0] for line in lines] == ["-", "-0.500"]
    assert [line["difference to vae, paper"] for line in lines] == ["-", "-0.5"]
    assert lines[0]["entropy, draws (nats)"].startswith("2.200 [")
    assert APPLICATION.layouts["table_1"](compared(tmp_path / "others")) == []


def point(temperature, entropy, bleu):
    return {"temperature": temperature, "entropy": entropy, "bleu_4": bleu}


def test_quality_against_diversity(tmp_path):
    """Means over seeds of every model that draws; nothing is evaluated where no temperature is asked for."""
    reports = {
        "ved_dattn@ved": [
            {
                "report": {
                    "curves": {"latent": [point(0.0, 0.0, 20.0), point(1.0, x, y)], "word": [point(0.5, 2.0, 3.0)]}
                }
            }
            for x, y in ((2.0, 10.0), (3.0, 11.0))
        ],
    }
    comparison = compared(tmp_path, reports, latent_temperatures=(0.0, 1.0), word_temperatures=(0.5,))
    (text,) = APPLICATION.compared(comparison)
    asked = "--split valid --max-sources 300 --latent-temperatures 0 1 --word-temperatures 0.5"
    assert comparison.asked == {"ded_dattn": None, "ved_dattn@ved": asked.split()}
    ((title, lines),) = tables_of(text).items()
    assert title == "Quality against diversity, validation, means over seeds"
    assert [tuple(line.values()) for line in lines] == [
        ("ved_dattn@ved, latent", "0", "0.000", "20.00"),
        ("ved_dattn@ved, latent", "1", "2.500", "10.50"),
        ("ved_dattn@ved, word", "0.5", "2.000", "3.00"),
    ]
    assert (comparison.folder / "quality_diversity.png").read_bytes().startswith(b"\x89PNG")
    plain = compared(tmp_path / "plain")
    assert APPLICATION.compared(plain) == [] and plain.asked == {}


def test_curves_are_drawn_with_their_temperatures(tmp_path):
    curves = {"ved, latent": [(0.2, 3.1, 0.5), (0.4, 2.8, 1.0)], "ved, word": [(0.1, 3.3, 2.0)]}
    figure = draw_curves(curves, tmp_path / "curves.png")
    (axes,) = figure.axes
    assert axes.get_lines()[0].get_xydata().tolist() == [[0.2, 3.1], [0.4, 2.8]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("entropy (nats)", "BLEU-4")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(curves)
    assert [text.get_text() for text in axes.texts] == ["0.5", "1", "2"]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
