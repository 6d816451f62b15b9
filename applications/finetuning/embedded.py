"""Real English that comes with every Python: the docstrings and comments of its standard library.

The task: do the words of a sentence stand in their order? It is CoLA's in small, and no list of words answers it.
"""

import ast
import functools
import pathlib
import re
import sysconfig

import numpy as np

from applications.text import python_topics

# The task's sentences are docstrings of these; what is pretrained on is of all others.
PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "unittest", "xml")
LABELS = ("in order", "shuffled")
MIN_WORDS, MAX_WORDS = 6, 40
# Not of the language: other packages, and tests, whose strings and comments are no English.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_COMMENT = re.compile(r"\s*#+ ?(.*)")


def sentences_of(path, comments):
    """Return the sentences in the docstrings of a module and, if asked for, in its comments: a list of str."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, ValueError, OSError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    blocks = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    if comments:
        blocks.append("")
        for line in text.splitlines():
            comment = _COMMENT.fullmatch(line)
            if comment is None:
                blocks.append("")
            else:
                blocks[-1] += f" {comment[1]}"
    found = [sentence for block in blocks for sentence in _SENTENCE.split(" ".join(block.split()))]
    return [each for each in found if MIN_WORDS <= len(each.split()) <= MAX_WORDS and ">>>" not in each]


def _modules():
    """Return the modules of the standard library, each its path from there and its file."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    paths = sorted((path.relative_to(folder), path) for path in folder.glob("**/*.py"))
    return [(place, path) for place, path in paths if not _LEFT_OUT & set(place.parts)]


@functools.cache
def pretraining_sentences():
    """Return what there is to pretrain on, without the packages of the task and without what is said in both: a list of
    str, each once."""
    found = [each for sentences in python_topics.topics().values() for each in sentences]
    for place, path in _modules():
        if place.parts[0] not in PACKAGES:
            found += sentences_of(path, comments=True)
    of_task = {_words(sentence) for sentence in labelled()[0]}
    return [each for each in dict.fromkeys(found) if _words(each) not in of_task]


def _words(sentence):
    """Return what a sentence and its words in another order have in common."""
    return " ".join(sorted(sentence.rstrip(".!?: ").lower().split()))


@functools.cache
def labelled():
    """Return sentences in a random order, half of them with their words in a random order, and their labels: lists of
    str. Nothing but the order tells them apart: there are no capitals, and no mark at the end."""
    paths = [path for place, path in _modules() if place.parts[0] in PACKAGES]
    found = (sentence.rstrip(".!?: ").lower() for path in paths for sentence in sentences_of(path, comments=False))
    sentences, generator = list(dict.fromkeys(found)), np.random.default_rng(0)
    sentences = [sentences[row] for row in generator.permutation(len(sentences))]
    labels = [LABELS[each] for each in generator.integers(2, size=len(sentences))]
    return [_shuffled(x, generator) if label == "shuffled" else x for x, label in zip(sentences, labels)], labels


def _shuffled(sentence, generator):
    words = sentence.split()
    shuffled = words
    while shuffled == words and len(set(words)) > 1:
        shuffled = [words[place] for place in generator.permutation(len(words))]
    return " ".join(shuffled)
