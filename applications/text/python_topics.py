"""Real English: sentences of the topics of Python's documentation, which `tools.make_topic_sentences` wrote.

`python_topics.tsv.gz` is a table with the columns topic and sentence.
"""

import functools
import gzip
import pathlib


@functools.cache
def topics():
    """Return the sentences of each topic, in their order: a dictionary of lists of str."""
    content = gzip.decompress(pathlib.Path(__file__).with_name("python_topics.tsv.gz").read_bytes()).decode()
    sentences = {}
    for line in content.removesuffix("\n").split("\n")[1:]:
        name, sentence = line.split("\t")
        sentences.setdefault(name, []).append(sentence)
    return sentences
