"""Region features in files of one image each, .npz and .npy.

Shapes: n regions of an image, D width of a region's features.
"""

import collections
import dataclasses
import functools
import io
import math
import pathlib
import zipfile

import numpy as np

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.vision.images import image_id
from applications.vision.region_base import Regions, corners_of, reading, sample_of

_FEATURES = ("x", "feat")
_BOXES = ("bbox", "boxes")
_SIZE = ("image_w", "image_h")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclasses.dataclass
class FolderRegions(Regions):
    """Files of one image each.

    Args:
        files: List of N paths in the folder.
        transposed: Whether their arrays `x` are (D, n).
        samples: As `sample_of` has them.
    """

    files: list
    transposed: bool
    samples: np.ndarray

    def name(self, row):
        return str(pathlib.Path(self.place, self.files[row]))

    def read_image(self, row, count):
        with reading(self.name(row)):
            # Whole: an .npz would be read in fifty pieces. Never allow_pickle: unpickling runs code of the file.
            loaded = np.load(io.BytesIO(pathlib.Path(self.name(row)).read_bytes()), allow_pickle=False)
            arrays = {"feat": loaded}
            if not isinstance(loaded, np.ndarray):
                arrays = {name: loaded[name] for name in _FEATURES + _BOXES + _SIZE if name in loaded.files}
            features = arrays["x"] if "x" in arrays else arrays["feat"]
            if features.ndim == 2 and "x" in arrays and self.transposed:
                features = features.T
            boxes = next((arrays[name] for name in _BOXES if name in arrays), None)
            if boxes is not None:
                size = [arrays[name].item() for name in _SIZE if name in arrays]
                boxes = corners_of(self.name(row), boxes, size or None)
            elif features.ndim == 3:
                boxes = _cells(*features.shape[:2])
            return features.reshape(-1, features.shape[-1])[:count], boxes


def open_folder(path, files):
    names = [str(file.relative_to(path)) for file in files]
    shapes, num_boxes, samples = [], [], []
    transposable = {}
    for file in progress(files, "headers of regions"):
        with reading(file):
            headers = _headers(file)
            samples.append(sample_of(file))
        features = [name for name in _FEATURES if name in headers]
        if len(features) != 1:
            raise InputError(f"{file}: expected one array, x or feat. Received: {', '.join(features) or 'none'}")
        sizes = [name for name in _SIZE if name in headers]
        if len(sizes) == 1:
            raise InputError(f"{file}: expected image_w and image_h. Received: {sizes[0]} alone")
        shape, boxes = headers[features[0]], next((headers[name] for name in _BOXES if name in headers), None)
        if len(shape) not in (2, 3) or 0 in shape[-1:]:
            raise InputError(f"{file}: expected features (n, D) or (h, w, D). Received: {shape}")
        if boxes is not None and (len(boxes) != 2 or boxes[1] != 4):
            raise InputError(f"{file}: expected boxes (n, 4). Received: {boxes}")
        shapes.append(shape)
        num_boxes.append(None if boxes is None else boxes[0])
        if features == ["x"] and len(shape) == 2:
            transposable[len(shapes) - 1] = file
    transposed = bool(transposable) and _is_transposed(path, transposable, shapes, num_boxes)
    if transposed:
        shapes = [shape[::-1] if index in transposable else shape for index, shape in enumerate(shapes)]
    width, _ = collections.Counter(shape[-1] for shape in shapes).most_common(1)[0]
    counts = np.array([math.prod(shape[:-1]) for shape in shapes], np.int64)
    for file, shape, count, boxes in zip(files, shapes, counts, num_boxes, strict=True):
        if shape[-1] != width:
            raise InputError(f"{file}: expected features of width {width}, as other files have. Received: {shape[-1]}")
        if boxes not in (None, count):
            raise InputError(f"{file}: expected a box for each of {count} regions. Received: {boxes}")
    ids = [image_id(name) for name in names]
    return FolderRegions(path, ids, counts, width, names, transposed, np.array(samples, np.int64))


def _is_transposed(path, files, shapes, num_boxes):
    """Return whether arrays `x` are (D, n); `InputError` in doubt. `files` are theirs, by their rows in the lists."""
    told = {}
    for row, file in files.items():
        first, last = shapes[row]
        if first != last and num_boxes[row] in (first, last):
            told.setdefault(num_boxes[row] == last, file)
    if len(told) == 2:
        raise InputError(f"{told[True]}: expected x (n, D), as in {told[False]}. Received: (D, n)")
    if told:
        return True in told
    longer = {shapes[row][0] > shapes[row][1] for row in files}
    if longer == {False}:
        return False
    if longer == {True} and len({shapes[row][1] for row in files}) > 1:
        return True
    row, file = next((row, file) for row, file in files.items() if shapes[row][0] > shapes[row][1])
    raise InputError(
        f"{file}: expected an array x of which boxes, or the other files, say what is the width; call it feat if it is "
        f"(n, D). Received: {shapes[row]}"
    )


def _headers(path):
    """Return the shapes of the arrays that we know of a file."""
    if path.suffix == ".npy":
        with open(path, "rb") as file:
            return {"feat": _shape(file, path.stat().st_size)}
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        found = {}
        for name in _FEATURES + _BOXES + _SIZE:
            if name in members:
                with archive.open(members[name]) as file:
                    found[name] = _shape(file, members[name].file_size)
        return found


def _shape(file, size):
    """Return the shape of the array that a file of so many bytes holds, all of it, real numbers."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of .npy")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.kind not in "fiu":
        raise ValueError(f"an array of {dtype}")
    if size != file.tell() + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{size} bytes for {dtype} {shape}")
    return shape


@functools.lru_cache
def _cells(height, width):
    """Return the boxes (h * w, 4) of the cells of a grid."""
    y, x = (each.ravel() for each in np.mgrid[:height, :width])
    return np.stack([x / width, y / height, (x + 1) / width, (y + 1) / height], axis=1).astype(np.float32)
