"""Features of the regions of images, by id: in memory, or in the files in which they are published.

Opening files looks at their headers, and holds an index; features are read batch by batch, where they are needed.

Shapes: N images, B of a batch, R regions of an image with padding, n without, D width of a region's features.
"""

import dataclasses
import pathlib

import numpy as np

from applications.common.errors import InputError
from applications.vision.region_base import MemoryRegions, Regions
from applications.vision.region_folder import open_folder
from applications.vision.region_hdf5 import open_hdf5, write_regions
from applications.vision.region_table import open_table

__all__ = ["JoinedRegions", "MemoryRegions", "Regions", "open_regions", "with_regions", "write_regions"]
# Batches that are read at a time, and that wait to be used: what is in memory does not depend on the machine.
PARALLEL_BATCHES = 4
WAITING_BATCHES = 2


@dataclasses.dataclass
class JoinedRegions(Regions):
    """Several `Regions` as one.

    Args:
        parts: List of them.
    """

    parts: list

    def __post_init__(self, place):
        self._ends = np.cumsum([len(part) for part in self.parts])
        super().__post_init__(place)

    def _part_of(self, row):
        part = np.searchsorted(self._ends, row, side="right")
        return self.parts[part], row - self._ends[part] + len(self.parts[part])

    def name(self, row):
        part, row = self._part_of(row)
        return part.name(row)

    def read_image(self, row, count):
        part, row = self._part_of(row)
        return part.read_image(row, count)


def with_regions(dataset, regions, max_regions):
    """Return batches with the regions of their images.

    Args:
        dataset: `tf.data.Dataset` of tuples, first a dictionary of inputs, whose "image" is int (B,), rows of regions.
        regions: `Regions`.
        max_regions: R.

    Returns:
        The dataset, its inputs with "regions" (B, R, D), "boxes" (B, R, 4) and "num_regions" (B,), as `Regions.read`
        has them.
    """

    def add(inputs, *others):
        found = regions.tensors(inputs["image"], max_regions)
        return inputs | dict(zip(("regions", "boxes", "num_regions"), found, strict=True)), *others

    return dataset.map(add, num_parallel_calls=PARALLEL_BATCHES).prefetch(WAITING_BATCHES)


_OPENERS = {".h5": open_hdf5, ".hdf5": open_hdf5, ".tsv": open_table}


def open_regions(path):
    """Return the `Regions` of files, whose headers are checked, and whose values are when they are read.

    - A folder, searched through for .npz and .npy files of one image each, whose ids are those of `image_id`. An .npz
      has an array `x` or `feat`; and perhaps the corners of the boxes, `bbox` or `boxes` (n, 4), and the size of the
      image in pixels, `image_w` and `image_h`. An .npy and `feat` are regions (n, D), or the cells of a grid
      (h, w, D), whose boxes are known. `x` is the same, or the transpose (D, n) of MCAN in all files: which, says the
      number of boxes; without boxes `x` is (n, D) if all files have fewer regions than width, and (D, n) if all have
      another side that is the same D and longer than the different n. Anything else is an error.
    - An .h5 or .hdf5 of bottom-up attention: `image_features` (N, R, D), of which an image has `num_boxes` (N,) or
      all; or the regions of all images one after the other, (_, D), and `pos_boxes` (N, 2), where those of an image
      begin and end. Boxes are `spatial_features` (..., 6) or `image_bb` (..., 4); ids `image_ids` (N,), or in
      NAME_imgid2idx.json beside NAME.hdf5 a dictionary from ids to rows.
    - A .tsv of bottom-up attention: image_id, image_w, image_h, num_boxes, and in base64 boxes and features.
    - A folder of several of these two kinds of file, of training and validation for instance.

    Boxes are divided by the size of the image; where it is not known, by their own maxima; not at all where no
    coordinate is larger than 2.

    Raises:
        InputError: For files that cannot be read or are cut off, features of different widths, images without regions,
            ids that occur twice.
    """
    path = pathlib.Path(path)
    if path.is_file() and path.suffix in _OPENERS:
        return _OPENERS[path.suffix](path)
    if not path.is_dir():
        received = f"a file that ends in {path.suffix!r}" if path.is_file() else "nothing of this name"
        raise InputError(
            f"{path}: expected a folder of .npz or .npy files, or an .h5, .hdf5 or .tsv file. Received: {received}"
        )
    files = _visible(path.rglob("*"), (".npz", ".npy"))
    others = _visible(path.iterdir(), _OPENERS)
    if files and not others:
        return open_folder(path, files)
    if files or not others:
        received = f"{others[0]} and {files[0]}" if files else "none"
        raise InputError(f"{path}: expected .npz and .npy files, or .h5, .hdf5 and .tsv files. Received: {received}")
    parts = [_OPENERS[file.suffix](file) for file in others]
    widths = {part.width: part.place for part in parts}
    if len(widths) > 1:
        received = ", ".join(f"{width} in {place}" for width, place in widths.items())
        raise InputError(f"{path}: expected features of one width. Received: {received}")
    ids = [each for part in parts for each in part.ids]
    return JoinedRegions(path, ids, np.concatenate([part.counts for part in parts]), parts[0].width, parts)


def _visible(files, endings):
    return sorted(file for file in files if file.suffix in endings and file.name[0] != "." and file.is_file())
