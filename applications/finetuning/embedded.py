"""Real English that comes with every Python: the docstrings and comments of its standard library.

The task: are the words of a sentence in their order? It is CoLA's in small, and no list of words answers it.
"""

import ast
import functools
import itertools
import pathlib
import re
import sysconfig

import numpy as np

from applications.text import python_topics

# Packages of the task's sentences, which are docstrings; all others are for the pretraining.
PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "unittest", "xml")
LABELS = ("in order", "shuffled")
MIN_WORDS, MAX_WORDS = 6, 40
# Packages that are not the library's, and tests, whose strings and comments are no English.
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
        # Comments of lines that follow each other are one block.
        lines = (_COMMENT.fullmatch(line) for line in text.splitlines())
        groups = itertools.groupby(lines, key=lambda comment: comment is not None)
        blocks += [" ".join(comment[1] for comment in group) for is_comment, group in groups if is_comment]
    sentences = (sentence for block in blocks for sentence in _SENTENCE.split(" ".join(block.split())))
    return [each for each in sentences if MIN_WORDS <= len(each.split()) <= MAX_WORDS and ">>>" not in each]


def _modules():
    """Return the path of each module in the standard library, with its first folder or file."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    paths = sorted((path.relative_to(folder), path) for path in folder.glob("**/*.py"))
    return [(place.parts[0], path) for place, path in paths if not _LEFT_OUT & set(place.parts)]


@functools.cache
def pretraining_sentences():
    """Return the sentences of the pretraining, each once, without the task's packages and sentences."""
    sentences = [sentence for topic in python_topics.topics().values() for sentence in topic]
    for package, path in _modules():
        if package not in PACKAGES:
            sentences += sentences_of(path, comments=True)
    of_task = {_words(sentence) for sentence in labelled()[0]}
    return [each for each in dict.fromkeys(sentences) if _words(each) not in of_task]


def _words(sentence):
    """Return the words of a sentence in an order that all their orders share."""
    return " ".join(sorted(_plain(sentence).split()))


def _plain(sentence):
    return sentence.rstrip(".!?: ").lower()


@functools.cache
def labelled():
    """Return sentences in a random order, half of them with shuffled words, and their labels: lists of str. Nothing but
    the order of the words tells them apart: there are no capitals, and no mark at the end."""
    paths = [path for package, path in _modules() if package in PACKAGES]
    sentences = list(dict.fromkeys(_plain(each) for path in paths for each in sentences_of(path, comments=False)))
    generator = np.random.default_rng(0)
    sentences = [sentences[row] for row in generator.permutation(len(sentences))]
    labels = [LABELS[each] for each in generator.integers(2, size=len(sentences))]
    return [_shuffled(x, generator) if label == "shuffled" else x for x, label in zip(sentences, labels)], labels


def _shuffled(sentence, generator):
    words = shuffled = sentence.split()
    while shuffled == words and len(set(words)) > 1:
        shuffled = [words[place] for place in generator.permutation(len(words))]
    return " ".join(shuffled)
