"""Features of the regions of images, by id: the base class, and features in memory.

Shapes: N images, B of a batch, R regions of an image with padding, n without, D width of a region's features.
"""

import atexit
import dataclasses
import gc

import numpy as np
import tensorflow as tf
from keras import ops

from applications.common.errors import InputError, pass_through
from applications.vision.images import ById

# An iterator that is freed while Python exits would wait for a read that no thread can finish. Collecting garbage first
# frees iterators in reference cycles, for instance in a traceback.
atexit.register(gc.collect)


@dataclasses.dataclass
class Regions(ById):
    """Base class of features of the regions of images: N distinct ids, the number of regions of each image, and D."""

    counts: np.ndarray
    width: int

    def num_cut(self, max_regions):
        """Return the number of images that have more regions than `read` returns."""
        return int(np.count_nonzero(self.counts > max_regions))

    def read(self, rows, max_regions):
        """Return the first R regions of the images in rows, int (B,). Several threads may call it at once.

        Returns:
            features: float32 (B, R, D), zeros after the last region.
            boxes: float32 (B, R, 4), x0, y0, x1, y1 between 0 and 1; zeros for unknown boxes.
            num_regions: int32 (B,).

        Raises:
            InputError: If the file can no longer be read, if features are not finite, and for invalid boxes.
        """
        raise NotImplementedError

    def tensors(self, rows, max_regions):
        """Return the result of `read` for a tensor of rows, int (B,), in graph.

        An `InputError` becomes an error of the graph; `input_error_in` recovers it.
        """

        def read(rows):
            try:
                return *self.read(rows, max_regions), b""
            except InputError as error:
                nothing = np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.float32), np.zeros(0, np.int32)
                return *nothing, pass_through(error).encode(errors="replace")

        *arrays, failure = tf.numpy_function(read, [rows], (tf.float32, tf.float32, tf.int32, tf.string))
        # Raised in the graph, because TensorFlow would print a traceback of Python for every thread.
        with tf.control_dependencies([tf.debugging.Assert(tf.reshape(failure == "", ()), [failure])]):
            arrays = [tf.identity(x) for x in arrays]
        for x, shape in zip(arrays, ((max_regions, self.width), (max_regions, 4), ()), strict=True):
            x.set_shape((rows.shape[0], *shape))
        return tuple(arrays)


@dataclasses.dataclass
class MemoryRegions(Regions):
    """Features in memory, float32 (N, R, D), and boxes (N, R, 4), or (R, 4) if they are the same for all images."""

    features: np.ndarray
    boxes: np.ndarray

    def read(self, rows, max_regions):
        num_regions = np.minimum(self.counts[rows], max_regions).astype(np.int32)
        size = min(self.features.shape[1], max_regions)
        mask = np.arange(size) < num_regions[:, None]
        boxes = self.boxes if self.boxes.ndim == 2 else self.boxes[rows]
        arrays = (np.where(mask[..., None], x[..., :size, :], np.float32(0)) for x in (self.features[rows], boxes))
        padding = [(0, 0), (0, max_regions - size), (0, 0)]
        return *(np.pad(x, padding) for x in arrays), num_regions


def region_mask(num_regions, max_regions):
    """Return the mask of existing regions, boolean (B, R), for their numbers (B,)."""
    return ops.less(ops.arange(max_regions, dtype="int32")[None], num_regions[:, None])
