"""Region features of other formats, written into the one HDF5 that `--features` reads.

    python -m tools.convert_regions SOURCE [SOURCE ...] --out regions.h5 [--transposed]

A source is one of the following; several become one file, of training and validation for instance.

- A folder, searched through for .npz and .npy files of one image each, whose ids are their names. An .npz has an array
  `x` or `feat`; and perhaps the corners of the boxes, `bbox` or `boxes` (n, 4), and the size of the image in pixels,
  `image_w` and `image_h`. Features are regions (n, D), or the cells of a grid (h, w, D), whose boxes are known; with
  `--transposed` an `x` is (D, n), as published for MCAN.
- A .tsv of bottom-up attention: image_id, image_w, image_h, num_boxes, and in base64 boxes and features.
- An .h5 or .hdf5 of bottom-up attention, which `--features` reads too where it has `image_ids`; otherwise the ids are
  read from NAME_imgid2idx.json beside NAME.hdf5, a dictionary from ids to rows.

Boxes are divided by the size of the image; where it is not known, by their own maxima; not at all where no coordinate
is larger than 2.
"""

import argparse
import array
import binascii
import collections
import contextlib
import dataclasses
import functools
import io
import json
import math
import pathlib
import re
import struct
import sys
import tokenize
import zipfile
import zlib

import numpy as np

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.vision import region_hdf5
from applications.vision.images import image_id, reading
from applications.vision.region_hdf5 import write_regions
from applications.vision.regions import Regions

# Boxes beyond it are pixels.
_MOST_SCALED = 2.0
_FEATURES = ("x", "feat")
_BOXES = ("bbox", "boxes")
_SIZE = ("image_w", "image_h")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_TABLE = "image_id, image_w, image_h, num_boxes, boxes and features, with tabs between"
_HEAD = re.compile(rb"([^\t\r\n]+)\t(\d+)\t(\d+)\t(\d+)\t")
_LONGEST_HEAD = 400


