"""Implement the command `features`."""

from applications.vision.extractors import write_features
from applications.vqa.data import words_of
from applications.vqa.questions import read_questions


def features(options):
    """Write the features of images. The extractor of `--network words` learns to detect the words of the answers."""
    words = None if options.questions is None else words_of(read_questions(options.questions, options.annotations))
    write_features(options, words)
