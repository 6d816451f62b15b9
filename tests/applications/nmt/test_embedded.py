"""What the file of pairs that ships holds."""

import collections
import hashlib
import json

import numpy as np
import pytest

from applications.nmt.alignments import Links
from applications.nmt.data import embedded_pairs

# Words that may lack a translation of their own.
FUNCTION_WORDS = {"und", "hat", "ist", ","}, {"a", "does", "has"}


@pytest.fixture(scope="module")
def pairs():
    return embedded_pairs()


def lowered(pair):
    return pair.source.lower().split(), pair.target.lower().split()


def is_monotone(links):
    return all((i - k) * (j - m) >= 0 for i, j in links.sure for k, m in links.sure)


def test_the_pairs_are_those_that_published_runs_had(pairs):
    plain = [[pair.source, pair.target, sorted(pair.links.sure), sorted(pair.links.possible)] for pair in pairs]
    digest = hashlib.sha256(json.dumps(plain).encode()).hexdigest()
    assert digest == "7c47c37f53583b801545ceff77c41dab59866587b573ebe272e4953970dc2847"


def test_size(pairs):
    assert len(pairs) == 8000
    assert len({pair.source.lower() for pair in pairs}) == len(pairs)
    assert len({pair.target for pair in pairs}) > 0.98 * len(pairs)
    lengths = [len(words) for pair in pairs for words in lowered(pair)]
    assert min(lengths) >= 4 and max(lengths) == 16
    assert min(lengths) <= 5 and 9.0 < np.mean(lengths) < 11.0


def test_vocabularies_are_small_and_their_words_recur(pairs):
    for side in (0, 1):
        counts = collections.Counter(word for pair in pairs for word in lowered(pair)[side])
        assert 200 <= len(counts) <= 400
        assert min(counts.values()) >= 10


def test_links_are_in_range_and_leave_out_no_word(pairs):
    for pair in pairs:
        for side, words in enumerate(lowered(pair)):
            assert {link[side] for link in pair.links.possible} == set(range(len(words))), pair
            unsure = set(range(len(words))) - {link[side] for link in pair.links.sure}
            assert {words[position] for position in unsure} <= FUNCTION_WORDS[side], pair


def test_words_are_linked_many_to_one_and_one_to_many(pairs):
    fans = [collections.Counter(), collections.Counter()]
    for pair in pairs:
        for side in (0, 1):
            fans[side].update(collections.Counter(link[side] for link in pair.links.sure).values())
    for fan in fans:
        assert sum(count for links, count in fan.items() if links > 1) > 1000


def test_order_differs(pairs):
    monotone = np.mean([is_monotone(pair.links) for pair in pairs])
    assert 0.01 < monotone < 0.6
    distances = [abs(i - j) for pair in pairs for i, j in pair.links.sure]
    assert np.mean(distances) > 1.5 and max(distances) >= 8


def test_a_word_is_linked_to_few_words(pairs):
    # An error in a rule would link words that are no translations of each other.
    partners = collections.defaultdict(collections.Counter)
    for pair in pairs:
        source, target = lowered(pair)
        for i, j in pair.links.sure:
            partners[target[j]][source[i]] += 1
    for word in ("thursday", "may", "spain", "vienna", "kilometers", "yesterday", "tomorrow", "house", "euros"):
        assert len(partners[word]) <= 2, partners[word]
    assert set(partners["past"]) == {"nach", "halb"}
    assert set(partners["four"]) == {"vier", "fünf"}
    assert set(partners["ago"]) == {"vor"}


def test_sentences_by_hand(pairs):
    found = collections.Counter()
    for pair in pairs:
        source, target = lowered(pair)
        if source[:2] == ["wann", "kommt"] and source[-2:] == ["an", "?"]:
            # Wann kommt der Zug in Rom an ? | When does the train arrive in Rome ?
            sure = {(0, 0), (1, 4), (6, 4), (2, 2), (3, 3), (4, 5), (5, 6), (7, 7)}
            assert pair.links == Links(sure, {(1, 1), (6, 1)})
            found["particle"] += 1
        if source[0] == "vor" and source[2] == "tagen" and source[3] in ("ist", "hat"):
            # Vor drei Tagen ist das Schiff ... | The ship ... three days ago .
            end = len(target)
            assert target[end - 3 :] == ["days", "ago", "."]
            assert {(0, end - 2), (1, end - 4), (2, end - 3), (4, 0), (5, 1)} <= pair.links.sure
            found["ago"] += 1
        if source[-3:] == ["verkauft", "worden", "."] and source[2] == "ist":
            # Das Buch ist gestern für acht Euro verkauft worden . | The book was sold for eight euros yesterday .
            end = len(source)
            assert target[2:5] == ["was", "sold", "for"]
            assert {(2, 2), (end - 2, 2), (end - 3, 3)} <= pair.links.sure
            found["passive"] += 1
    assert min(found[kind] for kind in ("particle", "ago", "passive")) >= 1, found
