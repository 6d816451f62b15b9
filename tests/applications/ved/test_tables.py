"""Tests the tables of a comparison, computed from constructed metrics."""

import pytest
from application_cases import HERE, Compared, tables_of
from ved_cases import APPLICATION

from applications.ved.options import CompareVed


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


def compared(folder, records=RECORDS):
    options = CompareVed(out=str(folder / "compared"), models=tuple(records), seeds=2, baseline=next(iter(records)))
    return Compared(APPLICATION, options, records)


@pytest.mark.parametrize(
    "layout, data", [("table_2", "SQuAD, split of Du et al. 2017"), ("table_4", "Cornell Movie-Dialogs")]
)
def test_the_papers_tables(tmp_path, layout, data):
    """MAP and sampling have separate tables. Deterministic models do not sample, and MAP has no entropy."""
    name = f"Table {layout[-1]} of Bahuleyan et al. 2018"
    tables = tables_of("\n\n".join(APPLICATION.layouts[layout](compared(tmp_path))))
    at_mean, drawn = (tables[f"{name}, {inference}; paper: {data}; {HERE}"] for inference in ("map", "sampling"))
    assert [line["model"] for line in at_mean] == ["ded_dattn", "ved_dattn@ved"]
    assert [line["BLEU-2"].split()[0] for line in at_mean] == ["13.00", "14.00"]
    assert [line["model"] for line in drawn] == ["ved_dattn@ved"]
    assert (drawn[0]["BLEU-2"].split()[0], drawn[0]["entropy (nats)"].split()[0]) == ("10.50", "2.100")
    # Only Table 2 of the paper has a row for `ved_dattn@ved`, a model that starts from one without attention.
    printed = {"table_2": ("14.33", "13.02", "2.241"), "table_4": ("1.84", "1.68", "2.113")}[layout]
    assert (*(line["BLEU-2, paper"] for line in at_mean), drawn[0]["entropy (nats), paper"]) == printed
    assert ("BLEU-4" in at_mean[0]) == (layout == "table_2") and "entropy (nats)" not in at_mean[0]


def test_the_pilot_study(tmp_path):
    records = {
        "ved:autoencoder=true": [record(10.0, 4.0, figures(8.0, entropy)) for entropy in (2.0, 2.4)],
        "ved:autoencoder=true,initial_state=true": [record(10.0, 4.0, figures(8.0, entropy)) for entropy in (1.6, 1.8)],
    }
    (text,) = APPLICATION.layouts["table_1"](compared(tmp_path, records))
    ((title, lines),) = tables_of(text).items()
    assert title.startswith("Table 1 of Bahuleyan et al. 2018, sampling; paper: 80,000 sentences of SNLI")
    assert [line["entropy (nats)"].split()[0] for line in lines] == ["2.200", "1.700"]
    assert [line["entropy (nats), paper"] for line in lines] == ["2.52", "2.01"]
