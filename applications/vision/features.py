"""The command `features`: from images to a file of the features of their regions, and the extractor that made it."""

import pathlib

import numpy as np

from applications.common.errors import InputError
from applications.text.readers import read_lines
from applications.text.text import Tokenizer
from applications.vision.extractors import CONFIG, ExtractedRegions, Extractor, make_extractor
from applications.vision.images import image_id, open_images, rows_by_id
from applications.vision.options import REGIONS
from applications.vision.region_hdf5 import write_regions

_EXTRACTOR = "extractor"


def write_features(options, words=None):
    """Write the features of images, and the extractor beside them, into the folder of `FeaturesOptions`. The network
    words learns from the option's file of words, or from `words`, a dictionary from ids of images to their words."""
    words = words if options.words is None else read_words(options.words)
    images = open_images(options.images)
    if words is not None:
        rows_by_id(options.word_file, images.ids, list(words))
        print(f"words: about {len(words)} of {len(images)} images", flush=True)
    images.check()
    extractor = make_extractor(options.extractor, images, words)
    out, num_regions = pathlib.Path(options.out), len(extractor.boxes)
    extractor.save(out / _EXTRACTOR)
    counts = np.full(len(images), num_regions, np.int32)
    # Last, so that a folder with this file holds everything.
    write_regions(out / REGIONS, ExtractedRegions(images.place, images.ids, counts, extractor.width, images, extractor))
    print(f"written: {out / REGIONS}, {len(images)} images of {num_regions} regions of width {extractor.width}")


def read_words(path):
    """Return the words of a file of lines `image<TAB>words`, plain or .gz: a dictionary from ids to lists of words, in
    lower case. A line without an image or words is an `InputError`."""
    names, texts = [], []
    for number, line in enumerate(read_lines(path), start=1):
        name, _, text = (field.strip() for field in line.partition("\t"))
        if not name or not text:
            raise InputError(f"{path}:{number}: expected an image, a tab and words. Received: {line[:40]!r}")
        names.append(image_id(name))
        texts.append(text)
    words = {name: [] for name in names}
    for name, tokens in zip(names, Tokenizer().token_lists(texts), strict=True):
        words[name] += tokens
    return words


def extractor_beside(path):
    """Return the `Extractor` that the command `features` left in its folder, beside its file of features, or `None`."""
    path = pathlib.Path(path)
    folder = (path if path.is_dir() else path.parent) / _EXTRACTOR
    return Extractor.load(folder) if (folder / CONFIG).exists() else None
