"""What is reported of a model: perplexities with their kind, metrics, where it looks, pictures."""

import numpy as np
import pytest
import tensorflow as tf
from captioning_cases import APPLICATION, captions_of, run_of, run_of_scenes
from scipy.special import logsumexp

import keras_vattn
from applications.captioning import report as reports
from applications.captioning import train
from applications.captioning.options import EvaluateCaptioning
from applications.captioning.serve import Captioner
from applications.captioning.train import CaptionValidation, WordPerplexity
from applications.common.runs import RunFolder
from applications.common.shown import random_rows
from applications.text.text import PAD
from applications.vision import scenes


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    known = {}

    def made(model, **values):
        key = (model, *sorted(values.items()))
        if key not in known:
            known[key] = run_of(tmp_path_factory.mktemp(model), model=model, **values)
        return known[key]

    return made


@pytest.fixture(scope="module")
def of_scenes():
    return run_of_scenes(model="soft")


@pytest.mark.parametrize("model, kind", [("soft", "plug-in"), ("hard", "plug-in"), ("categorical", "exact")])
def test_the_perplexity(made, eagerly, model, kind):
    """The end of a caption counts; draws are those of an attention that is drawn."""
    run = made(model)
    regions, num_regions, target_input, target = captions_of(run)
    inputs = {"regions": regions, "num_regions": num_regions, "target_input": target_input, "target": target}
    words = np.where(target != PAD, run.models.training(inputs), 0.0)
    report = reports.likelihood_report(Captioner(run), run, run.data["valid"], 2)
    found = report["likelihood"]
    assert (found["kind"], found["num_tokens"]) == (kind, np.count_nonzero(target))
    assert found["perplexity"] == pytest.approx(np.exp(-words.sum() / np.count_nonzero(target)), rel=1e-4)
    assert found["nats"] == pytest.approx(-words.sum() / len(target), rel=1e-4)
    assert ("predictive" in found) == (model == "hard")
    assert set(report["attention"]) == ({"entropy", "posterior"} if kind == "exact" else {"entropy"})
    metric = WordPerplexity()
    metric.update_state(target, run.models.training(inputs))
    assert float(metric.result()) == pytest.approx(found["perplexity"], rel=1e-4)


def test_the_predictive_perplexity_is_that_of_the_mean_over_draws(made, eagerly):
    """Of a word about one of two regions, where the mean is a sum; draws of a caption hang together."""
    run = made("hard")
    part, captioner = run.data["valid"], Captioner(run)
    report = reports.likelihood_report(captioner, run, part, 3)["likelihood"]
    values, tokens = [], 0
    for number, (inputs, target) in enumerate(part.batches(run.options)):
        arguments = [inputs[name] for name in ("regions", "num_regions", "target_input", "target")]
        draws = [captioner.read_drawn(*arguments, [number, draw])["log_likelihood"].numpy() for draw in range(3)]
        assert np.abs(draws[0] - draws[1]).max() > 1e-3
        values.append(logsumexp([words.sum(axis=1) for words in draws], axis=0) - np.log(3))
        tokens += np.count_nonzero(target)
    assert report["predictive"] == pytest.approx(np.exp(-np.concatenate(values).sum() / tokens), rel=1e-4)
    assert report["num_draws"] == 3


