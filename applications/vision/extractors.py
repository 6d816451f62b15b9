"""From pixels to features of regions, in graph, so that an exported model takes images.

Shapes: B images of S pixels a side, G cells a side, R regions, D width of a region's features.
"""

import dataclasses
import json
import pathlib
import sys
import warnings

import keras
import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.runs import replacing, write_json
from applications.common.serving import in_graph
from applications.vision.images import Images, decode_image, reading, resized
from applications.vision.options import NETWORKS
from applications.vision.regions import MemoryRegions, Regions
from applications.vision.word_detectors import train_detectors

CONFIG = "extractor.json"
# Images or windows that a network sees at once.
_AT_ONCE = 64


class Extractor:
    """Features of regions of images.

    With regions "grid" a region is a cell of a grid, with the mean of the network's last map over its area. With
    "windows" it is one of G x G overlapping windows of half the image's side, or the whole image; the network sees each
    on its own, and the region has the mean of its last map.

    Args:
        name: "pixels", where the features of a cell are its pixels, as values from -1 to 1; "words"; or a network of
            keras.applications, which says how pixels are scaled.
        side: Side of the network's images, in pixels.
        cells: G, cells or windows a side.
        regions: "grid" or "windows".
        network: `keras.Model` from float32 images (B, side, side, 3) to maps (B, H, W, D), H and W at least G; `None`
            for pixels.

    Attributes:
        image_size: S, `side`, or twice that with windows.
        boxes: float32 (R, 4), x0, y0, x1, y1 of the regions in [0, 1].
        width: D.
        variables: List of the network's variables, which an exported module has to hold.
    """

    def __init__(self, name, side, cells, regions="grid", network=None):
        self.name = name
        self.side = side
        self.cells = cells
        self.regions = regions
        self.network = network
        self.image_size = 2 * side if regions == "windows" else side
        self.variables = [] if network is None else network.variables
        shape = (None, self.image_size, self.image_size, 3)
        self._traced = in_graph(tf.TensorSpec(shape, tf.uint8))(self.__call__)
        if regions == "windows":
            self._starts = [round(index * side / (cells - 1)) for index in range(cells)] if cells > 1 else [side // 2]
            corners = [(x, y, x + side, y + side) for y in self._starts for x in self._starts]
            self.boxes = np.array([*corners, (0, 0, 2 * side, 2 * side)], np.float32) / self.image_size
        else:
            corners = [(x, y, x + 1, y + 1) for y in range(cells) for x in range(cells)]
            self.boxes = np.array(corners, np.float32) / cells
        if network is None:
            self.width = 3 * (side // cells) ** 2
            return
        _, height, width, self.width = network(keras.Input((side, side, 3))).shape
        if regions == "grid" and min(height, width) < cells:
            raise InputError(
                f"--grid: expected {min(height, width)} at most, the cells a side of the last map of {name} for "
                f"{side} pixels. Received: {cells}"
            )

    def __call__(self, images):
        """Return the features of images: uint8 (B, S, S, 3) to float32 (B, R, D)."""
        images = tf.cast(images, tf.float32)
        if self.network is None:
            cells = tf.nn.space_to_depth(images / 127.5 - 1.0, self.side // self.cells)
        elif self.regions == "grid":
            cells = _pooled(self._maps(images), self.cells)
        else:
            seen = [images[:, y : y + self.side, x : x + self.side] for y in self._starts for x in self._starts]
            seen.append(tf.nn.avg_pool2d(images, 2, 2, "VALID"))
            maps = self._maps(tf.reshape(tf.stack(seen, axis=1), (-1, self.side, self.side, 3)))
            cells = tf.reduce_mean(maps, axis=(1, 2))
        return tf.reshape(cells, (-1, len(self.boxes), self.width))

    def batches(self, images, rows=None, title="features"):
        """Yield the features of `Images`, float32 (B, R, D); rows, title and errors as in `Images.batches`."""
        at_once = max(1, _AT_ONCE // len(self.boxes)) if self.regions == "windows" else _AT_ONCE
        for pixels in images.batches(self.image_size, rows, at_once, title):
            features = self._traced(pixels).numpy()
            if not np.isfinite(features).all():
                raise InputError(f"--weights: expected finite features. Received: others, of the network {self.name}")
            yield features

    def decode(self, strings):
        """Return the images in strings of bytes, resized: (B,) to uint8 (B, S, S, 3)."""
        # On the CPU wherever the network runs: features are the same as in training.
        with tf.device("CPU:0"):
            return tf.map_fn(
                lambda content: resized(decode_image(content), self.image_size),
                strings,
                fn_output_signature=tf.TensorSpec((self.image_size, self.image_size, 3), tf.uint8),
            )

    def save(self, folder):
        """Write the extractor into a folder: extractor.json, and the network as .keras."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        network = None if self.network is None else "network.keras"
        if network is not None:
            with replacing(folder / network) as temporary:
                self.network.save(temporary)
        config = {name: getattr(self, name) for name in ("name", "side", "cells", "regions")}
        # Last, so that a folder with this file holds everything.
        write_json(folder / CONFIG, config | {"network": network})

    @classmethod
    def load(cls, folder):
        """Read an extractor from a folder; `InputError` if there is none, or it cannot be read."""
        path = pathlib.Path(folder, CONFIG)
        with reading(path, "an extractor of this program"):
            config, network = json.loads(path.read_text(encoding="utf-8")), None
            file = config.pop("network")
            if file is not None:
                with reading(path.with_name(file), "a .keras model"):
                    # No code of the file runs.
                    network = keras.saving.load_model(path.with_name(file), compile=False)
            return cls(**config, network=network)

    def _maps(self, images):
        """Return the network's last maps, float32 (B, H, W, D)."""
        if self.name in NETWORKS:
            # The module of the network scales its pixels.
            images = sys.modules[getattr(keras.applications, self.name).__module__].preprocess_input(images)
        return tf.cast(self.network(images, training=False), tf.float32)


def make_extractor(options, images=None, words=None):
    """Return the `Extractor` that `ExtractorOptions` describe; read the weights of its network, or train the network
    words on `Images` and a dictionary from ids of training images to the words about the image."""
    network, policy = None, keras.config.dtype_policy()
    # Features do not depend on the precision of the run.
    keras.config.set_dtype_policy("float32")
    try:
        if options.network in (None, "words"):
            rows = np.sort(images.rows_of(list(words)))
            pixels = np.concatenate(list(images.batches(options.side, rows, title="reading images")))
            detectors, _ = train_detectors(pixels, [words[images.ids[row]] for row in rows], options)
            network = detectors.network
        elif options.network != "pixels":
            network = pretrained_network(options)
    finally:
        keras.config.set_dtype_policy(policy)
    return Extractor(options.network or "words", options.side, options.cells, options.regions, network)


def pretrained_network(options):
    """Return the network of keras.applications that `ExtractorOptions` name, with the weights of a file: float32 images
    (B, side, side, 3) to maps (B, H, W, D). A file with other weights is an `InputError`."""
    shape = (options.side, options.side, 3)
    try:
        network = getattr(keras.applications, options.network)(include_top=False, weights=None, input_shape=shape)
    except ValueError as error:
        (received, *_) = str(error).strip().split("\n")
        raise InputError(f"--image-size: {options.network} cannot be built. Received: {received}") from error
    place, expected = f"--weights: {options.weights}", f"the weights of {options.network} without its top"
    with reading(place, expected), warnings.catch_warnings():
        # Weights that the file lacks are an error, too.
        warnings.simplefilter("ignore")
        network.load_weights(options.weights)
    return network


def extract(extractor, images):
    """Return the features of `Images`, a `MemoryRegions` with their ids; errors as in `Images.batches`."""
    features, end = np.empty((len(images), len(extractor.boxes), extractor.width), np.float32), 0
    for batch in extractor.batches(images):
        features[end : end + len(batch)] = batch
        end += len(batch)
    counts = np.full(len(images), len(extractor.boxes), np.int32)
    return MemoryRegions(images.place, images.ids, counts, extractor.width, features, extractor.boxes)


@dataclasses.dataclass
class ExtractedRegions(Regions):
    """Features of `Images`, made when they are read: only a few of them are in memory."""

    images: Images
    extractor: Extractor

    def read(self, rows, max_regions):
        features = np.concatenate(list(self.extractor.batches(self.images, rows, title=None)))[:, :max_regions]
        boxes = np.broadcast_to(self.extractor.boxes[:max_regions], (*features.shape[:2], 4))
        return features, boxes, np.minimum(self.counts[rows], max_regions)


def _pooled(maps, cells):
    """Return means of maps (B, H, W, D) over the areas of G x G cells, (B, G, G, D)."""
    if maps.shape[1:3] == (cells, cells):
        return maps
    # Each row of the map is `cells` equal parts, and each cell has as many of the parts as the map has rows.
    parts = (np.eye(size, dtype=np.float32).repeat(cells, axis=0) for size in maps.shape[1:3])
    rows, columns = (x.reshape(cells, -1, x.shape[1]).mean(axis=1) for x in parts)
    return tf.einsum("gh,bhwd,kw->bgkd", rows, maps, columns)
