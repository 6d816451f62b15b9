"""Implement the command `features`."""

from applications.captioning.captions import read_parts
from applications.captioning.data import words_of_images
from applications.vision.extractors import write_features


def features(options):
    """Write the features of images. If captions are given, the network `words` is trained on their words."""
    words = None if options.captions is None else words_of_images(read_parts({"train": options.captions})["train"])
    write_features(options, words)
