"""Tests the grammar of the built-in sentences and its parser."""

import pytest

from applications.vrae import grammar


def test_every_sentence_is_parsed():
    sentences = grammar.sentences(73_728)
    assert len(set(sentences)) == len(sentences)
    slots = [grammar.parse(sentence) for sentence in sentences]
    assert [" ".join(filter(None, words.values())) for words in slots] == sentences
    assert {len(sentence.split()) for sentence in sentences} == {5, 6, 7, 8}


def test_slots():
    assert grammar.parse("the children feed two goats at noon") == {
        "determiner": "the",
        "adjective": "",
        "subject": "children",
        "verb": "feed",
        "object_determiner": "two",
        "object": "goats",
        "time": "at noon",
    }


@pytest.mark.parametrize(
    "sentence",
    [
        "a farmers feed two goats",
        "the farmers feeds two goats",
        "the farmer feeds two goat",
        "the goat feeds two farmers",
        "farmer feeds two goats",
        "the farmer feeds two goats at noon today",
        "",
    ],
)
def test_ungrammatical_sentences(sentence):
    assert grammar.parse(sentence) is None
