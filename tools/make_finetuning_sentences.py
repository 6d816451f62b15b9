"""Writes the sentences that ship with applications.finetuning: docstrings and comments of Python's standard library.

    python -m tools.make_finetuning_sentences applications/finetuning/embedded.tsv.gz

Python 3.11.7 wrote the file that ships; another version has other sentences. A line is a sentence and its label, "in
order" or "shuffled", for the task; or a sentence alone, for the pretraining. The sentences of the task are docstrings
of a few packages, their words in order or not: there are no capitals, and no mark at the end. The pretraining has seen
none of them.
"""

import ast
import gzip
import itertools
import pathlib
import re
import sys
import sysconfig

import numpy as np

from tools import make_topic_sentences

# Packages of the task's sentences; all others are for the pretraining.
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


def modules():
    """Return the path of each module in the standard library, with its first folder or file."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    paths = sorted((path.relative_to(folder), path) for path in folder.glob("**/*.py"))
    return [(place.parts[0], path) for place, path in paths if not _LEFT_OUT & set(place.parts)]


def task_sentences():
    """Return sentences in a random order, half of them with shuffled words, and their labels: lists of str."""
    paths = [path for package, path in modules() if package in PACKAGES]
    sentences = list(dict.fromkeys(plain(each) for path in paths for each in sentences_of(path, comments=False)))
    generator = np.random.default_rng(0)
    sentences = [sentences[row] for row in generator.permutation(len(sentences))]
    labels = [LABELS[each] for each in generator.integers(2, size=len(sentences))]
    return [shuffled(x, generator) if label == "shuffled" else x for x, label in zip(sentences, labels)], labels


def pretraining_sentences(of_task):
    """Return the sentences of the pretraining, each once, without the task's."""
    sentences = [sentence for topic in make_topic_sentences.topics().values() for sentence in topic]
    for package, path in modules():
        if package not in PACKAGES:
            sentences += sentences_of(path, comments=True)
    words = {words_of(sentence) for sentence in of_task}
    return [each for each in dict.fromkeys(sentences) if words_of(each) not in words]


def words_of(sentence):
    """Return the words of a sentence in an order that all their orders share."""
    return " ".join(sorted(plain(sentence).split()))


def plain(sentence):
    return sentence.rstrip(".!?: ").lower()


def shuffled(sentence, generator):
    words = mixed = sentence.split()
    while mixed == words and len(set(words)) > 1:
        mixed = [words[place] for place in generator.permutation(len(words))]
    return " ".join(mixed)


if __name__ == "__main__":
    sentences, labels = task_sentences()
    lines = [*map("\t".join, zip(sentences, labels)), *pretraining_sentences(sentences)]
    content = "".join(f"{line}\n" for line in lines).encode()
    # Without a time, so that equal sentences are equal files.
    pathlib.Path(sys.argv[1]).write_bytes(gzip.compress(content, mtime=0))
