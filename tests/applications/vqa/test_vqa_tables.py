"""Tests the layouts of the papers' tables."""

from application_cases import HERE, Compared, changed, tables_of
from vqa_cases import APPLICATION

from applications.vqa import tables
from applications.vqa.options import CompareVqa


def record_of(nll, accuracy, pavpu, deviation=None, noisy=None):
    def figures(value, certain):
        return {
            "accuracy": dict.fromkeys(("all", "yes/no", "number", "other"), value),
            "uncertainty": {
                "dropout": {"pavpu": {"all": 0.1}},
                "both": {
                    "num_draws": 20,
                    "num_questions": 300,
                    "significance": 0.05,
                    "pavpu": {"all": certain, "number": certain},
                },
            },
        }

    report = {"nll": nll, "entropy": 0.5, "weights_sd": deviation, **figures(accuracy, pavpu)}
    report["noisy"] = figures(accuracy - 0.1, pavpu - 0.1)
    return {"report": report, "step_seconds": 0.1, "parameters": {"generative": 10**6, "inference": 0}}


VQA = f"paper: VQA v2, validation; {HERE}"


def compared(folder, models):
    options = changed(CompareVqa(out=str(folder)), models=tuple(models), baseline=models[0], seeds=2)
    records = {
        name: [record_of(1.0 + index, 0.5, 0.6), record_of(2.0 + index, 0.7, 0.6)] for index, name in enumerate(models)
    }
    return Compared(APPLICATION, options, records)


def test_the_tables_of_deng(tmp_path):
    models = ["soft", "marginal", "soft:architecture=mcan", "wc"]
    printed = tables_of("\n\n".join(tables.deng(compared(tmp_path, models))))
    table = printed[f"Table 1 of Deng et al. 2018, VQA; {VQA}"]
    assert [row["NLL (nats), paper"] for row in table] == ["1.76", "1.69"]
    assert [row["model"] for row in table] == ["Soft Attention", "Marginal Likelihood"]
    assert [row["E"] for row in table] == ["-", "Enum"] and table[1]["NLL (nats)"].startswith("2.500")
    assert table[0]["Eval (%)"].startswith("60.00")
    entropies = printed[f"Table 3 of Deng et al. 2018, right; {VQA}"]
    assert entropies[0]["entropy of p (nats)"].startswith("0.500")
    assert entropies[0]["entropy of p (nats), paper"] == "2.70"
    started = tables_of("\n\n".join(tables.deng(compared(tmp_path / "started", ["marginal@soft:units=8", "soft"]))))
    row = started[f"Table 1 of Deng et al. 2018, VQA; {VQA}"][0]
    assert row["model"] == "Marginal Likelihood, from Soft Attention (units=8)"
    # Deng et al. 2018 do not report this model.
    row = tables_of("\n\n".join(tables.deng(compared(tmp_path / "relaxed", ["relaxed", "soft"]))))
    row = row[f"Table 1 of Deng et al. 2018, VQA; {VQA}"][0]
    assert (row["model"], row["Eval (%), paper"]) == ("Variational Relaxed Attention", "-")
    assert tables.deng(compared(tmp_path / "none", ["wc", "wf"])) == []


def test_the_tables_of_fan(tmp_path):
    models = ["soft", "soft:architecture=mcan", "wc"]
    printed = tables_of("\n\n".join(tables.fan(compared(tmp_path, models))))
    table = printed[f"Table 2 of Fan et al. 2020; {VQA}"]
    assert [row["PAvPU noisy, all (%), paper"] for row in table] == ["65.34", "66.75"]
    assert [row["model"] for row in table] == ["Soft Attention (architecture=mcan)", "BAM-WC"]
    assert table[1]["accuracy original, all (%)"].startswith("60.00")
    assert table[1]["accuracy noisy, all (%)"].startswith("50.00")
    assert table[1]["PAvPU noisy, all (%)"].startswith("50.00")
    uncertain = printed[f"Table 7, uncertainty of Fan et al. 2020; {VQA}"]
    assert uncertain[0]["PAvPU original, number (%), paper"] == "56.81"
    assert uncertain[0]["PAvPU original, number (%)"].startswith("60.00")
    # The table omits columns without any value.
    assert "PAvPU original, other (%)" not in uncertain[0]
