"""Real English that comes with every Python: what its standard library says of itself.

The task: which package does a sentence document?
"""

import ast
import functools
import pathlib
import re
import sysconfig

import numpy as np

from applications.text import python_topics

PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "unittest", "xml")
# Of each package, so that they are as many.
PER_PACKAGE = 280
MIN_WORDS, MAX_WORDS = 6, 40
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@functools.cache
def docstrings():
    """Return the sentences of each package and module, in their order: a dictionary of lists of str."""
    folder, found = pathlib.Path(sysconfig.get_paths()["stdlib"]), {}
    # No tests, whose strings are no English.
    paths = [*folder.glob("*.py"), *(path for name in PACKAGES for path in folder.glob(f"{name}/**/*.py"))]
    for path in sorted(paths):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue
        name = path.relative_to(folder).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = " ".join((ast.get_docstring(node) or "").split())
                found.setdefault(name, []).extend(each for each in _SENTENCE.split(text) if _is_prose(each))
    return {name: list(dict.fromkeys(sentences)) for name, sentences in found.items()}


def _is_prose(sentence):
    return MIN_WORDS <= len(sentence.split()) <= MAX_WORDS and ">>>" not in sentence


def pages():
    """Return what there is to pretrain on: lists of sentences that stand together, each of two at least, of the
    documentation's topics and of modules; without the packages of the task."""
    found = [*python_topics.topics().values(), *(each for name, each in docstrings().items() if name not in PACKAGES)]
    return [sentences for sentences in found if len(sentences) > 1]


def labelled():
    """Return sentences and the packages that they document: lists of str, in a random order."""
    generator = np.random.default_rng(0)
    rows = []
    for name in PACKAGES:
        own = docstrings().get(name, [])
        rows += [(own[row], name) for row in generator.permutation(len(own))[:PER_PACKAGE]]
    rows = [rows[row] for row in generator.permutation(len(rows))]
    return [sentence for sentence, _ in rows], [name for _, name in rows]
