"""Pictures of alignments: what is in which panel, and one an epoch."""

import base64
import types

import numpy as np
import pytest
import tensorflow as tf
from program_cases import CASES, TOY
from run_files import read_arrays

import keras_vattn
from applications.common.attention_pictures import AttentionPictures, draw_alignments, draw_on_images
from applications.common.options import FitOptions
from applications.common.runs import RunFolder
from applications.common.shown import Alignment
from applications.common.training import TrainingRun


def alignment(*kinds, heads=()):
    generator, words = np.random.default_rng(len(kinds)), ["a", "b"]
    weights = {kind: generator.dirichlet(np.ones(2), size=(*heads, 3)) for kind in kinds}
    return Alignment("", ["c", "d", "<end>"], weights, source=words)


def panels_of(figure):
    return [(axes.texts[-1].get_text(), axes.get_images()[0].get_array()) for axes in figure.axes if axes.get_images()]


def test_models_are_drawn_side_by_side(tmp_path):
    """A row for each example; what a model has not is no panel, and a posterior is drawn over its prior."""
    first, other = alignment("prior", "posterior", "exact"), alignment("mean")
    figure = draw_alignments({"variational": [first] * 2, "wc": [other] * 2}, tmp_path / "x.png")
    panels = panels_of(figure)
    titles = ["variational: prior (red), posterior (blue)", "variational: exact", "wc: mean"]
    assert [title for title, _ in panels] == 2 * titles
    assert len({round(axes.get_position().y0, 6) for axes in figure.axes[:6]}) == 2
    (_, both), (_, exact), (_, mean) = panels[:3]
    np.testing.assert_allclose(both[..., 0], 1.0 - first.weights["posterior"])
    np.testing.assert_allclose(both[..., 2], 1.0 - first.weights["prior"])
    np.testing.assert_allclose(exact, first.weights["exact"])
    np.testing.assert_allclose(mean, other.weights["mean"])
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_heads_are_drawn_as_their_mean():
    of_heads = alignment("second layer", heads=(4, 2))
    ((title, drawn),) = panels_of(draw_alignments({"": [of_heads]}, None))
    assert title == "second layer"
    np.testing.assert_allclose(drawn, of_heads.weights["second layer"].mean(axis=(0, 1)))


def test_every_word_has_its_image(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype="uint8")
    seen = Alignment("", ["red", "dog"], {"weights": np.eye(2)}, boxes=[[0, 0, 1, 1], [0, 0, 0.5, 1]])
    seen.image = f"data:image/png;base64,{base64.b64encode(tf.io.encode_png(pixels).numpy()).decode()}"
    asked = []
    monkeypatch.setattr(keras_vattn.plots, "image_attention", lambda *given, path: asked.append((given, path)))
    draw_on_images([seen], "x.png")
    (((images, weights, boxes, titles), path),) = asked
    for image in images:
        np.testing.assert_array_equal(image, pixels)
    np.testing.assert_array_equal(weights, np.eye(2))
    assert (boxes, titles, path) == (2 * [seen.boxes], ["weights: red", "weights: dog"], "x.png")


def test_a_picture_after_every_second_epoch(tmp_path):
    asked = []
    application = types.SimpleNamespace(attention=lambda run, part: asked.append(part) or [alignment("")] * 9)
    options = types.SimpleNamespace(fit=FitOptions(picture_every=2))
    folder = RunFolder.open(tmp_path / "run", {})
    run = types.SimpleNamespace(application=application, options=options, folder=folder, data={"valid": "part"})
    callback = AttentionPictures(run)
    for epoch in range(5):
        callback.on_epoch_end(epoch)
    assert sorted(path.name for path in (tmp_path / "run/epochs").iterdir()) == ["0002.png", "0004.png"]
    assert asked == ["part", "part"]


def test_a_program_without_attention_has_none_to_draw(toy, tmp_path):
    toy.fails("--picture-every: this program has no attention", *toy.train(tmp_path / "run", picture_every=1))


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(CASES.keys() - {TOY, "finetuning"}), indirect=True)
def test_pictures_leave_the_training_as_it_is(case, run_of, tmp_path, monkeypatch):
    """Every program that attends draws each epoch, and its weights are those of a run that draws nothing."""
    expected = read_arrays(run_of(case).path / "weights.npz")
    # Not before: that run is for other tests too.
    monkeypatch.setattr(TrainingRun, "finish", lambda run: None)
    case.succeeds(*case.train(tmp_path / "run", picture_every=1, export=False))
    epochs = case.options["epochs"]
    pictures = [path.name for path in sorted((tmp_path / "run/epochs").iterdir())]
    assert pictures == [f"{epoch:04d}.png" for epoch in range(1, epochs + 1)]
    found = read_arrays(tmp_path / "run/weights.npz")
    # The record has the seconds of an epoch.
    for name in expected.keys() - {"record"}:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
