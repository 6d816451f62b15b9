"""Region features in the .tsv of bottom-up attention.

Shapes: N images, D width of a region's features.
"""

import array
import binascii
import dataclasses
import re

import numpy as np

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.vision.images import image_id
from applications.vision.region_base import Regions, corners_of, reading, sample_of

_TABLE = "image_id, image_w, image_h, num_boxes, boxes and features, with tabs between"
_HEAD = re.compile(rb"([^\t\r\n]+)\t(\d+)\t(\d+)\t(\d+)\t")
_LONGEST_HEAD = 400


@dataclasses.dataclass
class TableRegions(Regions):
    """The .tsv of bottom-up attention.

    Args:
        sizes: int (N, 2), width and height of the images in pixels.
        starts: int (N,), where the boxes of an image begin in the file.
        samples: As `sample_of` has them.
    """

    sizes: np.ndarray
    starts: np.ndarray
    samples: np.ndarray

    def name(self, row):
        return f"{self.place}:{row + 1}"

    def read_image(self, row, count):
        with reading(self.name(row)), open(self.place, "rb") as file:
            file.seek(self.starts[row])
            boxes = _decoded(file, self.counts[row], 4)
            file.seek(1, 1)
            return _decoded(file, count, self.width), corners_of(self.name(row), boxes, self.sizes[row])


def open_table(path):
    ids, numbers = [], array.array("q")
    with reading(path), open(path, "rb") as file:
        width = _table_width(path, file)
        for each, *others in progress(_table_rows(path, file, width), "index of regions"):
            ids.append(image_id(each))
            numbers.extend(others)
    sizes, counts, starts = np.split(np.array(numbers, np.int64).reshape(-1, 4), (2, 3), axis=1)
    samples = np.array([sample_of(path)], np.int64)
    return TableRegions(path, ids, counts[:, 0], width, sizes, starts[:, 0], samples)


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