@contextlib.contextmanager
def opening(place):
    """Turn what the reading of damaged files raises into an `InputError`."""
    with reading(place):
        try:
            yield
        except (EOFError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(str(error)) from error


def corners_of(place, boxes, size=None):
    """Return boxes (n, 4 or more) as float32 (n, 4), between 0 and 1; `size` is that of the image in pixels."""
    boxes = np.array(boxes[:, :4], np.float32)
    if np.isfinite(boxes).all() and boxes.max() > _MOST_SCALED:
        width, height = boxes.reshape(-1, 2).max(axis=0) if size is None else size
        with np.errstate(divide="ignore", invalid="ignore"):
            boxes /= np.array([width, height, width, height], np.float32)
    return region_hdf5.corners_of(place, boxes)


@dataclasses.dataclass
class FolderRegions(Regions):
    """Files of one image each.

    Args:
        files: List of N paths in the folder.
        transposed: Whether their arrays `x` are (D, n).
    """

    files: list
    transposed: bool

    def name(self, row):
        return str(pathlib.Path(self.place, self.files[row]))

    def read_image(self, row, count):
        with opening(self.name(row)):
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


def open_folder(path, files, transposed=False):
    names = [str(file.relative_to(path)) for file in files]
    shapes, num_boxes = [], []
    for file in progress(files, "headers of regions"):
        with opening(file):
            headers = _headers(file)
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
        shapes.append(shape[::-1] if transposed and features == ["x"] and len(shape) == 2 else shape)
        num_boxes.append(None if boxes is None else boxes[0])
    width, _ = collections.Counter(shape[-1] for shape in shapes).most_common(1)[0]
    counts = np.array([math.prod(shape[:-1]) for shape in shapes], np.int64)
    for file, shape, count, boxes in zip(files, shapes, counts, num_boxes, strict=True):
        if shape[-1] != width:
            raise InputError(f"{file}: expected features of width {width}, as other files have. Received: {shape[-1]}")
        if boxes not in (None, count):
            raise InputError(f"{file}: expected a box for each of {count} regions. Received: {boxes}")
    ids = [image_id(name) for name in names]
    return FolderRegions(path, ids, counts, width, names, transposed)


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


@dataclasses.dataclass
class TableRegions(Regions):
    """The .tsv of bottom-up attention.

    Args:
        sizes: int (N, 2), width and height of the images in pixels.
        starts: int (N,), where the boxes of an image begin in the file.
    """

    sizes: np.ndarray
    starts: np.ndarray

    def name(self, row):
        return f"{self.place}:{row + 1}"

    def read_image(self, row, count):
        with opening(self.name(row)), open(self.place, "rb") as file:
            file.seek(self.starts[row])
            boxes = _decoded(file, self.counts[row], 4)
            file.seek(1, 1)
            return _decoded(file, count, self.width), corners_of(self.name(row), boxes, self.sizes[row])


def open_table(path):
    ids, numbers = [], array.array("q")
    with opening(path), open(path, "rb") as file:
        width = _table_width(path, file)
        for each, *others in progress(_table_rows(path, file, width), "index of regions"):
            ids.append(image_id(each))
            numbers.extend(others)
    sizes, counts, starts = np.split(np.array(numbers, np.int64).reshape(-1, 4), (2, 3), axis=1)
    return TableRegions(path, ids, counts[:, 0], width, sizes, starts[:, 0])


def _table_width(path, file):
    """Return the width of the features in the first row; 1 if it is none, which the reading of the rows says."""
    fields = file.readline().rstrip(b"\r\n").split(b"\t")
    head = _HEAD.match(b"\t".join(fields))
    if head is None or len(fields) != 6 or not int(head[4]):
        return 1
    return max(1, len(fields[5]) * 3 // 4 // (4 * int(head[4])))


def _table_rows(path, file, width):
    """Yield id, width and height of the image, regions, and where the boxes begin, of each row.

    How long a row is, follows from the number of its regions: most of it is passed over.
    """
    size = file.seek(0, 2)
    start, number = 0, 1
    while start < size:
        file.seek(start)
        head = _HEAD.match(file.read(_LONGEST_HEAD))
        if head is None:
            file.seek(start)
            raise InputError(f"{path}:{number}: expected {_TABLE}. Received: {file.read(40)!r}")
        image_width, image_height, count = (int(head[group]) for group in (2, 3, 4))
        if not image_width or not image_height:
            raise InputError(
                f"{path}:{number}: expected an image with a size. Received: {image_width} x {image_height}"
            )
        lengths = [_base64_length(count, each) for each in (4, width)]
        features = start + head.end() + lengths[0] + 1
        stop = features + lengths[1]
        file.seek(features - 1)
        tab = file.read(1)
        file.seek(stop)
        end = re.match(rb"\r?\n", file.read(2))
        if tab != b"\t" or stop > size or (end is None and stop < size):
            file.seek(start)
            fields = file.readline().rstrip(b"\r\n").split(b"\t")
            received = f"{len(fields)} fields"
            if len(fields) == 6:
                received = f"{len(fields[4])} and {len(fields[5])}"
            raise InputError(
                f"{path}:{number}: expected {_TABLE}, the last two {lengths[0]} and {lengths[1]} characters of base64 "
                f"for {count} regions of width {width}. Received: {received}"
            )
        yield head[1].decode(errors="replace"), image_width, image_height, count, start + head.end()
        start, number = stop + (0 if end is None else end.end()), number + 1


def _base64_length(count, width):
    return -(-4 * int(count) * width // 3) * 4


def _decoded(file, count, width):
    """Return float32 (count, width), the next characters of a file."""
    # Characters that are not base64 are passed over, and the content is too short.
    content = binascii.a2b_base64(file.read(_base64_length(count, width)))
    return np.frombuffer(content, "<f4", count * width).reshape(count, width)


def open_hdf5(path):
    beside = path.with_name(f"{path.stem}_imgid2idx.json")
    return region_hdf5.open_regions(path, _ids_of_json(beside) if beside.is_file() else None)


def _ids_of_json(path):
    with reading(path):
        row_of = json.loads(path.read_text(encoding="utf-8"))
        if sorted(row_of.values()) != list(range(len(row_of))):
            raise ValueError("rows that are not 0, 1, ..., each once")
        return sorted(row_of, key=row_of.get)


@dataclasses.dataclass
class JoinedRegions(Regions):
    """Several `Regions` as one.

    Args:
        parts: List of them.
    """

    parts: list

    def __post_init__(self, place):
        self._rows = [(part, row) for part in self.parts for row in range(len(part))]
        super().__post_init__(place)

    def name(self, row):
        part, row = self._rows[row]
        return part.name(row)

    def read_image(self, row, count):
        part, row = self._rows[row]
        return part.read_image(row, count)


_OPENERS = {".h5": open_hdf5, ".hdf5": open_hdf5, ".tsv": open_table}


def open_source(path, transposed=False):
    """Return the `Regions` of a source; `InputError` for one that cannot be read."""
    path = pathlib.Path(path)
    if path.is_file() and path.suffix in _OPENERS:
        return _OPENERS[path.suffix](path)
    if path.is_dir():
        files = [file for file in path.rglob("*.np[yz]") if file.name[0] != "." and file.is_file()]
        if files:
            return open_folder(path, sorted(files), transposed)
    raise InputError(f"{path}: expected a folder of .npz or .npy files, or an .h5, .hdf5 or .tsv file. Received: none")


def convert(sources, out, transposed=False):
    """Write the regions of sources into an HDF5, in their order."""
    if pathlib.Path(out).exists():
        raise InputError(f"--out: expected a new file. Received: {out}, which exists")
    parts = [open_source(source, transposed) for source in sources]
    widths = {part.width: part.place for part in parts}
    if len(widths) > 1:
        received = ", ".join(f"{width} in {place}" for width, place in widths.items())
        raise InputError(f"expected features of one width. Received: {received}")
    ids, counts = [each for part in parts for each in part.ids], np.concatenate([part.counts for part in parts])
    write_regions(pathlib.Path(out), JoinedRegions(", ".join(map(str, sources)), ids, counts, parts[0].width, parts))
    print(f"written: {out}, {len(ids)} images, {counts.sum()} regions of width {parts[0].width}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--transposed", action="store_true")
    chosen = parser.parse_args(arguments)
    try:
        convert(chosen.sources, chosen.out, chosen.transposed)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
