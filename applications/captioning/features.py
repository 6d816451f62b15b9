"""Implement the command `features`."""

from applications.captioning.captions import read_parts
from applications.captioning.data import words_of_images
from applications.vision.extractors import write_features


def features(options):
    """Write the features of images. The extractor of `--network words` learns to detect the words of the captions."""
    words = None if options.captions is None else words_of_images(read_parts({"train": options.captions})["train"])
    write_features(options, words)
