"""Tests the uncertainty of captions, which is computed by scoring a generated caption again in several draws."""

import pytest
from captioning_cases import APPLICATION, run_of_scenes
from uncertainty_cases import require_draws_of_whole_sentences

from applications.captioning.decode import Captioner
from applications.captioning.options import EvaluateCaptioning, GenerateCaptioning

NOISY = {"weibull_k": 1.0, "dropout": 0.3}


def first_images(run, count=3):
    (inputs,) = next(iter(run.data["train"].images(count)))
    return inputs["regions"], inputs["num_regions"]


@pytest.mark.slow
def test_draws_share_noise_across_a_caption(run_of_model, eagerly):
    """One draw scores a whole caption: with the same noise, the training model returns the same log-likelihood."""
    run, regions = run_of_model("wc", **NOISY), first_images(run_of_model("wc", **NOISY))
    captioner = Captioner(run)
    figures, target = captioner._uncertain(*regions, 2, 5), captioner.search(*regions)["ids"]
    inputs = dict(zip(("regions", "num_regions"), regions, strict=True))
    require_draws_of_whole_sentences(figures, run.models.training, inputs, target, 5)


def test_models_without_random_attention_use_dropout(run_of_model, eagerly):
    captioner = Captioner(run_of_model("soft", **NOISY))
    assert "uncertain" not in captioner.names and not captioner.noise.value.is_stochastic
    first = captioner.written(*first_images(run_of_model("soft", **NOISY)), 3, 0)[0]
    assert first["log_likelihood_sd"] > 1e-3 and first["mutual_information"] > 1e-5


def test_lines(run_of_model, eagerly, tmp_path):
    run, lines = run_of_model("wc", **NOISY), tmp_path / "lines"
    lines.write_text("9\n4\n")
    heads, *written = APPLICATION.generate(run, GenerateCaptioning("", str(lines), uncertainty=True))
    rows = [dict(zip(heads.split("\t"), line.split("\t"), strict=True)) for line in written]
    assert [row["text"] for row in rows] == list(APPLICATION.generate(run, GenerateCaptioning("", str(lines))))
    for row in rows:
        counts = {len(row[name].split()) for name in ("words", "word_entropy", "word_mutual_information")}
        assert counts == {int(row["num_words"])}


@pytest.mark.slow
def test_the_report(eagerly, capsys):
    """On scenes, the report also contains the fraction of true captions."""
    run = run_of_scenes(model="soft", dropout=0.3)
    part = run.data["test"]
    report, _ = APPLICATION.evaluate(run, part, EvaluateCaptioning("", num_draws=2, uncertainty=True))
    uncertainty = report["uncertainty"]
    assert uncertainty["drawn"] == "dropout" and set(uncertainty["quality"]) == {"cider", "true"}
    for metric, expected in (("cider", report["captions"]["cider"]), ("true", report["true"])):
        for curves in uncertainty["quality"][metric].values():
            assert curves["curve"][-1] == pytest.approx(expected)
    assert "CIDEr of the 10% to 100% most certain sentences" in capsys.readouterr().out
