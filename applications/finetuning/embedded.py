"""Read English sentences from docstrings and comments of Python's standard library.

The task is to predict the topic of a sentence, for instance "email".
"""

import ast
import functools
import itertools
import pathlib
import re
import sysconfig

import numpy as np

from applications.text import python_topics

TOPICS = {
    "asyncio": ("asyncio",),
    "email": ("email",),
    "numbers": ("_pydecimal.py", "fractions.py", "numbers.py", "random.py", "statistics.py"),
}
# Which tenths of the docstrings each split contains.
TENTHS = {"train": range(3, 10), "valid": range(2, 3), "test": range(2)}
MIN_WORDS, MAX_WORDS = 6, 40
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_COMPLETE_SENTENCE = re.compile(r"[A-Z].*[.!?]")
_COMMENT = re.compile(r"\s*#+ ?(.*)")


def texts_of(path, comments):
    """Return the docstrings of a module, and optionally the comments, as lists of sentences."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, ValueError, OSError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    blocks = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    if comments:
        lines = (_COMMENT.fullmatch(line) for line in text.splitlines())
        groups = itertools.groupby(lines, key=lambda comment: comment is not None)
        blocks += [" ".join(comment[1] for comment in group) for is_comment, group in groups if is_comment]
    texts = ([x for x in _SENTENCE.split(" ".join(block.split())) if _is_prose(x)] for block in blocks)
    return list(filter(None, texts))


def _is_prose(sentence):
    return MIN_WORDS <= len(sentence.split()) <= MAX_WORDS and ">>>" not in sentence


def _modules():
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    paths = sorted((path.relative_to(folder), path) for path in folder.glob("**/*.py"))
    return [(module.parts[0], path) for module, path in paths if not _LEFT_OUT & set(module.parts)]


@functools.cache
def pretraining_sentences():
    """Return distinct sentences for pretraining, without validation and test sentences of the built-in task."""
    texts = [*python_topics.topics().values()]
    for _, path in _modules():
        texts += texts_of(path, comments=True)
    held_out = {sentence.lower() for sentence, _, tenth in labelled() if tenth not in TENTHS["train"]}
    return [text for text in dict.fromkeys(itertools.chain(*texts)) if text.lower() not in held_out]


@functools.cache
def labelled():
    """Return a list of (sentence, topic, tenth) with distinct sentences.

    `tenth` is a number from 0 to 9; `TENTHS` lists the tenths of each split. A validation or test sentence is left out
    if the Jaccard similarity of its words and the words of a training sentence is at least 3/4.
    """
    topics = {module: topic for topic, modules in TOPICS.items() for module in modules}
    texts = [(topics[name], text) for name, path in _modules() if name in topics for text in texts_of(path, False)]
    sentences = {}
    for number, row in enumerate(np.random.default_rng(0).permutation(len(texts))):
        topic, text = texts[row]
        for sentence in filter(_COMPLETE_SENTENCE.fullmatch, text):
            sentences.setdefault(sentence.lower(), (sentence, topic, 10 * number // len(texts)))
    in_training = [_words(sentence) for sentence, _, tenth in sentences.values() if tenth in TENTHS["train"]]
    is_known = lambda words: any(4 * len(words & x) >= 3 * len(words | x) for x in in_training)  # noqa: E731
    return [row for row in sentences.values() if row[2] in TENTHS["train"] or not is_known(_words(row[0]))]


def _words(sentence):
    return set(re.findall(r"[a-z_]+", sentence.lower()))
