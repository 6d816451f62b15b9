"""The official normal form and metric, and the vocabulary of answers."""

import itertools

import numpy as np
import pytest

from applications.common.errors import InputError
from applications.vqa.answers import (
    Votes,
    answer_vocabulary,
    normalize_answer,
    vqa_accuracy,
    vqa_accuracy_of_others,
)


@pytest.mark.parametrize(
    "given, expected",
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
def test_the_normal_form(given, expected):
    assert normalize_answer(given) == expected


def test_a_normal_form_stays_itself():
    for answer in ("don't know", "2", "black and white", "o'clock"):
        assert normalize_answer(answer) == answer


def test_the_metric_of_others_is_the_mean_over_nine_of_ten():
    for count in range(11):
        votes = ["yes"] * count + ["no"] * (10 - count)
        subsets = [vqa_accuracy("yes", list(nine)) for nine in itertools.combinations(votes, 9)]
        assert vqa_accuracy_of_others("yes", votes) == pytest.approx(np.mean(subsets))
        assert vqa_accuracy("yes", votes) == pytest.approx(min(count / 3, 1))


def test_the_vocabulary():
    """By count, then in alphabetical order; rare ones and empty ones are none."""
    given = ["b", "a", "b", "c", "a", "d", "", "", "c"]
    assert answer_vocabulary(given, 2, 9) == ["a", "b", "c"]
    assert answer_vocabulary(given, 2, 2) == ["a", "b"]
    with pytest.raises(InputError, match="--min-answer-count: fewer than 2 answers are given 3 times"):
        answer_vocabulary(given, 3, 9)


def test_votes():
    votes = Votes.of([["a", "b", "a"], ["z"], ["b", "z"]], ["a", "b", "c"])
    np.testing.assert_array_equal(votes.of_answers(slice(None)), [[2, 1, 0], [0, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(votes.of_answers(slice(2, 9)), [[0, 1, 0]])
    np.testing.assert_array_equal(votes.usable, [True, False, True])