def test_where_the_words_of_scenes_are(of_scenes, eagerly):
    """Words about a region are colours and shapes, and it has an object of that colour or shape; the weights are those
    that predict the word."""
    part = of_scenes.data["train"]
    known = {0: set(), 1: set()}
    for caption, cells, words in zip(part.image, reports.cells_of(part), part.tokens, strict=True):
        objects = {thing.cell: (thing.color, thing.shape) for thing in part.scenes[caption].objects}
        for cell, word in zip(cells, words, strict=True):
            if cell >= 0:
                assert word in objects[cell]
                known[objects[cell].index(word)].add(word)
    assert known[0] <= set(scenes.COLORS) and known[1] <= set(scenes.SHAPES)
    found = []

    class Looking:
        """Looks at the region of each word, and elsewhere at the first."""

        def read(self, regions, num_regions, target_input, target):
            weights = np.zeros((*target.shape, 16), np.float32)
            weights[:, :, 0] = 1.0
            for row in weights:
                for step, cell in enumerate(cells[len(found)]):
                    row[step] = np.arange(16) == max(cell, 0)
                found.append(row)
            return {"log_likelihood": tf.zeros(target.shape), "weights": tf.constant(weights)}

    cells, captioner = reports.cells_of(part), Looking()
    report = reports.likelihood_report(captioner, of_scenes, part, 0)["attention"]
    assert {name: (of_kind["accuracy"], of_kind["chance"]) for name, of_kind in report["pointing"].items()} == {
        name: (1.0, 1 / 16) for name in ("all", "color", "shape")
    }
    assert report["entropy"] == 0.0 and "posterior" not in report


def test_the_report(of_scenes, eagerly, monkeypatch):
    """Of captions that are true, or not, and that are references."""
    part = of_scenes.data["test"]
    texts = [part.captions.captions[0][1], "a red circle is a red circle"]
    assert len(part) == 2
    monkeypatch.setattr(reports, "caption", lambda captioner, part: texts)
    report, outputs = APPLICATION.evaluate(of_scenes, part, EvaluateCaptioning("", num_draws=5))
    assert (report["num_images"], report["num_captions"], report["true"]) == (2, 6, 0.5)
    assert report["captions"]["tokenizer"] == "rules without Java" and 0.5 < report["captions"]["bleu_1"] < 1.0
    assert report["attention"]["pointing"]["all"]["chance"] == 1 / 16
    assert "predictive" not in report["likelihood"] and "weights_sd" not in report["attention"]
    ids = part.captions.ids
    assert APPLICATION.files(outputs) == {"captions": [f"{ids[0]}\t{texts[0]}", f"{ids[1]}\t{texts[1]}"]}
    assert reports.summary(report)[0] == "1 of 2 captions are true." and len(reports.summary(report)) == 2
    (first, second) = (sample[-1] for sample in APPLICATION.shown(of_scenes, part, outputs).samples)
    label, text = second
    assert first == ("judged", "right") and label == "judged" and text.startswith("wrong: ")
    assert text.removeprefix("wrong: ") in scenes.true_captions(part.scenes[1])


def test_how_random_the_weights_are(made, eagerly):
    assert reports.statistics(made("soft"), made("soft").data["valid"]) == {}
    deviations = []
    for k in (1.0, 10.0, 1e5):
        run = made("wc", weibull_k=k)
        found = reports.statistics(run, run.data["valid"])
        deviations.append(found["weights_sd"])
        assert 0.0 < found["prior_entropy"] <= np.log(4) + 1e-6
    assert deviations[0] > 5 * deviations[1] > 50 * deviations[2] and deviations[2] < 1e-3
    found = reports.statistics(made("hard"), made("hard").data["valid"])
    assert 0.1 < found["weights_sd"] < 0.5 and "prior_entropy" not in found


@pytest.mark.parametrize("model", ["wc", "lc"])
def test_draws_of_the_prior(made, eagerly, model):
    """With the published values one region is all of a draw; with a strong prior draws are what it expects."""
    of_caption = lambda run: next(  # noqa: E731
        iter(run.data["valid"].batches(run.options).unbatch().batch(1))
    )[0]
    draws = reports.prior_draws(made(model), of_caption(made(model)), 200, 3)
    np.testing.assert_allclose(draws.sum(axis=1), 1.0)
    assert draws.shape == (200, 3) and (draws.max(axis=1) > 0.99).mean() > 0.95
    assert (np.bincount(draws.argmax(axis=1), minlength=3) > 20).all()
    run = made(model, prior_beta=1e8, prior_sigma=1e-4)
    _, memory, mask = run.models.decode(*reports.arguments_of(of_caption(run)))
    psi = np.exp(
        run.models.decoder.attention.alignment_prior.log_psi(memory, keras_vattn.DenseKeys(mask[:, None]))[0, 0]
    )
    draws = reports.prior_draws(run, of_caption(run), 5, 4)
    np.testing.assert_allclose(draws, np.tile(psi, (5, 1)), rtol=5e-3)


