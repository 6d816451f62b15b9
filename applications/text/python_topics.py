"""Real English that comes with every Python: the sentences of its documentation's topics."""

import platform
import re

# A sentence ends before a capital letter, a quotation or a bracket; "e.g." and "i.e." end none.
_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<=[.!?])\s+(?=[\"'(A-Z])")
_HEADING = re.compile(r"^([*=\-~^\"])\1{2,}$")
# Signs of grammar, prompts, assignments and tables, which are no prose.
_CODE = re.compile(r"::=|>>>|\s=\s|---|\|\s|^\s*(#|@)|;\s*$")
# Names and operators in a sentence, which as tokens of their own are most of it.
_SYMBOLS = re.compile(r"[_=\[\]{}\\<>%@|;^+/~`$&]|\(\)|''|\.\.\.")
_MARKUP = re.compile(r'["*]')
MIN_WORDS, MAX_WORDS = 4, 40


def topics():
    """Return a dictionary from each topic to its sentences, without sentences of earlier topics.

    They depend on the version of Python, which a report names.
    """
    import pydoc_data.topics

    seen, sentences_of = set(), {}
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
                and key not in seen
            ):
                seen.add(key)
                sentences.append(sentence)
        if sentences:
            sentences_of[name] = sentences
    return sentences_of


def version():
    """Return the source of the sentences."""
    return f"pydoc_data of Python {platform.python_version()}"


def _paragraphs(text):
    """Yield the paragraphs of prose, each a line."""
    block = []
    for line in [*text.split("\n"), ""]:
        if line.strip() and not _HEADING.match(line):
            block.append(line)
            continue
        if _HEADING.match(line):
            # A heading underlines the line before it.
            block = block[:-1]
        if block and not any(_CODE.search(part) for part in block):
            yield re.sub(r"^(\* |\d+\. |\[\d+\] )", "", " ".join(part.strip() for part in block))
        block = []
