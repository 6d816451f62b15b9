"""From pixels to features of regions, in graph, so that an exported model takes images.

Shapes: B images of S pixels a side, G cells a side, R regions, D width of a region's features.
"""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf

from applications.common.errors import InputError, reading
from applications.common.runs import replacing, write_json
from applications.common.serving import in_graph
from applications.vision.images import decode_image, resized
from applications.vision.regions import MemoryRegions
from applications.vision.word_detectors import train_detectors

CONFIG = "extractor.json"
NETWORK = "network.keras"


class Extractor:
    """Features of regions of images, the cells of a grid.

    Args:
        side: S, side of the images in pixels.
        cells: G, cells a side.
        network: `keras.Model` from float32 images (B, S, S, 3) to maps (B, H, W, D), H and W at least G: the features
            of a cell are the map's mean over it. `None` for the pixels of a cell, as values from -1 to 1.

    Attributes:
        boxes: float32 (R, 4), x0, y0, x1, y1 of the regions in [0, 1].
        width: D.
        variables: List of the network's variables, which an exported module has to hold.
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
        """Return the features of images: uint8 (B, S, S, 3) to float32 (B, R, D)."""
        images = tf.cast(images, tf.float32)
        if self.network is None:
            cells = tf.nn.space_to_depth(images / 127.5 - 1.0, self.side // self.cells)
        else:
            cells = _pooled(tf.cast(self.network(images, training=False), tf.float32), self.cells)
        return tf.reshape(cells, (-1, len(self.boxes), self.width))

    def batches(self, images, title="features"):
        """Yield the features of `Images`, float32 (B, R, D); title and errors as in `Images.batches`."""
        for pixels in images.batches(self.side, title=title):
            yield self._traced(pixels).numpy()

    def decode(self, strings):
        """Return the images in strings of bytes, resized: (B,) to uint8 (B, S, S, 3)."""
        # On the CPU wherever the network runs: features are the same as in training.
        with tf.device("CPU:0"):
            return tf.map_fn(
                lambda content: resized(decode_image(content), self.side),
                strings,
                fn_output_signature=tf.TensorSpec((self.side, self.side, 3), tf.uint8),
            )

    def save(self, folder):
        """Write the extractor into a folder: extractor.json, and the network as .keras."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self.network is not None:
            with replacing(folder / NETWORK) as temporary:
                self.network.save(temporary)
        # Last, so that a folder with this file holds everything.
        network = None if self.network is None else NETWORK
        write_json(folder / CONFIG, {"side": self.side, "cells": self.cells, "network": network})

    @classmethod
    def load(cls, folder):
        """Read an extractor from a folder; `InputError` if there is none, or it cannot be read."""
        path, network = pathlib.Path(folder, CONFIG), None
        with reading(path, "an extractor of this program"):
            config = json.loads(path.read_text(encoding="utf-8"))
            # Earlier versions had more networks, and windows.
            if config.get("name", "words") not in ("pixels", "words") or config.get("regions", "grid") != "grid":
                raise InputError(f"{path}: this version has no network {config['name']} of {config['regions']}.")
            if config["network"] is not None:
                # No code of the file runs.
                network = keras.saving.load_model(path.with_name(config["network"]), compile=False)
            return cls(config["side"], config["cells"], network)


def make_extractor(options, images=None, words=None):
    """Return the `Extractor` that `ExtractorOptions` describe. The network words is trained on `Images` and a
    dictionary from ids of training images to the words about the image."""
    network, policy = None, keras.config.dtype_policy()
    if options.network != "pixels":
        rows = np.sort(images.rows_of(list(words)))
        pixels = np.concatenate(list(images.some(rows).batches(options.side, title="reading images")))
        # Features do not depend on the precision of the run.
        keras.config.set_dtype_policy("float32")
        try:
            network = train_detectors(pixels, [words[images.ids[row]] for row in rows], options.side, options.cells)
        finally:
            keras.config.set_dtype_policy(policy)
    return Extractor(options.side, options.cells, network)


def extract(extractor, images):
    """Return the features of `Images`, a `MemoryRegions` with their ids; errors as in `Images.batches`."""
    features = np.concatenate(list(extractor.batches(images)))
    counts = np.full(len(images), len(extractor.boxes), np.int32)
    return MemoryRegions(images.place, images.ids, counts, extractor.width, features, extractor.boxes)


def _pooled(maps, cells):
    """Return means of maps (B, H, W, D) over the areas of G x G cells, (B, G, G, D)."""
    if maps.shape[1:3] == (cells, cells):
        return maps
    # Each row of the map is `cells` equal parts, and each cell has as many of the parts as the map has rows.
    parts = (np.eye(size, dtype=np.float32).repeat(cells, axis=0) for size in maps.shape[1:3])
    rows, columns = (x.reshape(cells, -1, x.shape[1]).mean(axis=1) for x in parts)
    return tf.einsum("gh,bhwd,kw->bgkd", rows, maps, columns)