def test_pictures(made, eagerly, tmp_path, monkeypatch):
    """Of some images the model's own caption and the first reference, a panel for each word."""
    run, drawn = made("wc"), []
    draw = keras_vattn.plots.image_attention
    monkeypatch.setattr(
        keras_vattn.plots, "image_attention", lambda *given, **more: drawn.append((given, draw(*given, **more)))
    )
    monkeypatch.setattr(reports, "NUM_PICTURES", 2)
    part = run.data["test"]
    run.folder = RunFolder(tmp_path, {})
    texts = [f"a red square {word}" for word in ("top", "left", "", "right", "left")]
    outputs = {"hypotheses": texts, "part": part}
    shown = APPLICATION.shown(run, part, outputs)
    lines = APPLICATION.report(run, part, {}, outputs, shown)
    assert lines[:2] == ["image       15", "caption     a red square top"]
    own = [(given, figure) for given, figure in drawn if given[4] == ["prior", "posterior"]]
    assert len(own) == len(list((tmp_path / "pictures").glob("*.png"))) == 2
    (image, weights, boxes, words, _, title), figure = own[0]
    assert (
        title == f"{' '.join(words)}; a draw for each word" and image.shape == (8, 8, 3) and np.shape(boxes) == (4, 4)
    )
    assert np.shape(weights) == (2 * len(words), 4)
    np.testing.assert_allclose(np.sum(weights, axis=1), 1.0, rtol=1e-5)
    assert [axes.get_title() for axes in figure.axes[: len(words)]] == words
    assert words == texts[random_rows(5, 2)[0]].split() == shown.drawn[0]["caption"]["words"]


@pytest.mark.slow
def test_what_models_look_at_for_the_same_words(made, eagerly, tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "NUM_PICTURES", 1)
    run = made("categorical")
    part = run.data["test"]
    known = {name: reports.pictures_of(run, part, ["a red square"] * len(part)) for name in ("one", "other")}
    picture, image = known["one"][0], random_rows(len(part), 1)[0]
    row = sum(map(len, part.captions.captions[:image]))  # of the first caption of the image
    assert picture["reference"]["words"] == part.tokens[row] and set(picture["reference"]) == {"words", "weights"}
    assert set(picture["caption"]) == {"words", "weights"}
    read = Captioner(run).read(*(x[row : row + 1] for x in captions_of(run, "test")))["weights"]
    read = read[0, : len(part.tokens[row])]
    np.testing.assert_allclose(picture["reference"]["weights"], read, atol=1e-5)
    reports.draw_references(known, part, tmp_path)
    assert [path.name for path in tmp_path.glob("*.png")] == [f"attention_{part.captions.ids[image]}.png"]
    # Nothing to draw on, no place to draw at, no word.
    for changes in ({"boxes": np.zeros((4, 4))}, {"reference": {"words": [], "weights": np.zeros((0, 4))}}):
        reports.draw_references({"one": [picture | changes | {"image": "0"}]}, part, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("every, decoded", [(0, []), (2, [1, 3])])
def test_validation_after_an_epoch(made, eagerly, monkeypatch, every, decoded):
    """The CIDEr of greedy captions of the first images."""
    run, found = made("soft"), {}
    monkeypatch.setattr(run.options.reports, "decode_every", every)
    asked = []
    monkeypatch.setattr(
        train, "caption", lambda captioner, part, chosen, title: asked.append(chosen) or ["a red square", "a"]
    )
    callback = CaptionValidation(run)
    for epoch in range(4):
        logs = {}
        callback.on_epoch_end(epoch, logs)
        found |= {epoch: logs["val_cider"]} if logs else {}
    assert list(found) == decoded and all(0.0 <= value <= 10.0 for value in found.values())
    assert [chosen.tolist() for chosen in asked] == [[0, 1]] * len(decoded)
