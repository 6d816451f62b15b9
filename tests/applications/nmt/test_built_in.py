"""Tests the built-in files of pairs, and the grammar that generates one of these files."""

import gzip
import hashlib
import json

import pytest
from application_cases import changed

from applications.nmt.data import built_in_pairs, read
from applications.nmt.options import Options
from tools import make_nmt_sentences

DIGESTS = {
    "sentences": "e6981c5f3f1b52f8c301a201b89b550b486bccb9a5a572c49db5eab2724e290d",
    "amounts": "7c47c37f53583b801545ceff77c41dab59866587b573ebe272e4953970dc2847",
}
# Words that may have no translation.
FUNCTION_WORDS = {"und", "hat", "ist", ","}, {"a", "does", "has"}


@pytest.mark.parametrize("name", DIGESTS)
def test_the_pairs_match_the_published_runs(name):
    pairs = built_in_pairs(name)
    plain = [[pair.source, pair.target, sorted(pair.links.sure), sorted(pair.links.possible)] for pair in pairs]
    assert hashlib.sha256(json.dumps(plain).encode()).hexdigest() == DIGESTS[name]
    assert len({pair.source.lower() for pair in pairs}) == len(pairs) == 8000


def test_the_grammar_writes_the_sentences(tmp_path):
    path = tmp_path / "sentences.tsv.gz"
    make_nmt_sentences.main(path)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    shipped = [(pair.source, pair.target) for pair in built_in_pairs("sentences")]
    assert [tuple(line.split("\t")[:2]) for line in lines[1:]] == shipped


@pytest.mark.parametrize("name", DIGESTS)
def test_links_are_in_range_and_leave_out_no_word(name):
    for pair in built_in_pairs(name):
        for side, words in enumerate((pair.source.lower().split(), pair.target.lower().split())):
            assert {link[side] for link in pair.links.possible} == set(range(len(words))), pair
            unsure = set(range(len(words))) - {link[side] for link in pair.links.sure}
            assert {words[position] for position in unsure} <= FUNCTION_WORDS[side], pair


@pytest.mark.parametrize("name", DIGESTS)
def test_the_parts_have_gold_alignments(name):
    parts = read(changed(Options(), built_in=name, max_train_pairs=100, max_valid_pairs=50))
    assert {part: len(pairs.links) for part, pairs in parts.items()} == {"train": 100, "valid": 50, "test": 800}
