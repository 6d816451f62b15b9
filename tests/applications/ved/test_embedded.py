"""Tests the built-in file of statements and questions."""

import hashlib
import json

import pytest

from applications.text import metrics
from applications.ved.data import embedded_pairs
from applications.ved.report import judged


@pytest.fixture(scope="module")
def pairs():
    return embedded_pairs()


@pytest.fixture(scope="module")
def questions(pairs):
    return metrics.group_references(pairs.sources, pairs.targets)


def test_the_pairs_match_the_published_runs(pairs):
    digest = hashlib.sha256(json.dumps([list(pairs.sources), list(pairs.targets)]).encode()).hexdigest()
    assert digest == "7a67cc74c3df8a8215b9b0d93dc82d0d891032ca18ece1f1dfa295f010c1d46e"


@pytest.mark.slow
def test_questions_of_another_statement_do_not_fit(questions):
    lists = list(questions.values())
    mismatched = [lists[(index * 7 + 11) % len(lists)][index % 5] for index in range(len(lists))]
    assert metrics.bleu_table([row[0] for row in lists], lists)[4].score == pytest.approx(100.0)
    assert metrics.bleu_table(mismatched, lists)[4].score < 40.0
    assert judged(mismatched, lists, lists) == {"map": 1, "draws": 13525, "num_draws": 13525, "different": 5.0}
