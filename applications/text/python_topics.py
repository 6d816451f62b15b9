"""Reads `python_topics.tsv.gz`: English sentences from Python's documentation, grouped by topic.

`tools.make_topic_sentences` wrote this table, which has the columns topic and sentence.
"""

import functools
import gzip
import pathlib


@functools.cache
def topics():
    """Return a dictionary that maps each topic to its sentences, in the order of the documentation."""
    content = gzip.decompress(pathlib.Path(__file__).with_name("python_topics.tsv.gz").read_bytes()).decode()
    sentences = {}
    for line in content.removesuffix("\n").split("\n")[1:]:
        name, sentence = line.split("\t")
        sentences.setdefault(name, []).append(sentence)
    return sentences
