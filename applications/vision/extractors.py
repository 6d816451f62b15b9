"""Computes region features from pixels; implements the command `features`. Works in graph mode, for exported models.

Shapes: B images of S x S pixels, a grid of G x G cells, R = G x G regions, D features per region.
"""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf

from applications.common.errors import InputError, reading
from applications.common.runs import replacing, write_json
from applications.common.serving import in_graph
from applications.vision.images import decode_image, open_images, resized
from applications.vision.options import REGIONS
from applications.vision.region_hdf5 import write_regions
from applications.vision.regions import MemoryRegions
from applications.vision.word_detectors import train_detectors

CONFIG = "extractor.json"
NETWORK = "network.keras"
_EXTRACTOR = "extractor"


class Extractor:
    """Computes region features. The regions are the cells of a G x G grid in images of S x S pixels.

    Args:
        side: Side of the images in pixels, S.
        cells: Number of cells per side, G.
        network: `keras.Model` from float32 images (B, S, S, 3) to feature maps (B, H, W, D), H and W at least G. The
            features of a cell are the mean of the map over the cell. Without a network, the features of a cell are its
            pixels, in [-1, 1].

    Attributes:
        boxes: Corners x0, y0, x1, y1 of the regions, in [0, 1], float32 (R, 4).
        width: Number of features of a region, D.
        variables: List of the network's variables, which an exported module must contain.
    """

    def __init__(self, side, cells, network=None):
        self.side = side
        self.cells = cells
        self.network = network
        self.variables = [] if network is None else network.variables
        self._traced = in_graph(tf.TensorSpec((None, side, side, 3), tf.uint8))(self.__call__)
        corners = [(x, y, x + 1, y + 1) for y in range(cells) for x in range(cells)]
        self.boxes = np.array(corners, np.float32) / cells
        self.width = 3 * (side // cells) ** 2 if network is None else network.output_shape[-1]

    def __call__(self, images):
        """Compute features, float32 (B, R, D), from images, uint8 (B, S, S, 3)."""
        images = tf.cast(images, tf.float32)
        if self.network is None:
            cells = tf.nn.space_to_depth(images / 127.5 - 1.0, self.side // self.cells)
        else:
            maps = tf.cast(self.network(images, training=False), tf.float32)
            cells = tf.image.resize(maps, (self.cells, self.cells), "area")
        return tf.reshape(cells, (-1, len(self.boxes), self.width))

    def batches(self, images, title="features"):
        """Yield the features of `images` in batches, float32 (B, R, D). `title` names the progress report."""
        for pixels in images.batches(self.side, title=title):
            yield self._traced(pixels).numpy()

    def decode(self, strings):
        """Decode and resize JPEG or PNG strings (B,) to images, uint8 (B, S, S, 3)."""
        # Training decodes images on the CPU. Another device could decode an image differently.
        with tf.device("CPU:0"):
            return tf.map_fn(
                lambda content: resized(decode_image(content), self.side),
                strings,
                fn_output_signature=tf.TensorSpec((self.side, self.side, 3), tf.uint8),
            )

    def save(self, folder):
        """Write the extractor into a folder: extractor.json and, if it has a network, network.keras."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self.network is not None:
            with replacing(folder / NETWORK) as temporary:
                self.network.save(temporary)
        # A folder with extractor.json counts as complete, so write this file last.
        network = None if self.network is None else NETWORK
        write_json(folder / CONFIG, {"side": self.side, "cells": self.cells, "network": network})

    @classmethod
    def load(cls, folder):
        """Read an extractor from a folder; raise `InputError` if it is missing or cannot be read."""
        path, network = pathlib.Path(folder, CONFIG), None
        with reading(path, "an extractor of this program"):
            config = json.loads(path.read_text(encoding="utf-8"))
            # Earlier versions wrote extractors with other networks and regions.
            if config.get("name", "words") not in ("pixels", "words") or config.get("regions", "grid") != "grid":
                raise InputError(f"{path}: cannot load name={config['name']}, regions={config['regions']}.")
            if config["network"] is not None:
                network = keras.saving.load_model(path.with_name(config["network"]), compile=False)
            return cls(config["side"], config["cells"], network)


def make_extractor(options, images=None, words=None):
    """Return an `Extractor` for `options`, an `ExtractorOptions`.

    If `options.network` is "words", train a network on `images` to detect `words`, a dictionary from the id of each
    training image to the words that describe the image.
    """
    network, policy = None, keras.config.dtype_policy()
    if options.network != "pixels":
        rows = np.sort(images.rows_of(list(words)))
        pixels = np.concatenate(list(images.subset(rows).batches(options.side, title="reading images")))
        # Otherwise, --mixed-precision would change the features.
        keras.config.set_dtype_policy("float32")
        try:
            network = train_detectors(pixels, [words[images.ids[row]] for row in rows], options.side, options.cells)
        finally:
            keras.config.set_dtype_policy(policy)
    return Extractor(options.side, options.cells, network)


def extract(extractor, images):
    """Return a `MemoryRegions` with the ids and the features of all images."""
    features = np.concatenate(list(extractor.batches(images)))
    counts = np.full(len(images), len(extractor.boxes), np.int32)
    return MemoryRegions(images.place, images.ids, counts, extractor.width, features, extractor.boxes)


def write_features(options, words=None):
    """Write the features of `options.images`, and the extractor, into `options.out`. `words`: see `make_extractor`."""
    images, out = open_images(options.images), pathlib.Path(options.out)
    extractor = make_extractor(options.extractor, images, words)
    extractor.save(out / _EXTRACTOR)
    features = (image_features for batch in extractor.batches(images) for image_features in batch)
    # A folder with the feature file counts as complete, so write this file last.
    num_images, num_regions = write_regions(
        out / REGIONS, ((each, x, extractor.boxes) for each, x in zip(images.ids, features, strict=True))
    )
    print(f"written: {out / REGIONS}, {num_images} images, {num_regions} regions of width {extractor.width}")


def extractor_beside(path):
    """Return the `Extractor` that the command `features` saved beside the features in `path`, or `None`."""
    path = pathlib.Path(path)
    folder = (path if path.is_dir() else path.parent) / _EXTRACTOR
    return Extractor.load(folder) if (folder / CONFIG).exists() else None
