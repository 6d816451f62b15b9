"""The exported module: images and features give the same answers, draws follow their seed."""

import numpy as np
import pytest
import tensorflow as tf
from files import fails
from image_cases import colored_images
from vqa_cases import APPLICATION, run_of

from applications.vision import codec, program
from applications.vqa.options import PredictVqa
from applications.vqa.serve import Answerer, answer_lines

QUESTIONS = tf.constant(["what color is it ?", "is it red ?"])


def encoded(*rows):
    images = colored_images(20)
    return tf.stack([tf.io.encode_png(images[row]) for row in rows])


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    return Answerer(run_of(tmp_path_factory.mktemp("run"), model="variational_enum"))


def test_images_and_their_features(answerer):
    assert answerer.names == ("predict", "sample", "predict_features", "sample_features")
    found = answerer.predict(encoded(3, 17), QUESTIONS)
    extractor = answerer._regions.value.extractor
    features = extractor(colored_images(20)[[3, 17]])
    boxes = np.broadcast_to(extractor.boxes, (2, 4, 4))
    # Features may stand in a wider array.
    wider = [np.concatenate([x, np.full((2, 3, x.shape[-1]), 9.0)], axis=1) for x in (features, boxes)]
    for given in ((features, boxes), wider):
        other = answerer.predict_features(*(tf.cast(x, tf.float32) for x in given), tf.constant([4, 4]), QUESTIONS)
        for name in found:
            if found[name].dtype == tf.string:
                np.testing.assert_array_equal(found[name], other[name])
            else:
                np.testing.assert_allclose(found[name], other[name], rtol=1e-4, atol=1e-6)
    probabilities = found["probabilities"].numpy()
    assert (np.diff(probabilities) <= 0).all() and (probabilities.sum(axis=1) <= 1 + 1e-5).all()
    lines = list(answer_lines(found))
    assert lines[0].split("\t")[0] == f"{found['answers'][0, 0].numpy().decode()} {probabilities[0, 0]:.3f}"


def test_draws(answerer):
    """As many as asked for, by their seed; their mean is what is answered."""
    images = encoded(3, 17)
    # Of four regions a few draws often hold the same ones.
    found, same, other = (answerer.sample(images, QUESTIONS, 20, seed) for seed in (1, 1, 2))
    assert found["draws"].shape == (2, 20) and answerer.sample(images, QUESTIONS, 2, 1)["draws"].shape == (2, 2)
    np.testing.assert_array_equal(found["probabilities"], same["probabilities"])
    assert np.any(found["probabilities"] != other["probabilities"])
    assert (found["mutual_information"].numpy() >= 0).all() and found["mutual_information"].numpy().max() > 1e-4
    one = answerer.sample(images, QUESTIONS, 1, 1)
    np.testing.assert_allclose(one["mutual_information"], 0.0, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_samples must be positive"):
        answerer.sample(images, QUESTIONS, 0, 1)


def test_a_model_that_draws_nothing(tmp_path):
    answerer = Answerer(run_of(tmp_path, model="soft", dropout=0.0))
    assert answerer.names == ("predict", "predict_features")


def test_lines_of_ids_and_files(tmp_path, monkeypatch):
    """Features are made of the images that are named, and of no other."""
    run = run_of(tmp_path, model="soft")
    (tmp_path / "mine.png").write_bytes(encoded(4)[0].numpy())
    (tmp_path / "lines").write_text(
        f"9\tis it red ?\n{tmp_path / 'mine.png'}\twhat color is it ?\n4\twhat color is it ?\n"
    )
    sizes, made = [], codec.extract
    for module in (codec, program):
        monkeypatch.setattr(
            module, "extract", lambda extractor, images: sizes.append(len(images)) or made(extractor, images)
        )
    run.codec.regions._known.clear()
    found = list(APPLICATION.generate(run, PredictVqa("", str(tmp_path / "lines"))))
    expected = Answerer(run).predict(encoded(9, 4), QUESTIONS[::-1])
    assert found[:2] == list(answer_lines(expected)) and found[1] == found[2]
    assert sizes == [1, 2]
    (tmp_path / "lines").write_text("9\tis it red ?\n99\tis it red ?\n")
    fails(
        lambda: list(APPLICATION.generate(run, PredictVqa("", str(tmp_path / "lines")))),
        "lines:2: expected the id of an image of ",
        "or a file. Received: '99'",
    )
