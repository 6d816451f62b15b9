"""How sure a model is of its captions: what it has written, read again under draws."""

import numpy as np
import pytest
import tensorflow as tf
from captioning_cases import APPLICATION, run_of, run_of_scenes
from image_cases import colored_images
from uncertainty_cases import require_draws_of_whole_sentences

from applications.captioning.metrics import caption_metrics, cider_of_images
from applications.captioning.options import EvaluateCaptioning, GenerateCaptioning
from applications.captioning.serve import Captioner
from applications.common.serving import save_module


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    known = {}

    def made(model):
        if model not in known:
            known[model] = run_of(tmp_path_factory.mktemp(model), model=model, weibull_k=1.0, dropout=0.3)
        return known[model]

    return made


def seen(run, count=3):
    (inputs,) = next(iter(run.data["train"].images(count)))
    return inputs["regions"], inputs["num_regions"]


@pytest.mark.slow
def test_the_likelihood_at_the_mean_is_that_of_the_search(made, eagerly):
    """Of beam search and of greedy decoding."""
    for num_beams in (1, 3):
        captioner, regions = Captioner(made("wc"), num_beams), seen(made("wc"))
        searched, found = captioner.search(*regions), captioner.written(*regions, 0, 0)
        for row, sentence in enumerate(found):
            assert sentence["log_likelihood"] == pytest.approx(float(searched["log_probabilities"][row]), rel=1e-4)
            assert sentence["num_words"] == len(sentence["words"]) == int(searched["lengths"][row])
            assert "mutual_information" not in sentence


def test_a_draw_is_the_noise_of_whole_captions(made, eagerly):
    """The log-likelihood under each is what the training model gives under the same noise."""
    run, regions = made("wc"), seen(made("wc"))
    captioner = Captioner(run)
    found, target = captioner._uncertain(*regions, 2, 5), captioner.search(*regions)["ids"]
    inputs = dict(zip(("regions", "num_regions"), regions, strict=True))
    require_draws_of_whole_sentences(found, run.models.training, inputs, target, 5)


def test_a_model_that_does_not_draw_its_attention_draws_its_dropout(made, eagerly):
    captioner = Captioner(made("soft"))
    assert "uncertain" not in captioner.names and not captioner.noise.value.is_stochastic
    first = captioner.written(*seen(made("soft")), 3, 0)[0]
    assert first["log_likelihood_sd"] > 1e-3 and first["mutual_information"] > 1e-5


def test_lines(made, eagerly, tmp_path):
    run, lines = made("wc"), tmp_path / "lines"
    lines.write_text("9\n4\n")
    heads, *written = APPLICATION.generate(run, GenerateCaptioning("", str(lines), uncertainty=True))
    rows = [dict(zip(heads.split("\t"), line.split("\t"), strict=True)) for line in written]
    assert [row["text"] for row in rows] == list(APPLICATION.generate(run, GenerateCaptioning("", str(lines))))
    for row in rows:
        counts = {len(row[name].split()) for name in ("words", "word_entropy", "word_mutual_information")}
        assert counts == {int(row["num_words"])}


def test_the_cider_of_each_image():
    hypotheses = ["a red square", "two blue circles", "a green cross"]
    references = [["a red square", "one red square"], ["two blue rings"], ["a cross"]]
    found = cider_of_images(hypotheses, references, java=False)
    assert found.shape == (3,) and found[0] > found[1]
    assert found.mean() == pytest.approx(caption_metrics(hypotheses, references, java=False)["cider"])


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


@pytest.mark.slow
def test_the_exported_endpoint(made, tmp_path):
    """Its arguments have names; it writes what `generate` writes, and its draws are those of the seed."""
    module, names = APPLICATION.endpoints(made("wc"))
    assert names[:4] == ("generate", "sample", "uncertain", "generate_features")
    save_module(module, ("generate", "uncertain"), tmp_path / "served")
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    _, arguments = loaded.signatures["uncertain"].structured_input_signature
    assert set(arguments) == {"images", "num_samples", "seed"}
    images = tf.stack([tf.io.encode_png(image) for image in colored_images(20)[[2, 7]]])
    found, again, other = (
        loaded.signatures["uncertain"](images=images, num_samples=tf.constant(3), seed=tf.constant(seed))
        for seed in (5, 5, 6)
    )
    assert found["captions"].numpy().tolist() == loaded.generate(images)["captions"].numpy().tolist()
    assert found["log_likelihoods"].shape == (3, 2) and found["word_entropy"].shape == found["words"].shape
    np.testing.assert_array_equal(found["log_likelihoods"], again["log_likelihoods"])
    assert np.abs(found["log_likelihoods"] - other["log_likelihoods"]).min() > 0.0
