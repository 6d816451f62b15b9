"""Converts published region features to the HDF5 format that the programs read with the option `--features`.

    python -m tools.convert_regions SOURCE [SOURCE ...] --out regions.h5 [--transposed]

The regions of all sources, for instance training and validation, are written to one file. A SOURCE is one of these:

- A folder with .npz files, which may be in subfolders. Each file is named after the id of an image. Its array `x` or
  `feat` (n, D) contains the n regions of this image. Optional arrays are `bbox` (n, 4), the corners of the boxes, and
  `image_w` and `image_h`, the size of the image in pixels. With `--transposed`, `x` is (D, n), as published for MCAN.
- A .tsv file of bottom-up features, with the columns image_id, image_w, image_h, num_boxes, boxes and features. The
  boxes and the features are in base64.
- An .h5 or .hdf5 file of bottom-up features. The array `image_ids` contains the ids. The published files NAME.hdf5 lack
  this array; NAME_imgid2idx.json in the same folder must then contain a dictionary that maps ids to rows.

Boxes are divided by the size of the image, if the file contains this size.
"""

import argparse
import base64
import csv
import json
import pathlib
import sys

import h5py
import numpy as np

from applications.common.errors import InputError, reading
from applications.common.progress import progress
from applications.vision.images import image_id
from applications.vision.region_hdf5 import BOXES, FEATURES, IDS, SPANS, write_regions

_COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


def read_folder(path, transposed):
    for file in progress(sorted(path.rglob("*.npz")), "regions"):
        # Unpickling could run code from the file.
        with reading(file), np.load(file, allow_pickle=False) as arrays:
            features = arrays["x"] if "x" in arrays else arrays["feat"]
            if transposed and "x" in arrays:
                features = features.T
            boxes = arrays.get("bbox")
            if boxes is not None and "image_w" in arrays:
                boxes = boxes / np.tile([arrays["image_w"], arrays["image_h"]], 2)
        yield image_id(file.name), features, boxes


def read_table(path):
    csv.field_size_limit(2**31 - 1)
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, _COLUMNS, delimiter="\t", quoting=csv.QUOTE_NONE)
        for number, row in enumerate(progress(rows, "regions"), start=1):
            with reading(f"{path}:{number}", f"{', '.join(_COLUMNS)}, separated by tabs"):
                boxes, features = (
                    np.frombuffer(base64.b64decode(row[name], validate=True), "<f4").reshape(int(row["num_boxes"]), -1)
                    for name in ("boxes", "features")
                )
                boxes = boxes / np.tile([int(row["image_w"]), int(row["image_h"])], 2)
            yield image_id(row["image_id"]), features, boxes


def read_hdf5(path):
    ids_file = path.with_name(f"{path.stem}_imgid2idx.json")
    with reading(path, f"{FEATURES} and {IDS}, or the ids in {ids_file.name}"), h5py.File(path, "r") as file:
        if ids_file.is_file():
            row_of = json.loads(ids_file.read_text(encoding="utf-8"))
            ids = sorted(row_of, key=row_of.get)
        else:
            ids = file[IDS][:] if file[IDS].dtype.kind in "iu" else file[IDS].asstr()[:]
        for row, each in enumerate(progress(ids, "regions")):
            if SPANS in file:
                rows = slice(*file[SPANS][row])
            else:
                rows = (row, slice(file["num_boxes"][row] if "num_boxes" in file else None))
            yield image_id(each), file[FEATURES][rows], file[BOXES][rows][:, :4] if BOXES in file else None


def read_source(path, transposed=False):
    """Yield (id, features (n, D), boxes (n, 4) or `None`) for each image in a folder or file."""
    path = pathlib.Path(path)
    if path.is_dir():
        return read_folder(path, transposed)
    readers = {".h5": read_hdf5, ".hdf5": read_hdf5, ".tsv": read_table}
    if not path.is_file() or path.suffix not in readers:
        raise InputError(f"{path}: expected a folder of .npz files, or an .h5, .hdf5 or .tsv file")
    return readers[path.suffix](path)


def convert(sources, out, transposed=False):
    """Write the regions of all sources to one HDF5 file, in the order of the sources."""
    if pathlib.Path(out).exists():
        raise InputError(f"--out: expected a new file. Received: {out}, which exists")
    images = (image for source in sources for image in read_source(source, transposed))
    num_images, num_regions = write_regions(pathlib.Path(out), images)
    print(f"written: {out}, {num_images} images, {num_regions} regions")


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
