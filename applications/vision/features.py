"""The command `features`: from images to a file of the features of their regions, and the extractor that made it."""

import pathlib

from applications.vision.extractors import CONFIG, Extractor, make_extractor
from applications.vision.images import open_images
from applications.vision.options import REGIONS
from applications.vision.region_hdf5 import write_regions

_EXTRACTOR = "extractor"


def write_features(options, words=None):
    """Write the features of images, and the extractor beside them, into the folder of `FeaturesOptions`. The network
    words learns from `words`, a dictionary from ids of images to lists of words."""
    images, out = open_images(options.images), pathlib.Path(options.out)
    extractor = make_extractor(options.extractor, images, words)
    extractor.save(out / _EXTRACTOR)
    features = (image_features for batch in extractor.batches(images) for image_features in batch)
    # Last, so that a folder with this file holds everything.
    num_images, num_regions = write_regions(
        out / REGIONS, ((each, x, extractor.boxes) for each, x in zip(images.ids, features, strict=True))
    )
    print(f"written: {out / REGIONS}, {num_images} images, {num_regions} regions of width {extractor.width}")


def extractor_beside(path):
    """Return the `Extractor` that the command `features` left in its folder, beside its file of features, or `None`."""
    path = pathlib.Path(path)
    folder = (path if path.is_dir() else path.parent) / _EXTRACTOR
    return Extractor.load(folder) if (folder / CONFIG).exists() else None
