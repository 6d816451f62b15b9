"""Defines `Regions`, a base class for the region features of a set of images, and `MemoryRegions`.

Shapes: N images, B images in a batch, R regions of an image including padding, D features per region.
"""

import atexit
import dataclasses
import gc

import numpy as np
import tensorflow as tf
from keras import ops

from applications.common.errors import InputError, pass_through
from applications.vision.images import ById

# Without this call, the program can hang at exit: a dataset iterator that is freed during shutdown can wait forever for
# its reading thread.
atexit.register(gc.collect)


@dataclasses.dataclass
class Regions(ById):
    """Base class for the region features of N images. Image i has `counts[i]` regions of D = `width` features each."""

    counts: np.ndarray
    width: int

    def num_cut(self, max_regions):
        """Return how many images have more than `max_regions` regions."""
        return int(np.count_nonzero(self.counts > max_regions))

    def read(self, rows, max_regions):
        """Return the first R = `max_regions` regions of the images in `rows`, int (B,). Thread-safe.

        Returns:
            features: float32 (B, R, D), zeros after the last region.
            boxes: x0, y0, x1, y1 between 0 and 1, float32 (B, R, 4); zeros for unknown boxes.
            num_regions: int32 (B,).

        Raises:
            InputError: If the file cannot be read, or if features or boxes are invalid.
        """
        raise NotImplementedError

    def tensors(self, rows, max_regions):
        """Return the tensors of `read` in graph mode. `rows` is an integer tensor (B,). If `read` raises an
        `InputError`, TensorFlow raises its own error. `input_error_in` returns the `InputError`."""

        def read(rows):
            try:
                return *self.read(rows, max_regions), b""
            except InputError as error:
                nothing = np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.float32), np.zeros(0, np.int32)
                return *nothing, pass_through(error).encode(errors="replace")

        *arrays, failure = tf.numpy_function(read, [rows], (tf.float32, tf.float32, tf.int32, tf.string))
        # If Python code raised the error, TensorFlow would print one traceback per thread.
        with tf.control_dependencies([tf.debugging.Assert(tf.reshape(failure == "", ()), [failure])]):
            arrays = [tf.identity(x) for x in arrays]
        for x, shape in zip(arrays, ((max_regions, self.width), (max_regions, 4), ()), strict=True):
            x.set_shape((rows.shape[0], *shape))
        return tuple(arrays)


@dataclasses.dataclass
class MemoryRegions(Regions):
    """Region features in memory, float32 (N, R, D). `boxes` is (N, R, 4), or (R, 4) if all images share them."""

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
    """Return a boolean mask (B, `max_regions`) that is true for the first `num_regions` (B,) regions."""
    return ops.less(ops.arange(max_regions, dtype="int32")[None], num_regions[:, None])
