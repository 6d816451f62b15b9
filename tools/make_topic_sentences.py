"""Writes the English prose that ships with the programs: sentences from Python's documentation, grouped by topic.

    python -m tools.make_topic_sentences applications/text/python_topics.tsv.gz

The table has the columns topic and sentence. The shipped file was written with Python 3.11.7; the documentation of
another version contains different sentences.
"""

import gzip
import pathlib
import pydoc_data.topics
import re
import sys

# Full stops in "e.g.", "i.e." and "cf." do not end a sentence.
_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<=[.!?])\s+(?=[\"'(A-Z])")
_HEADING = re.compile(r"^([*=\-~^\"])\1{2,}$")
# Signs of code: grammar rules, prompts, assignments and tables. A paragraph with one of these signs is skipped.
_CODE = re.compile(r"::=|>>>|\s=\s|---|\|\s|^\s*(#|@)|;\s*$")
# A sentence with one of these characters is skipped.
_SYMBOLS = re.compile(r"[_=\[\]{}\\<>%@|;^+/~`$&]|\(\)|''|\.\.\.")
_MARKUP = re.compile(r'["*]')
MIN_WORDS, MAX_WORDS = 4, 40


def topics():
    """Return a dictionary that maps each topic to its sentences, in order and without repetitions."""
    previous, sentences_by_topic = set(), {}
    for name, text in pydoc_data.topics.topics.items():
        sentences = []
        for sentence in (sentence for block in _paragraphs(text) for sentence in _END.split(block)):
            sentence = _MARKUP.sub("", sentence)
            key = sentence.lower()
            if (
                sentence[:1].isupper()
                and not _SYMBOLS.search(sentence)
                and sentence.endswith(".")
                and MIN_WORDS <= len(sentence.split()) <= MAX_WORDS
                and key not in previous
            ):
                previous.add(key)
                sentences.append(sentence)
        if sentences:
            sentences_by_topic[name] = sentences
    return sentences_by_topic


def _paragraphs(text):
    """Yield each paragraph of prose as one line. Skip titles, and paragraphs that contain code."""
    block = []
    for line in [*text.split("\n"), ""]:
        if line.strip() and not _HEADING.match(line):
            block.append(line)
            continue
        if _HEADING.match(line):
            # The line before is underlined, so it is a title.
            block = block[:-1]
        if block and not any(_CODE.search(part) for part in block):
            yield re.sub(r"^(\* |\d+\. |\[\d+\] )", "", " ".join(part.strip() for part in block))
        block = []


if __name__ == "__main__":
    rows = [f"{name}\t{sentence}\n" for name, sentences in topics().items() for sentence in sentences]
    # mtime=0 makes the file reproducible.
    pathlib.Path(sys.argv[1]).write_bytes(gzip.compress("".join(["topic\tsentence\n", *rows]).encode(), mtime=0))
