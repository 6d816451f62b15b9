"""Region features in one HDF5 with bottom-up attention's layout; `tools.convert_regions` makes it of other formats.

Shapes: N images, R regions of an image, D width of a region's features.
"""

import dataclasses
import pathlib
import zlib

import h5py
import numpy as np

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.common.runs import replacing
from applications.vision.images import image_id, reading
from applications.vision.regions import Regions

BOXES = "spatial_features"
# How far a box may lie outside the image, as a share of its side.
_TOLERANCE = 0.05


@dataclasses.dataclass
class HDF5Regions(Regions):
    """One HDF5: the first row of each image in the features of all, int (N,), or `None` for features (N, R, D); and the
    result of `sample_of`."""

    starts: np.ndarray | None
    samples: tuple

    def __post_init__(self, place):
        super().__post_init__(place)
        # h5py lets one thread at a time into HDF5.
        self._file = h5py.File(self.place, "r")

    def read_image(self, row, count):
        first, of_image = (0, (row,)) if self.starts is None else (self.starts[row], ())
        with reading(self.name(row)):
            features = self._file["image_features"][*of_image, first : first + count]
            if BOXES not in self._file:
                return features, None
            boxes = self._file[BOXES][*of_image, first : first + count, :4]
            return features, corners_of(self.name(row), boxes)


def corners_of(place, boxes):
    """Return boxes (n, 4), x0, y0, x1, y1, cut at the borders of the image; `place` begins the error."""
    inside = (boxes >= -_TOLERANCE) & (boxes <= 1.0 + _TOLERANCE)
    if not inside.all() or (boxes[:, 2:] < boxes[:, :2]).any():
        raise InputError(f"{place}: expected boxes x0, y0, x1, y1 in the image, from 0 to 1. Received: others")
    return boxes.clip(0.0, 1.0)


def open_regions(path, ids=None):
    """Return the `Regions` of an HDF5: its headers are checked here, its values when they are read.

    `image_features` are the regions of all images one after the other, (_, D), and `pos_boxes` (N, 2) the rows where an
    image begins and ends; or they are (N, R, D), and an image has `num_boxes` (N,) of R, or all. Boxes are
    `spatial_features` (..., 6), x0, y0, x1, y1 from 0 to 1, width and height; ids are `image_ids` (N,).

    Other ids may be given. A file that cannot be read or is cut off, an image without regions and an id that occurs
    twice are an `InputError`.
    """
    path = pathlib.Path(path)
    if not path.is_file() or path.suffix not in (".h5", ".hdf5"):
        received = "a folder" if path.is_dir() else "nothing of this name"
        raise InputError(
            f"{path}: expected an .h5 or .hdf5 file of region features; python -m tools.convert_regions makes it of "
            f"others. Received: {path.name if path.is_file() else received}"
        )
    with reading(path), h5py.File(path, "r") as file:
        features = _data_set(path, file, "image_features", (2, 3), "f")
        starts = None
        if features.ndim == 2:
            spans = _data_set(path, file, "pos_boxes", (2,), "iu")[:].astype(np.int64)
            if spans.shape[1] != 2 or (spans < 0).any() or (spans > len(features)).any():
                raise InputError(
                    f"{path}: expected pos_boxes (N, 2), rows of {len(features)} regions. Received: others"
                )
            starts, counts = spans[:, 0], spans[:, 1] - spans[:, 0]
        else:
            counts = np.full(len(features), features.shape[1])
            if "num_boxes" in file:
                counts = _data_set(path, file, "num_boxes", (1,), "iu")[:].astype(np.int64)
                if len(counts) != len(features) or (counts > features.shape[1]).any():
                    raise InputError(
                        f"{path}: expected num_boxes ({len(features)},), {features.shape[1]} at most. Received: others"
                    )
        if BOXES in file:
            shape = _data_set(path, file, BOXES, (features.ndim,), "f").shape
            if shape != (*features.shape[:-1], 6):
                raise InputError(f"{path}: expected {BOXES} {(*features.shape[:-1], 6)}. Received: {shape}")
        if ids is None:
            if "image_ids" not in file:
                raise InputError(
                    f"{path}: expected a data set image_ids; python -m tools.convert_regions takes the ids of a "
                    f"published NAME_imgid2idx.json. Received: {', '.join(file)}"
                )
            known = _data_set(path, file, "image_ids", (1,), "iuOS")
            ids = known[:] if known.dtype.kind in "iu" else known.asstr()[:]
        if len(ids) != len(counts):
            raise InputError(f"{path}: expected the ids of {len(counts)} images. Received: {len(ids)}")
        width = features.shape[-1]
    with reading(path):
        return HDF5Regions(path, [image_id(each) for each in ids], counts, width, starts, sample_of(path))


def _data_set(path, file, name, ndims, kinds):
    data_set = file.get(name)
    if not isinstance(data_set, h5py.Dataset):
        raise InputError(f"{path}: expected a data set {name}. Received: {', '.join(file) or 'none'}")
    if data_set.ndim not in ndims or data_set.dtype.kind not in kinds:
        expected = {"f": "floating numbers", "iu": "integers", "iuOS": "integers or strings"}[kinds]
        raise InputError(
            f"{path}: expected {name} of {' or '.join(map(str, ndims))} axes, {expected}. "
            f"Received: {data_set.dtype} {data_set.shape}"
        )
    return data_set


def write_regions(path, regions):
    """Write `Regions` into one HDF5, atomically, laid out as the adaptive features of bottom-up attention, with ids.

    `Regions.read` raises its errors, and a file that cannot be written an `OSError`; the old file is left.
    """
    ends = np.cumsum(regions.counts)
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        # Of one length: HDF5 reads damaged strings of any length for ever.
        ids = np.array([each.encode() for each in regions.ids])
        file["image_ids"] = ids.astype(h5py.string_dtype(length=ids.itemsize))
        file["pos_boxes"] = np.stack([ends - regions.counts, ends], axis=1)
        features = file.create_dataset("image_features", (ends[-1], regions.width), np.float32)
        boxes = file.create_dataset("spatial_features", (ends[-1], 6), np.float32)
        for first in progress(range(0, len(regions), 64), "writing regions"):
            rows = np.arange(first, min(first + 64, len(regions)))
            of_rows, corners, counts = regions.read(rows, regions.counts[rows].max())
            at = slice(ends[first] - regions.counts[first], ends[rows[-1]])
            mask = np.arange(of_rows.shape[1]) < counts[:, None]
            features[at] = of_rows[mask]
            boxes[at] = np.concatenate([corners, corners[..., 2:] - corners[..., :2]], axis=-1)[mask]


def sample_of(path):
    """Return the size of a file and a checksum of four blocks of it, which tell it from another file."""
    with open(path, "rb", buffering=0) as file:
        size, checksum = file.seek(0, 2), 0
        for start in np.linspace(0, max(size - 1024, 0), 4).astype(int).tolist():
            file.seek(start)
            checksum = zlib.crc32(file.read(1024), checksum)
    return size, checksum
