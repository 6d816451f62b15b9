"""Tests the predictions of the exported module, and that a seed reproduces its draws."""

import numpy as np
import pytest
import tensorflow as tf
from image_cases import colored_images
from vqa_cases import APPLICATION, run_of

from applications.common.errors import InputError
from applications.vqa.options import PredictVqa
from applications.vqa.serve import Answerer, answer_lines

QUESTIONS = tf.constant(["what color is it ?", "is it red ?"])


def encoded(*rows):
    images = colored_images(20)
    return tf.stack([tf.io.encode_png(images[row]) for row in rows])


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    return Answerer(run_of(tmp_path_factory.mktemp("run"), model="variational_enum"))


@pytest.mark.slow
def test_draws(answerer):
    """`sample` returns the requested number of draws. A seed reproduces them. Their mean determines the answer."""
    images = encoded(3, 17)
    # With four regions, a few draws are often equal, so use 20.
    first, repeated, other = (answerer.sample(images, QUESTIONS, 20, seed) for seed in (1, 1, 2))
    assert first["draws"].shape == (2, 20) and answerer.sample(images, QUESTIONS, 2, 1)["draws"].shape == (2, 2)
    np.testing.assert_array_equal(first["probabilities"], repeated["probabilities"])
    assert np.any(first["probabilities"] != other["probabilities"])
    assert (first["mutual_information"].numpy() >= 0).all() and first["mutual_information"].numpy().max() > 1e-4
    single = answerer.sample(images, QUESTIONS, 1, 1)
    np.testing.assert_allclose(single["mutual_information"], 0.0, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_samples must be positive"):
        answerer.sample(images, QUESTIONS, 0, 1)


def test_a_model_that_draws_nothing(tmp_path):
    answerer = Answerer(run_of(tmp_path, model="soft", dropout=0.0))
    assert answerer.names == ("predict", "predict_features")


@pytest.mark.slow
def test_lines_of_ids_and_files(tmp_path):
    run = run_of(tmp_path, model="soft")
    (tmp_path / "mine.png").write_bytes(encoded(4)[0].numpy())
    (tmp_path / "lines").write_text(f"9\tis it red ?\n{tmp_path / 'mine.png'}\twhat color is it ?\n")
    answers = list(APPLICATION.generate(run, PredictVqa("", str(tmp_path / "lines"))))
    assert answers == list(answer_lines(Answerer(run).predict(encoded(9, 4), QUESTIONS[::-1])))
    (tmp_path / "lines").write_text("9\tis it red ?\nis it red ?\n")
    with pytest.raises(InputError, match=r"lines:2: expected an image, a tab and a question. Received: 'is it red"):
        list(APPLICATION.generate(run, PredictVqa("", str(tmp_path / "lines"))))
