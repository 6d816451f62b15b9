"""Tests the perplexity, metrics, attention statistics and pictures of captioning reports."""

import numpy as np
import pytest
import tensorflow as tf
from captioning_cases import APPLICATION, captions_of, run_of_scenes

import keras_vattn
from applications.captioning import pictures
from applications.captioning import report as reports
from applications.captioning.decode import Captioner
from applications.captioning.options import EvaluateCaptioning
from applications.captioning.train import WordPerplexity
from applications.common.runs import RunFolder
from applications.common.shown import random_rows
from applications.text.text import PAD
from applications.vision import scenes


@pytest.fixture(scope="module")
def scenes_run():
    return run_of_scenes(model="soft")


@pytest.mark.parametrize("model, kind", [("soft", "plug-in"), ("hard", "plug-in"), ("categorical", "exact")])
def test_the_perplexity(run_of_model, eagerly, model, kind):
    """The perplexity includes the end token of every caption."""
    run = run_of_model(model)
    regions, num_regions, target_input, target = captions_of(run)
    inputs = {"regions": regions, "num_regions": num_regions, "target_input": target_input, "target": target}
    words = np.where(target != PAD, run.models.training(inputs), 0.0)
    report = reports.likelihood_report(Captioner(run), run, run.data["valid"])
    likelihood = report["likelihood"]
    assert (likelihood["kind"], likelihood["num_tokens"]) == (kind, np.count_nonzero(target))
    assert likelihood["perplexity"] == pytest.approx(np.exp(-words.sum() / np.count_nonzero(target)), rel=1e-4)
    assert likelihood["nats"] == pytest.approx(-words.sum() / len(target), rel=1e-4)
    assert set(report["attention"]) == ({"entropy", "posterior"} if kind == "exact" else {"entropy"})
    metric = WordPerplexity()
    metric.update_state(target, run.models.training(inputs))
    assert float(metric.result()) == pytest.approx(likelihood["perplexity"], rel=1e-4)


def test_pointing_on_scenes(scenes_run, eagerly):
    """Only words for colours and shapes refer to a region, which contains an object with this colour or shape. The
    pointing accuracy uses the weights that predict the word."""
    part = scenes_run.data["train"]
    words_of_attributes = {0: set(), 1: set()}
    for caption, cells, words in zip(part.image, reports.cells_of(part), part.tokens, strict=True):
        objects = {thing.cell: (thing.color, thing.shape) for thing in part.scenes[caption].objects}
        for cell, word in zip(cells, words, strict=True):
            if cell >= 0:
                assert word in objects[cell]
                words_of_attributes[objects[cell].index(word)].add(word)
    assert words_of_attributes[0] <= set(scenes.COLORS) and words_of_attributes[1] <= set(scenes.SHAPES)
    rows = []

    class PerfectPointer:
        """Attends to the region that a word refers to, or to the first region."""

        def read(self, regions, num_regions, target_input, target):
            weights = np.zeros((*target.shape, 16), np.float32)
            weights[:, :, 0] = 1.0
            for row in weights:
                for step, cell in enumerate(cells[len(rows)]):
                    row[step] = np.arange(16) == max(cell, 0)
                rows.append(row)
            return {"log_likelihood": tf.zeros(target.shape), "weights": tf.constant(weights)}

    cells, captioner = reports.cells_of(part), PerfectPointer()
    report = reports.likelihood_report(captioner, scenes_run, part)["attention"]
    assert {name: (scores["accuracy"], scores["chance"]) for name, scores in report["pointing"].items()} == {
        name: (1.0, 1 / 16) for name in ("all", "color", "shape")
    }
    assert report["entropy"] == 0.0 and "posterior" not in report


