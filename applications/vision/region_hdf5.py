"""Reads and writes region features in HDF5 files. `tools.convert_regions` converts published files to this format.

A file has the published layout of bottom-up attention with adaptive region counts, and image ids:

    image_ids (N,)
    image_features (_, D): the regions of all images
    spatial_features (_, 6): boxes x0, y0, x1, y1, width, height between 0 and 1, or zeros if unknown
    pos_boxes (N, 2): the start and the end of the rows of each image

A second layout can also be read: features (N, R, D), boxes (N, R, 6) and optional counts `num_boxes` (N,).

Shapes: N images, n regions of one image, at most R regions, D features per region.
"""

import dataclasses
import pathlib
import zlib

import h5py
import numpy as np

from applications.common.errors import InputError, reading
from applications.common.runs import replacing
from applications.vision.images import image_id
from applications.vision.regions import Regions

FEATURES, BOXES, SPANS, IDS = "image_features", "spatial_features", "pos_boxes", "image_ids"
COUNTS = "num_boxes"
# A box may extend beyond the image by at most this fraction of the image's side.
_TOLERANCE = 0.05
_BLOCK, _CHUNK = 1024, 32  # Bytes per block of the checksum, and rows per HDF5 chunk.


@dataclasses.dataclass
class HDF5Regions(Regions):
    """Regions in an HDF5 file. `samples` is the size of the file, and a checksum. `starts` (N,) is the first row of
    each image. If the file contains features (N, R, D), `starts` is `None`."""

    starts: np.ndarray | None
    samples: tuple

    def __post_init__(self, place):
        super().__post_init__(place)
        # Threads may share the file: h5py has a global lock.
        self._file = h5py.File(self.place, "r")

    def read(self, rows, max_regions):
        num_regions = np.minimum(self.counts[rows], max_regions).astype(np.int32)
        features = np.zeros((len(rows), max_regions, self.width), np.float32)
        boxes = np.zeros((len(rows), max_regions, 4), np.float32)
        for index, (row, count) in enumerate(zip(rows, num_regions, strict=True)):
            place = f"{self.place}, image {self.ids[row]}"
            at = (row, slice(count)) if self.starts is None else slice(self.starts[row], self.starts[row] + count)
            with reading(place):
                features[index, :count] = self._file[FEATURES][at]
                if BOXES in self._file:
                    boxes[index, :count] = self._file[BOXES][at][:, :4]
            boxes[index] = checked(place, features[index], boxes[index])
        return features, boxes, num_regions


def checked(place, features, boxes):
    """Return boxes x0, y0, x1, y1, (n, 4), clipped to the image. Raise `InputError` for features (n, D) with
    NaN or infinity, for boxes outside the image, and for boxes with x0 > x1 or y0 > y1."""
    if not np.isfinite(features).all():
        raise InputError(f"{place}: expected finite features. Received: NaN or infinity")
    inside = (boxes >= -_TOLERANCE) & (boxes <= 1.0 + _TOLERANCE)
    if not inside.all() or (boxes[:, 2:] < boxes[:, :2]).any():
        raise InputError(f"{place}: expected boxes 0 <= x0 <= x1 <= 1, 0 <= y0 <= y1 <= 1. Received: an invalid box")
    return boxes.clip(0.0, 1.0)


def open_regions(path):
    """Open an HDF5 file, check its shapes, and return its `Regions`. `Regions.read` checks the values."""
    path = pathlib.Path(path)
    if not path.is_file() or path.suffix not in (".h5", ".hdf5"):
        raise InputError(f"{path}: expected an .h5 file of region features, as python -m tools.convert_regions writes.")
    expected = f"{FEATURES}, {SPANS} and {IDS}, as python -m tools.convert_regions writes them"
    with reading(path, expected), h5py.File(path, "r") as file:
        *shape, width = file[FEATURES].shape
        ids = file[IDS][:] if file[IDS].dtype.kind in "iu" else file[IDS].asstr()[:]
        ids = list(map(image_id, ids))
        if len(shape) == 1:
            spans = file[SPANS][:].astype(np.int64)
            if spans.shape != (len(ids), 2) or (spans < 0).any() or (spans > shape[0]).any():
                raise ValueError(f"{SPANS} that do not fit {shape[0]} regions and {len(ids)} images")
            starts, counts = spans[:, 0], spans[:, 1] - spans[:, 0]
        else:
            num_images, max_regions = shape
            starts = None
            counts = file[COUNTS][:].astype(np.int64) if COUNTS in file else np.full(num_images, max_regions)
            if not len(ids) == len(counts) == num_images or (counts > max_regions).any():
                raise ValueError(f"{IDS} or {COUNTS} that do not fit {num_images} images x {max_regions} regions")
        if not ids or (counts < 1).any():
            raise ValueError("an image without regions" if ids else "no images")
        if len(set(ids)) < len(ids):
            raise ValueError("an image that occurs twice")
    return HDF5Regions(path, ids, counts, width, starts, _sample(path))


def write_regions(path, images):
    """Write region features into an HDF5 file, atomically; return the numbers of images and of regions. `images` yields
    (id, features (n, D), boxes). Boxes are (n, 4) in [0, 1], or `None` if unknown."""
    ids, ends = {}, [0]
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for each, features, boxes in images:
            place, (count, width) = f"image {each}", features.shape
            if not ids:
                for name, columns in ((FEATURES, width), (BOXES, 6)):
                    chunks = (_CHUNK, columns)
                    file.create_dataset(name, (0, columns), np.float32, maxshape=(None, columns), chunks=chunks)
            if each in ids or not count or width != file[FEATURES].shape[1]:
                problem = "each image once" if each in ids else f"regions of width {file[FEATURES].shape[1]}"
                raise InputError(f"{place}: expected {problem}. Received: {count} regions of width {width}")
            boxes = checked(place, features, np.zeros((count, 4), np.float32) if boxes is None else boxes)
            ids[each] = None
            ends.append(ends[-1] + count)
            for name, rows in ((FEATURES, features), (BOXES, np.hstack([boxes, boxes[:, 2:] - boxes[:, :2]]))):
                file[name].resize(ends[-1], axis=0)
                file[name][ends[-2] :] = rows
        if not ids:
            raise InputError(f"{path}: expected at least one image. Received: none")
        # HDF5 may hang when it reads damaged strings of variable length, so these strings have a fixed length.
        names = np.array([each.encode() for each in ids])
        file[IDS] = names.astype(h5py.string_dtype(length=names.itemsize))
        file[SPANS] = np.stack([ends[:-1], ends[1:]], axis=1)
    return len(ids), ends[-1]


def _sample(path):
    """Return the size of a file, and a checksum of four blocks."""
    with open(path, "rb", buffering=0) as file:
        size, checksum = file.seek(0, 2), 0
        for start in np.linspace(0, max(size - _BLOCK, 0), 4).astype(int).tolist():
            file.seek(start)
            checksum = zlib.crc32(file.read(_BLOCK), checksum)
    return size, checksum
