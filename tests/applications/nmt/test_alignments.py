"""Links of words: their text, their weights, and their quality."""

import numpy as np
import pytest

from applications.nmt import alignments
from applications.nmt.alignments import Links

# The example of Och and Ney: sure {0-0, 1-1}, possible also 2-1; predicted {0-0, 2-1, 2-2}.
GOLD = [Links({(0, 0), (1, 1)}, {(2, 1)})]
PREDICTED = [Links({(0, 0), (2, 1), (2, 2)})]


def random_links(generator, num_pairs, chance=0.3):
    return [
        Links(frozenset((int(i), int(j)) for i, j in np.argwhere(generator.random((5, 6)) < chance)))
        for _ in range(num_pairs)
    ]


def test_links_of_text():
    assert alignments.links_of_text("12-7 0-0 1p2 0-0") == Links({(12, 7), (0, 0)}, {(1, 2)})
    assert alignments.links_of_text("") == Links(frozenset())


def test_merge_by_hand():
    weights = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]]
    merged = alignments.merge_to_words(weights, [0, 0, 1, 2], [0, 0, 1])
    np.testing.assert_allclose(merged, [[0.65, 0.15, 0.2], [0.0, 0.25, 0.75]])
    np.testing.assert_allclose(alignments.merge_to_words(weights, range(4), range(3)), weights)


def test_merge_with_words_without_a_piece():
    weights = [[0.5, 0.3, 0.2], [0.0, 0.0, 1.0], [0.2, 0.2, 0.6]]
    merged = alignments.merge_to_words(weights, [0, 0, 2], [1, 1, 3])
    np.testing.assert_allclose(merged, [[0, 0, 0], [0.4, 0, 0.6], [0, 0, 0], [0.4, 0, 0.6]])
    assert alignments.merge_to_words(np.zeros((0, 2)), [0, 1], []).shape == (0, 2)


def test_links_of_the_largest_weight():
    weights = np.array([[0.1, 0.7, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0]])
    assert alignments.links_of(weights) == Links({(1, 0), (0, 1)})
    assert alignments.links_of(np.zeros((2, 0))) == Links(frozenset())


def test_scores_by_hand():
    scores = alignments.alignment_scores(PREDICTED, GOLD)
    # |A| = 3, |S| = 2, |A & S| = 1, |A & P| = 2.
    f1 = 2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2)
    assert scores == pytest.approx({"precision": 2 / 3, "recall": 1 / 2, "f1": f1, "aer": 1 - 3 / 5})
    gold = [*GOLD, Links({(0, 0)}), Links(frozenset())]
    predicted = [*PREDICTED, Links({(0, 0)}), Links({(1, 1)})]
    scores = alignments.alignment_scores(predicted, gold)
    f1 = 2 * 0.6 * (2 / 3) / (0.6 + 2 / 3)
    assert scores == pytest.approx({"precision": 3 / 5, "recall": 2 / 3, "f1": f1, "aer": 1 - 5 / 8})


def test_scores_at_the_ends():
    generator = np.random.default_rng(0)
    gold = random_links(generator, 4)
    perfect = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "aer": 0.0}
    assert alignments.alignment_scores(gold, gold) == perfect
    nothing = [Links(frozenset())] * 4
    assert alignments.alignment_scores(nothing, gold) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "aer": 1.0}
    # Possible links neither cost nor earn recall.
    assert alignments.alignment_scores([Links({(0, 0), (1, 1), (2, 1)})], GOLD) == perfect
    # With sure links alone the error rate is 1 - F1.
    scores = alignments.alignment_scores(random_links(generator, 4), gold)
    assert scores["aer"] == pytest.approx(1.0 - scores["f1"])
