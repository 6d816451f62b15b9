"""Region features in one HDF5, as those of bottom-up attention are.

Shapes: N images, R regions of an image, D width of a region's features.
"""

import dataclasses
import json

import h5py
import numpy as np

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.common.runs import replacing
from applications.vision.images import image_id
from applications.vision.region_base import Regions, corners_of, reading, sample_of

_HDF5_BOXES = {"spatial_features": 6, "image_bb": 4}


@dataclasses.dataclass
class HDF5Regions(Regions):
    """One HDF5.

    Args:
        starts: int (N,), where the regions of an image begin that follow those of the one before; or `None`, if the
            features are (N, R, D).
        samples: As `sample_of` has them.
    """

    starts: np.ndarray | None
    samples: np.ndarray

    def __post_init__(self, place):
        super().__post_init__(place)
        # h5py lets one thread at a time into HDF5.
        self._file = h5py.File(self.place, "r")

    def read_image(self, row, count):
        first, of_image = (0, (row,)) if self.starts is None else (self.starts[row], ())
        with reading(self.name(row)):
            corners = None
            boxes = next((self._file[name] for name in _HDF5_BOXES if name in self._file), None)
            if boxes is not None:
                corners = corners_of(self.name(row), boxes[*of_image, first : first + self.counts[row]])
            return self._file["image_features"][*of_image, first : first + count], corners


def open_hdf5(path):
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
        for name, size in _HDF5_BOXES.items():
            # Those that are not read too: one of another shape belongs to other features.
            if name in file:
                boxes = _data_set(path, file, name, (features.ndim,), "f")
                if boxes.shape != (*features.shape[:-1], size):
                    raise InputError(f"{path}: expected {name} {(*features.shape[:-1], size)}. Received: {boxes.shape}")
        ids = _ids(path, file, len(counts))
        width = features.shape[-1]
        samples = np.array([sample_of(path)], np.int64)
    with reading(path):
        return HDF5Regions(path, ids, counts, width, starts, samples)


def _data_set(path, file, name, ndims, kinds):
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise InputError(f"{path}: expected a data set {name}. Received: {', '.join(file) or 'none'}")
    if found.ndim not in ndims or found.dtype.kind not in kinds:
        expected = {"f": "floating numbers", "iu": "integers", "iuOS": "integers or strings"}[kinds]
        raise InputError(
            f"{path}: expected {name} of {' or '.join(map(str, ndims))} axes, {expected}. "
            f"Received: {found.dtype} {found.shape}"
        )
    return found


def _ids(path, file, num_images):
    beside = path.with_name(f"{path.stem}_imgid2idx.json")
    if "image_ids" in file:
        place, found = f"{path}, image_ids", _data_set(path, file, "image_ids", (1,), "iuOS")
        ids = found[:] if found.dtype.kind in "iu" else found.asstr()[:]
    elif beside.is_file():
        place, ids = beside, _ids_of_json(beside)
    else:
        raise InputError(
            f"{path}: expected a data set image_ids, or {beside.name} beside it. Received: neither{_hint(beside)}"
        )
    if len(ids) != num_images:
        raise InputError(f"{place}: expected the ids of {num_images} images. Received: {len(ids)}")
    return [image_id(each) for each in ids]


def _ids_of_json(path):
    with reading(path):
        row_of = json.loads(path.read_text(encoding="utf-8"))
        if sorted(row_of.values()) != list(range(len(row_of))):
            raise ValueError("rows that are not 0, 1, ..., each once")
        return sorted(row_of, key=row_of.get)


def _hint(path):
    """Return how the ids are made of what was published with the features, a pickle of Python 2; it is never loaded."""
    pickled = path.with_suffix(".pkl")
    code = "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[2], 'w'))"
    return f'; if you trust the pickle, make it: python -c "{code}" {pickled} {path}' if pickled.is_file() else ""


def write_regions(path, regions):
    """Write regions into one HDF5, atomically, as the adaptive features of bottom-up attention are, with their ids.

    Args:
        path: File that `open_regions` reads. Its folder must exist.
        regions: `Regions`.

    Raises:
        InputError: As `Regions.read`.
        OSError: If it cannot be written; the old file is left.
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
            found, corners, counts = regions.read(rows, regions.counts[rows].max())
            at = slice(ends[first] - regions.counts[first], ends[rows[-1]])
            mask = np.arange(found.shape[1]) < counts[:, None]
            features[at] = found[mask]
            boxes[at] = np.concatenate([corners, corners[..., 2:] - corners[..., :2]], axis=-1)[mask]