def test_the_report(scenes_run, eagerly, monkeypatch):
    """Reports on two captions: a true one, which equals a reference, and a false one."""
    part = scenes_run.data["test"]
    texts = [part.captions.captions[0][1], "a red circle is a red circle"]
    assert len(part) == 2
    monkeypatch.setattr(reports, "caption", lambda captioner, part: texts)
    report, outputs = APPLICATION.evaluate(scenes_run, part, EvaluateCaptioning(""))
    assert (report["num_images"], report["num_captions"], report["true"]) == (2, 6, 0.5)
    assert report["captions"]["tokenizer"] == "rules without Java" and 0.5 < report["captions"]["bleu_1"] < 1.0
    assert report["attention"]["pointing"]["all"]["chance"] == 1 / 16
    assert "weights_sd" not in report["attention"]
    ids = part.captions.ids
    assert APPLICATION.files(outputs) == {"captions": [f"{ids[0]}\t{texts[0]}", f"{ids[1]}\t{texts[1]}"]}
    assert reports.summary(report)[0] == "1 of 2 captions are true." and len(reports.summary(report)) == 2
    (first, second) = (sample[-1] for sample in APPLICATION.shown(scenes_run, part, outputs).samples)
    label, text = second
    assert first == ("judged", "right") and label == "judged" and text.startswith("wrong: ")
    assert text.removeprefix("wrong: ") in scenes.true_captions(part.scenes[1])


def test_weights_deviation(run_of_model, eagerly):
    assert reports.weights_deviation(run_of_model("soft"), run_of_model("soft").data["valid"]) == {}
    deviations = []
    for k in (1.0, 10.0, 1e5):
        run = run_of_model("wc", weibull_k=k)
        deviations.append(reports.weights_deviation(run, run.data["valid"])["weights_sd"])
    assert deviations[0] > 5 * deviations[1] > 50 * deviations[2] and deviations[2] < 1e-3


@pytest.mark.parametrize("model", ["wc", "lc"])
def test_draws_of_the_prior(run_of_model, eagerly, model):
    """Samples of the published prior put all weight on one region. Samples of a strong prior equal the prior mean."""
    first_inputs = lambda run: next(  # noqa: E731
        iter(run.data["valid"].batches(run.options).unbatch().batch(1))
    )[0]
    draws = pictures.prior_draws(run_of_model(model), first_inputs(run_of_model(model)), 200)
    np.testing.assert_allclose(draws.sum(axis=1), 1.0)
    assert draws.shape == (200, 4) and (draws.max(axis=1) > 0.99).mean() > 0.95
    assert (np.bincount(draws.argmax(axis=1), minlength=4) > 20).all()
    run = run_of_model(model, prior_beta=1e8, prior_sigma=1e-4)
    _, memory, mask = run.models.decode(**first_inputs(run))
    psi = np.exp(
        run.models.decoder.attention.alignment_prior.log_psi(memory, keras_vattn.DenseKeys(mask[:, None]))[0, 0]
    )
    draws = pictures.prior_draws(run, first_inputs(run), 5)
    np.testing.assert_allclose(draws, np.tile(psi, (5, 1)), rtol=5e-3)


@pytest.mark.parametrize("model", ["categorical", "wc"])
def test_pictures(run_of_model, eagerly, tmp_path, monkeypatch, model):
    """A picture has one panel per word, which shows samples (BAM, here wc) or predictive weights (other models)."""
    monkeypatch.setattr(pictures, "NUM_PICTURES", 2)
    run = run_of_model(model)
    part = run.data["test"]
    run.folder = RunFolder(tmp_path, {})
    captions = [part.captions.captions[row][0] for row in range(len(part))]
    pictures.draw_pictures(run, part, captions)
    chosen = random_rows(len(part), 2)
    expected = {f"{part.captions.ids[row]}.png" for row in chosen}
    assert {path.name for path in (tmp_path / "pictures").glob("*.png")} == expected
    words, weights = pictures.attended(run, part, chosen[0], captions[chosen[0]])
    row = sum(map(len, part.captions.captions[: chosen[0]]))  # first caption of the image
    assert words == part.tokens[row] and set(weights) == ({"prior", "posterior"} if model == "wc" else {"weights"})
    for matrix in weights.values():
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-5)
    if model == "categorical":
        read = Captioner(run).read(*(x[row : row + 1] for x in captions_of(run, "test")))["weights"]
        np.testing.assert_allclose(weights["weights"], read[0, : len(words)], atol=1e-5)
