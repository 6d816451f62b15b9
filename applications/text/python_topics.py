"""English sentences from the topics of Python's documentation, collected by `tools.make_topic_sentences`.

`python_topics.tsv.gz` is a table with the columns topic and sentence.
"""

import functools
import gzip
import pathlib


@functools.cache
def topics():
    """Return a dictionary from each topic to its sentences, in order."""
    content = gzip.decompress(pathlib.Path(__file__).with_name("python_topics.tsv.gz").read_bytes()).decode()
    sentences = {}
    for line in content.removesuffix("\n").split("\n")[1:]:
        name, sentence = line.split("\t")
        sentences.setdefault(name, []).append(sentence)
    return sentences
