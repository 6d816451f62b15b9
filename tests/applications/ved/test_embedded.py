import collections
import hashlib
import os
import subprocess
import sys

import pytest

from applications.text import metrics
from applications.text.readers import split_by_group
from applications.ved import embedded


@pytest.fixture(scope="module")
def pairs():
    return embedded.embedded_pairs()


@pytest.fixture(scope="module")
def questions(pairs):
    return metrics.group_references(pairs.sources, pairs.targets)


def words(sentence):
    return sentence.lower().split()


def test_size(pairs, questions):
    assert 2000 <= len(questions) <= 5000
    assert 700 <= len({word for row in pairs.sources + pairs.targets for word in words(row)}) <= 2500
    assert all(6 <= len(words(row)) <= embedded.MAX_STATEMENT_TOKENS for row in questions)
    assert max(len(words(row)) for row in pairs.targets) <= 16


def test_several_questions_begin_differently(questions):
    for asked in questions.values():
        assert len(asked) == 5
        assert len({words(question)[0] for question in asked}) >= 4


def test_questions_need_the_statement_and_keep_its_answer(pairs):
    shells = {word for templates in embedded._QUESTIONS.values() for row in templates for word in words(row)}
    for source, target in zip(pairs.sources, pairs.targets, strict=True):
        copied = [word for word in words(target) if word not in shells]
        assert set(copied) <= set(words(source))
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
    assert metrics.bleu(others, lists).score < 25.0


@pytest.mark.slow
def test_same_data_whatever_the_hash_seed(pairs):
    program = (
        "import hashlib\nfrom applications.ved.embedded import embedded_pairs\n"
        "pairs = embedded_pairs()\n"
        "print(hashlib.sha256(repr((pairs.sources, pairs.targets)).encode()).hexdigest())"
    )
    other_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    digest = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": other_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    assert digest == hashlib.sha256(repr((pairs.sources, pairs.targets)).encode()).hexdigest()


def test_facts_are_those_of_the_cldr():
    facts = set(embedded._names() + embedded._currencies() + embedded._scripts() + embedded._weeks())
    assert ("name", "Germany", "French", "Allemagne") in facts
    assert ("currency", "Germany", "1999", "Euro") in facts
    assert ("script", "Serbia", "Serbian", "Cyrillic") in facts
    assert ("week", "United States", "first day of the week", "Sunday") in facts
    assert "CLDR" in embedded.cldr_version()
