"""Tests the conversion of DUC documents to the layout of applications.vrae."""

import pytest

from applications.vrae.documents import read_topics
from tools import convert_duc

SGML = """<DOC>
<DOCNO> APW-1 </DOCNO>
<HEADLINE> A headline is left out. </HEADLINE>
<TEXT>
<P>The dog has seen the ball. It was a red &amp; round one.
"Fine," it said.</P>
<P>Mr. Smith has bought 3.5 houses.</P>
</TEXT>
</DOC>
"""


def test_duc(tmp_path):
    """Topics are folders of SGML documents; names of references start with the topic name without its last letter."""
    for name in ("b", "a"):
        path = tmp_path / "docs" / "D0701A" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SGML if name == "a" else "<DOC><TEXT>And a second document.</TEXT></DOC>")
    # File managers write .DS_Store files, which are not documents.
    (tmp_path / "docs" / "D0701A" / ".DS_Store").write_bytes(bytes(range(256)))
    (tmp_path / "docs" / ".git").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "D0701.M.250.A.1").write_text("The dog has seen it.\nAll of it.")
    (tmp_path / "models" / "D0702.M.250.A.1").write_text("Another topic's.")
    assert convert_duc.convert(tmp_path / "docs", tmp_path / "models", tmp_path / "out") == ["D0701A"]
    (topic,) = read_topics(tmp_path / "out" / "topics", tmp_path / "out" / "references")
    assert topic.sentences == [
        "The dog has seen the ball.",
        "It was a red & round one.",
        '"Fine," it said.',
        "Mr. Smith has bought 3.5 houses.",
        "And a second document.",
    ]
    assert topic.references == ["The dog has seen it. All of it."]


def test_folders_without_documents(tmp_path):
    with pytest.raises(SystemExit, match="expected a folder of documents for each topic"):
        convert_duc.convert(tmp_path, None, tmp_path / "out")
    (tmp_path / "D0701A").mkdir()
    with pytest.raises(SystemExit, match="D0701A: expected at least one sentence"):
        convert_duc.convert(tmp_path, None, tmp_path / "out")
    assert not (tmp_path / "out").exists()
