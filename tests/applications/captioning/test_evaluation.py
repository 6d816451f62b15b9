"""The report of a model: perplexities with their kind, metrics, where it looks, pictures."""

import numpy as np
import pytest
import tensorflow as tf
from captioning_cases import APPLICATION, captions_of, run_of_scenes

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
def of_scenes():
    return run_of_scenes(model="soft")


@pytest.mark.parametrize("model, kind", [("soft", "plug-in"), ("hard", "plug-in"), ("categorical", "exact")])
def test_the_perplexity(made, eagerly, model, kind):
    """The end of a caption counts."""
    run = made(model)
    regions, num_regions, target_input, target = captions_of(run)
    inputs = {"regions": regions, "num_regions": num_regions, "target_input": target_input, "target": target}
    words = np.where(target != PAD, run.models.training(inputs), 0.0)
    report = reports.likelihood_report(Captioner(run), run, run.data["valid"])
    found = report["likelihood"]
    assert (found["kind"], found["num_tokens"]) == (kind, np.count_nonzero(target))
    assert found["perplexity"] == pytest.approx(np.exp(-words.sum() / np.count_nonzero(target)), rel=1e-4)
    assert found["nats"] == pytest.approx(-words.sum() / len(target), rel=1e-4)
    metric = WordPerplexity()
    metric.update_state(target, run.models.training(inputs))
    assert float(metric.result()) == pytest.approx(found["perplexity"], rel=1e-4)


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
            return tf.zeros(target.shape), tf.constant(weights)

    cells, captioner = reports.cells_of(part), Looking()
    report = reports.likelihood_report(captioner, of_scenes, part)["attention"]
    assert (report["pointing"]["accuracy"], report["pointing"]["chance"], report["entropy"]) == (1.0, 1 / 16, 0.0)


def test_the_report(of_scenes, eagerly, monkeypatch):
    """Of captions that are true, or not, and that are references."""
    part = of_scenes.data["test"]
    texts = [part.captions.captions[0][1], "a red circle is a red circle"]
    assert len(part) == 2
    monkeypatch.setattr(reports, "caption", lambda captioner, part: texts)
    report, outputs = APPLICATION.evaluate(of_scenes, part, EvaluateCaptioning(""))
    assert (report["num_images"], report["num_captions"], report["true"]) == (2, 6, 0.5)
    assert report["captions"]["tokenizer"] == "rules without Java" and 0.5 < report["captions"]["bleu_1"] < 1.0
    assert report["attention"]["pointing"]["chance"] == 1 / 16
    ids = part.captions.ids
    assert APPLICATION.files(outputs) == {"captions": [f"{ids[0]}\t{texts[0]}", f"{ids[1]}\t{texts[1]}"]}
    assert reports.summary(report)[0] == "1 of 2 captions are true." and len(reports.summary(report)) == 2
    (first, second) = (sample[-1] for sample in APPLICATION.shown(of_scenes, part, outputs).samples)
    label, text = second
    assert first == ("judged", "right") and label == "judged" and text.startswith("wrong: ")
    assert text.removeprefix("wrong: ") in scenes.true_captions(part.scenes[1])


def test_pictures(made, eagerly, tmp_path, monkeypatch):
    """A panel for each word, with the weights that predict it."""
    monkeypatch.setattr(pictures, "NUM_PICTURES", 2)
    run = made("categorical")
    part = run.data["test"]
    run.folder = RunFolder(tmp_path, {})
    captions = [part.captions.captions[row][0] for row in range(len(part))]
    pictures.draw_pictures(run, part, captions)
    chosen = random_rows(len(part), 2)
    expected = {f"{part.captions.ids[row]}.png" for row in chosen}
    assert {path.name for path in (tmp_path / "pictures").glob("*.png")} == expected
    words, weights = pictures.attended(run, part, chosen[0], captions[chosen[0]])
    row = sum(map(len, part.captions.captions[: chosen[0]]))  # of the first caption of the image
    assert words == part.tokens[row]
    _, expected = Captioner(run).read(*(x[row : row + 1] for x in captions_of(run, "test")))
    np.testing.assert_allclose(weights, expected[0, : len(words)], atol=1e-5)
