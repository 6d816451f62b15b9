"""What the file of statements and questions that ships holds."""

import collections
import hashlib
import json

import pytest

from applications.text import metrics
from applications.text.readers import split_by_group
from applications.ved.data import embedded_pairs
from applications.ved.report import judged


@pytest.fixture(scope="module")
def pairs():
    return embedded_pairs()


@pytest.fixture(scope="module")
def questions(pairs):
    return metrics.group_references(pairs.sources, pairs.targets)


def words(sentence):
    return sentence.lower().split()


def test_the_pairs_are_those_that_published_runs_had(pairs):
    digest = hashlib.sha256(json.dumps([list(pairs.sources), list(pairs.targets)]).encode()).hexdigest()
    assert digest == "7a67cc74c3df8a8215b9b0d93dc82d0d891032ca18ece1f1dfa295f010c1d46e"


def test_size(pairs, questions):
    assert 2000 <= len(questions) <= 5000
    assert 700 <= len({word for row in (*pairs.sources, *pairs.targets) for word in words(row)}) <= 2500
    assert all(6 <= len(words(row)) <= 16 for row in questions)
    assert max(len(words(row)) for row in pairs.targets) <= 16


def test_several_questions_begin_differently(questions):
    for asked in questions.values():
        assert len(asked) == 5
        assert len({words(question)[0] for question in asked}) >= 4


def test_questions_need_the_statement_and_keep_its_answer(pairs):
    assert all(
        set(words(statement)) - set(words(question)) for statement, question in zip(pairs.sources, pairs.targets)
    )
    asked = metrics.group_references(pairs.targets, pairs.sources)
    # One question fits a few statements at most (a language with two scripts), so it carries what it asks about.
    assert max(map(len, asked.values())) <= 4
    assert sum(map(len, asked.values())) < 1.05 * len(asked)


def test_held_out_questions_use_words_that_training_has(pairs):
    train, held_out = split_by_group(pairs, 0.1, seed=0)
    assert not set(train.sources) & set(held_out.sources)
    statements = collections.Counter()
    for asked in metrics.group_references(train.sources, train.targets).values():
        statements.update({word for question in asked for word in words(question)})
    rare = [word for row in held_out.targets for word in words(row) if statements[word] < 3]
    assert not rare


def test_questions_of_another_statement_do_not_fit(questions):
    lists = list(questions.values())
    others = [lists[(index * 7 + 11) % len(lists)][index % 5] for index in range(len(lists))]
    assert metrics.bleu([asked[0] for asked in lists], lists).score == pytest.approx(100.0)
    assert metrics.bleu(others, lists).score < 40.0
    assert judged(others, lists, lists) == {"map": 1, "draws": 13525, "num_draws": 13525, "different": 5.0}
