"""Tests the official answer normalisation and metric, and the answer vocabulary."""

import numpy as np
import pytest

from applications.common.errors import InputError
from applications.vqa.answers import answer_vocabulary, count_votes, normalize_answer, vqa_accuracy


@pytest.mark.parametrize(
    "answer, expected",
    [
        ("A Dog.", "dog"),
        ("the  red\tone", "red 1"),
        ("none", "0"),
        ("ten", "10"),
        ("1,000", "1000"),
        ("3.5", "3.5"),
        ("dont know", "don't know"),
        ("yall'd've", "y'all'd've"),
        ("somebody'd", "somebodyd"),
        ("shes", "shes"),
        ("black-and-white", "black and white"),
        ("black - white", "black white"),
        ("yes!", "yes"),
        ("is it? yes", "is it yes"),
        ("U.S.A.", "usa"),
        ("the", ""),
        ("'tis", "'tis"),
    ],
)
def test_the_normal_form(answer, expected):
    assert normalize_answer(answer) == expected


@pytest.mark.parametrize("count, accuracy", [(0, 0.0), (1, 1 / 3), (3, 1.0), (10, 1.0)])
def test_three_people_make_an_answer_right(count, accuracy):
    assert vqa_accuracy("yes", ["yes"] * count + ["no"] * (10 - count)) == accuracy


def test_the_vocabulary():
    """Answers are sorted by count, then alphabetically; rare and empty answers are dropped."""
    most_common = ["b", "a", "b", "c", "a", "d", "", "", "c"]
    assert answer_vocabulary(most_common, 2, 9) == ["a", "b", "c"]
    assert answer_vocabulary(most_common, 2, 2) == ["a", "b"]
    with pytest.raises(InputError, match="--min-answer-count: expected 2 or more answers with at least 3 training"):
        answer_vocabulary(most_common, 3, 9)


def test_votes():
    votes = count_votes([["a", "b c", "a"], ["z"], ["b c", "z"]], ["a", "b c", "c"])
    np.testing.assert_array_equal(votes.toarray(), [[2, 1, 0], [0, 0, 0], [0, 1, 0]])
