"""Features of the regions of images, by id: what all kinds of them share, and the features in memory.

Shapes: N images, B of a batch, R regions of an image with padding, n without, D width of a region's features.
"""

import atexit
import dataclasses
import gc

import numpy as np
import tensorflow as tf
from keras import ops

from applications.common.errors import InputError, pass_through
from applications.vision.images import rows_by_id

# An iterator that is freed while Python ends waits for ever for a read that no thread may finish any more. An iterator
# that only a cycle holds, an error's for instance, is freed before.
atexit.register(gc.collect)


@dataclasses.dataclass
class Regions:
    """Features of the regions of images in a file: N different ids, the regions of each image, int (N,), and D."""

    place: dataclasses.InitVar[str]
    ids: list
    counts: np.ndarray
    width: int

    def __post_init__(self, place):
        # No field: the digest of the data does not depend on their place.
        self.place = str(place)

    def __len__(self):
        return len(self.ids)

    def name(self, row):
        """Return the place of an image, for messages."""
        return f"{self.place}, image {self.ids[row]}"

    def rows_of(self, ids):
        """Return the rows of ids; `InputError` for an id without an image."""
        return rows_by_id(self.place, self.ids, ids)

    def num_cut(self, max_regions):
        """Return how many images have more regions than `read` returns."""
        return int(np.count_nonzero(self.counts > max_regions))

    def read(self, rows, max_regions):
        """Return the first R regions of the images of rows, int (B,); several threads may call it at once.

        Returns:
            features: float32 (B, R, D), zeros after the last region.
            boxes: float32 (B, R, 4), x0, y0, x1, y1 between 0 and 1; zeros where they are unknown.
            num_regions: int32 (B,).

        Raises:
            InputError: If a file can no longer be read, for features that are not finite, and for wrong boxes.
        """
        num_regions = np.minimum(self.counts[rows], max_regions).astype(np.int32)
        features = np.zeros((len(rows), max_regions, self.width), np.float32)
        boxes = np.zeros((len(rows), max_regions, 4), np.float32)
        for index, (row, count) in enumerate(zip(rows, num_regions, strict=True)):
            features[index, :count], boxes[index, :count] = self.read_image(row, count)
        return features, boxes, num_regions

    def read_image(self, row, count):
        """Return the features of the first regions of an image, (count, D), and their boxes, (count, 4)."""
        raise NotImplementedError

    def tensors(self, rows, max_regions):
        """Return the result of `read` for a tensor of rows, int (B,), in graph.

        An `InputError` becomes the error of the graph, in which `input_error_in` finds it.
        """

        def read(rows):
            try:
                return *self.read(rows, max_regions), b""
            except InputError as error:
                nothing = np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.float32), np.zeros(0, np.int32)
                return *nothing, pass_through(error).encode(errors="replace")

        *arrays, failure = tf.numpy_function(read, [rows], (tf.float32, tf.float32, tf.int32, tf.string))
        # Raised here and not in Python, whose traceback TensorFlow would write for every thread.
        with tf.control_dependencies([tf.debugging.Assert(tf.reshape(failure == "", ()), [failure])]):
            arrays = [tf.identity(x) for x in arrays]
        for x, shape in zip(arrays, ((max_regions, self.width), (max_regions, 4), ()), strict=True):
            x.set_shape((rows.shape[0], *shape))
        return tuple(arrays)


@dataclasses.dataclass
class MemoryRegions(Regions):
    """Features in memory, float32 (N, R, D), and boxes (N, R, 4), or (R, 4), the same for all images."""

    features: np.ndarray
    boxes: np.ndarray

    def read_image(self, row, count):
        boxes = self.boxes if self.boxes.ndim == 2 else self.boxes[row]
        return self.features[row, :count], boxes[:count]

    def tensors(self, rows, max_regions):
        num_regions = min(max_regions, self.features.shape[1])
        # A constant of the graph would be written into it.
        with tf.init_scope(), tf.device("CPU:0"):
            counts = tf.constant(np.minimum(self.counts, max_regions), tf.int32)
            features, boxes = (tf.constant(x[..., :num_regions, :], tf.float32) for x in (self.features, self.boxes))
        counts = tf.gather(counts, rows)
        boxes = boxes[None] if self.boxes.ndim == 2 else tf.gather(boxes, rows)
        mask = tf.sequence_mask(counts, num_regions)[..., None]
        masked = (tf.where(mask, x, 0.0) for x in (tf.gather(features, rows), boxes))
        return *(tf.pad(x, [[0, 0], [0, max_regions - num_regions], [0, 0]]) for x in masked), counts


def region_mask(num_regions, max_regions):
    """Return which of R regions an image has, boolean (B, R), of their numbers (B,)."""
    return ops.less(ops.arange(max_regions, dtype="int32")[None], num_regions[:, None])
