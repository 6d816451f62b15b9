"""How sure a model is of its captions: what it has written, read again under draws."""

import pytest
from captioning_cases import APPLICATION, run_of_scenes
from uncertainty_cases import require_draws_of_whole_sentences

from applications.captioning.decode import Captioner
from applications.captioning.options import EvaluateCaptioning, GenerateCaptioning

NOISY = {"weibull_k": 1.0, "dropout": 0.3}


def seen(run, count=3):
    (inputs,) = next(iter(run.data["train"].images(count)))
    return inputs["regions"], inputs["num_regions"]


@pytest.mark.slow
def test_a_draw_is_the_noise_of_whole_captions(made, eagerly):
    """The log-likelihood under each is what the training model gives under the same noise."""
    run, regions = made("wc", **NOISY), seen(made("wc", **NOISY))
    captioner = Captioner(run)
    found, target = captioner._uncertain(*regions, 2, 5), captioner.search(*regions)["ids"]
    inputs = dict(zip(("regions", "num_regions"), regions, strict=True))
    require_draws_of_whole_sentences(found, run.models.training, inputs, target, 5)


def test_a_model_that_does_not_draw_its_attention_draws_its_dropout(made, eagerly):
    captioner = Captioner(made("soft", **NOISY))
    assert "uncertain" not in captioner.names and not captioner.noise.value.is_stochastic
    first = captioner.written(*seen(made("soft", **NOISY)), 3, 0)[0]
    assert first["log_likelihood_sd"] > 1e-3 and first["mutual_information"] > 1e-5


def test_lines(made, eagerly, tmp_path):
    run, lines = made("wc", **NOISY), tmp_path / "lines"
    lines.write_text("9\n4\n")
    heads, *written = APPLICATION.generate(run, GenerateCaptioning("", str(lines), uncertainty=True))
    rows = [dict(zip(heads.split("\t"), line.split("\t"), strict=True)) for line in written]
    assert [row["text"] for row in rows] == list(APPLICATION.generate(run, GenerateCaptioning("", str(lines))))
    for row in rows:
        counts = {len(row[name].split()) for name in ("words", "word_entropy", "word_mutual_information")}
        assert counts == {int(row["num_words"])}


@pytest.mark.slow
def test_the_report(eagerly, capsys):
    """Of scenes, where it is known whether a caption is true."""
    run = run_of_scenes(model="soft", dropout=0.3)
    part = run.data["test"]
    report, _ = APPLICATION.evaluate(run, part, EvaluateCaptioning("", num_draws=2, uncertainty=True))
    found = report["uncertainty"]
    assert found["drawn"] == "dropout" and set(found["quality"]) == {"cider", "true"}
    for metric, whole in (("cider", report["captions"]["cider"]), ("true", report["true"])):
        for curves in found["quality"][metric].values():
            assert curves["curve"][-1] == pytest.approx(whole)
    assert "CIDEr of the most certain sentences" in capsys.readouterr().out
