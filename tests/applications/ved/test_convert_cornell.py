"""Tests the conversion of the Cornell movie dialogues, with small files in the original format."""

import pytest

from applications.text.readers import read_table
from tools.convert_cornell import main

LINES = """L195 +++$+++ u2 +++$+++ m0 +++$+++ CAMERON +++$+++ Well, I thought we'd start with   pronunciation.
L194 +++$+++ u0 +++$+++ m0 +++$+++ BIANCA +++$+++ Can we make this quick? "Caf\xe9" \x96 now.
L196 +++$+++ u0 +++$+++ m0 +++$+++ BIANCA +++$+++ Not the hacking.
L300 +++$+++ u5 +++$+++ m1 +++$+++ A +++$+++ Yes.
L301 +++$+++ u6 +++$+++ m1 +++$+++ B +++$+++
"""
CONVERSATIONS = """u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L194', 'L195', 'L196']
u5 +++$+++ u6 +++$+++ m1 +++$+++ ['L300', 'L301']
"""


@pytest.fixture
def corpus(tmp_path):
    for name, text in (("movie_lines", LINES), ("movie_conversations", CONVERSATIONS)):
        (tmp_path / f"{name}.txt").write_bytes(text.encode("iso-8859-1"))
    return tmp_path


def test_pairs_of_the_lines_of_a_conversation(corpus, capsys):
    main([str(corpus), "--out", str(corpus / "pairs.tsv")])
    assert "2 pairs; 1 skipped, because a line is empty" in capsys.readouterr().out
    pairs = read_table(corpus / "pairs.tsv", "line", "reply", "movie_id")
    assert pairs.sources == [
        'Can we make this quick? "Caf\xe9" \x96 now.',
        "Well, I thought we'd start with pronunciation.",
    ]
    assert pairs.targets == ["Well, I thought we'd start with pronunciation.", "Not the hacking."]
    assert pairs.groups == ["m0", "m0"]


def test_files_of_another_format(corpus):
    (corpus / "movie_lines.txt").write_text("L1 +++$+++ u0\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="line 1: expected 5 fields"):
        main([str(corpus), "--out", str(corpus / "pairs.tsv")])
    assert not (corpus / "pairs.tsv").exists()
