"""The grammar of the built-in sentences: their links, their order and their declension."""

import itertools

import numpy as np
import pytest

from applications.nmt import grammar

# Determiners of the noun, endings of an adjective behind the first three and behind the last three.
MASCULINE = ("der dieser jeder ein mein unser", "e", "er")
FEMININE = ("die diese jede eine meine unsere", "e", "e")
NEUTER = ("das dieses jedes ein mein unser", "e", "es")
MASCULINE_OBJECT = ("den diesen jeden einen meinen unseren", "en", "en")
ADJECTIVES = "jung müd freundlich klug ruhig stark fröhlich alt neu klein groß schön rot blau grün schwarz"


@pytest.fixture(scope="module")
def pairs():
    """Lower-cased words of the source and of the target, sure and possible links."""
    return [(source.lower().split(), target.lower().split(), *links) for source, target, *links in grammar.pairs(8000)]


def before(pairs, noun):
    """Return the pairs of German words before an English noun, by their links."""
    preceding = set()
    for source, target, sure, _ in pairs:
        german = {column: source[row] for row, column in sure}
        for place in np.flatnonzero(np.array(target) == noun):
            preceding.add((german.get(place - 2), german[place - 1]))
    return preceding


def test_pairs_of_a_seed(pairs):
    assert grammar.pairs(50) == grammar.pairs(50) != grammar.pairs(50, seed=1)
    assert len({tuple(source) for source, *_ in pairs}) == len(pairs)


def test_links_leave_out_no_word_and_few_are_unsure(pairs):
    for source, target, sure, possible in pairs:
        assert {row for row, _ in possible} == set(range(len(source)))
        assert sorted(column for _, column in sure) == list(range(len(target)))
        assert {source[row] for row, _ in possible - sure} <= {"hat"} and sure <= possible


def test_order_differs(pairs):
    """The German verb is at the end, the English one before its object and its place."""
    for source, target, sure, _ in pairs:
        column = dict(sure)[len(source) - 1]
        assert source[-1].endswith(("n", "t")) and 2 <= column <= 5 and column < len(target) - 2
    monotone = [np.all(np.diff([column for _, column in sorted(sure)]) > 0) for _, _, sure, _ in pairs]
    assert not np.any(monotone)


@pytest.mark.parametrize(
    "noun, forms",
    [
        ("brother", MASCULINE),
        ("doctor", FEMININE),
        ("girl", NEUTER),
        ("chair", MASCULINE_OBJECT),
        ("clock", FEMININE),
        ("picture", NEUTER),
    ],
)
def test_declension(pairs, noun, forms):
    determiners, weak, strong = forms[0].split(), *forms[1:]
    assert set(determiners) <= {last for _, last in before(pairs, noun)}
    adjectives = {(first, last) for first, last in before(pairs, noun) if first in determiners}
    assert {first for first, _ in adjectives} == set(determiners)
    for first, last in adjectives:
        ending = weak if first in determiners[:3] else strong
        assert last.endswith(ending) and last.removesuffix(ending) in ADJECTIVES.split()


def test_declension_of_places_and_plurals(pairs):
    dative = {noun: {last for _, last in before(pairs, noun)} for noun in ("garden", "kitchen")}
    assert dative["garden"] == set(["dem", "diesem", "jedem", "einem", "meinem", "unserem"])
    assert dative["kitchen"] == set(["der", "dieser", "jeder", "einer", "meiner", "unserer"])
    numbers = {"zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"}
    assert all(last in numbers or last.endswith("e") for _, last in before(pairs, "chairs"))


def test_a_before_a_vowel(pairs):
    couples = {couple for _, target, *_ in pairs for couple in itertools.pairwise(target) if couple[0] in ("a", "an")}
    assert {(word, following[0] in "aeiou") for word, following in couples} == {("a", False), ("an", True)}
