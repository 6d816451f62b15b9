"""Word detectors: what they learn, where they find it, and their numbers."""

import dataclasses
import itertools
import re

import keras
import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
from files import fails
from word_cases import CELLS, COLORS, OPTIONS, PIXELS, PLACES, squares, trained

from applications.vision import word_detectors


def test_words_are_learned_and_found_where_they_are(once):
    (detectors, vocabulary), _ = once
    assert vocabulary == sorted(COLORS, key=lambda word: (-sum(word in x for x in PLACES), word))
    others, places = squares(60, seed=1)
    log_odds = keras.ops.convert_to_numpy(detectors.cells(others.astype(np.float32)))
    best = log_odds.reshape(len(others), CELLS**2, -1).argmax(axis=1)
    found = [
        divmod(int(best[row, vocabulary.index(word)]), CELLS) == cell
        for row, cells in enumerate(places)
        for word, cell in cells.items()
    ]
    assert np.mean(found) > 0.9


def test_training_says_how_it_goes_and_repeats_itself(once):
    ((first, _), lines), ((again, _), repeated) = once, trained()
    assert [line.partition(", loss ")[0] for line in lines[:-1]] == [f"words: epoch {n}/10" for n in range(1, 11)]
    said = re.fullmatch(
        r"words: average precision (.*), (.*) by chance, of 5 of 5 words on 15 images that are held out", lines[-1]
    )
    # Two of five colours are in an image; a random order of few images is better than their share.
    assert float(said[1]) > 0.95 and 0.4 < float(said[2]) < 0.6
    assert repeated == lines
    same, repeated = (each.network.get_weights() for each in (first, again))
    assert all(np.array_equal(x, y) for x, y in zip(same, repeated, strict=True))


def test_the_first_weights_say_how_frequent_words_are():
    shares = np.array([0.02, 0.4, 1.0, 0.0], np.float32)
    models = word_detectors.build(OPTIONS, shares)
    cells = models.cells.layers[-1]
    cells.kernel.assign(cells.kernel * 0.0)
    found = keras.ops.sigmoid(models.training(PIXELS[:1].astype(np.float32)))[0]
    np.testing.assert_allclose(found, shares, atol=1e-5)


@pytest.mark.parametrize(
    "side, cells, expected", [(24, 3, 3), (25, 3, 3), (40, 3, 5), (6, 3, 3), (30, 4, 7), (13, 2, 3)]
)
def test_the_last_map_has_the_cells_of_the_grid_at_least(side, cells, expected):
    options = dataclasses.replace(OPTIONS, image_size=side, grid=cells)
    network = word_detectors.build(options, np.array([0.5])).network
    assert network.output_shape == (None, expected, expected, 12)


def test_words_of_few_images_or_of_most_are_not_learned():
    counts = {"most": 19, "many": 18, ".": 9, "b": 10, "half": 10, "a": 10, "five": 5, "four": 4}
    words = [[word for word, count in counts.items() for _ in range(2) if row < count] for row in range(20)]
    assert word_detectors.vocabulary_of(words) == ["many", "a", "b", "half", "five"]
    fails(
        lambda: word_detectors.train_detectors(PIXELS[:8], [["a", "b"]] * 8, OPTIONS),
        "--network: words needs a word that is said about 5 images at least, and not about nearly all. ",
        "Received: 2 words about 8 images",
    )


def test_a_handful_of_images_is_enough_to_train(capsys):
    words = [["a"], ["a"], ["a"], ["a"], ["a"], []]
    assert word_detectors.train_detectors(PIXELS[:6], words, OPTIONS)[1] == ["a"]
    assert capsys.readouterr().out.endswith(" of 1 of 1 words on 1 images that are held out\n")


def test_the_noisy_or_is_that_of_the_probabilities():
    logits = np.random.default_rng(0).normal(-2.0, 3.0, (4, 3, 3, 5))
    present = 1.0 - np.prod(1.0 / (1.0 + np.exp(logits)), axis=(1, 2))
    expected = np.log(present) - np.log1p(-present)
    found = word_detectors.noisy_or(tf.constant(logits, tf.float32))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-4)


def test_the_noisy_or_holds_out_large_log_odds():
    logits = tf.constant([[[[-1e4, 1e4, -90.0, 0.0, -14.9, -15.1]]], [[[1e4, -1e4, 80.0, 20.0, -15.1, -14.9]]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        found = word_detectors.noisy_or(tf.tile(logits, (1, 2, 2, 1)))
    # Four cells of equal log-odds: four times the odds where they are small, and the sum where they are large.
    small, large = np.log(4.0), 4.0
    expected = [[-1e4 + small, 1e4 * large, -90 + small, np.log(15.0), -14.9 + small, -15.1 + small]]
    np.testing.assert_allclose(found[:1], expected, rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(found, logits)[0, 0, 0], [1, 4, 1, 4 * 8 / 15, 1, 1], rtol=1e-5)


def test_average_precision_by_chance():
    orders = [np.isin(np.arange(5), true) for true in itertools.combinations(range(5), 2)]
    mean = np.mean([sklearn.metrics.average_precision_score(truth, -np.arange(5)) for truth in orders])
    assert word_detectors.random_precision(2, 5) == pytest.approx(mean)
    assert word_detectors.random_precision(1, 1) == 1.0
