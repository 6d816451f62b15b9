"""Real English from docstrings and comments of Python's standard library, by `tools.make_finetuning_sentences`.

The task: are the words of a sentence in their order? It is CoLA's in small, and no list of words answers it.
"""

import functools
import gzip
import pathlib


@functools.cache
def _rows():
    content = gzip.decompress(pathlib.Path(__file__).with_name("embedded.tsv.gz").read_bytes())
    return [line.split("\t") for line in content.decode().removesuffix("\n").split("\n")]


def labelled():
    """Return the sentences of the task and their labels, lists of str."""
    sentences, labels = zip(*(row for row in _rows() if len(row) == 2))
    return list(sentences), list(labels)


def pretraining_sentences():
    """Return the sentences of the pretraining, a list of str."""
    return [row[0] for row in _rows() if len(row) == 1]
