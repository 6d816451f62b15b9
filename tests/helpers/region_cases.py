"""Region features of three images in every format, and what is read of them."""

import base64
import json

import h5py
import numpy as np

from applications.vision.region_hdf5 import open_regions, write_regions
from applications.vision.regions import MemoryRegions
from tools.convert_regions import open_source

WIDTH = 5
COUNTS = (3, 1, 4)
NAMES = ("COCO_train2014_000000000139", "COCO_train2014_000000001000", "synpic7")
IDS = ["139", "1000", "synpic7"]
SIZES = ((640, 480), (500, 375), (64, 64))
generator = np.random.default_rng(0)
FEATURES = [generator.normal(size=(count, WIDTH)).astype(np.float32) for count in COUNTS]
# Corners in pixels. Those of every image reach its corner, so that their maxima are its size.
PIXELS = [
    np.concatenate([generator.uniform(0, 0.5, (count, 2)), generator.uniform(0.5, 1, (count, 2))], axis=1)
    * np.tile(size, 2)
    for count, size in zip(COUNTS, SIZES, strict=True)
]
for pixels, size in zip(PIXELS, SIZES, strict=True):
    pixels[0, 2:] = size
BOXES = [pixels / np.tile(size, 2) for pixels, size in zip(PIXELS, SIZES, strict=True)]
IMAGES = list(zip(NAMES, FEATURES, PIXELS, SIZES, strict=True))


def npz(folder, change=lambda arrays: arrays):
    folder.mkdir()
    for name, x, boxes, (width, height) in IMAGES:
        arrays = change({"feat": x, "bbox": boxes, "image_w": width, "image_h": height})
        np.savez(folder / f"{name}.jpg.npz", info=np.array({"a": "pickle"}), **arrays)
    return folder


def mcan(folder):
    return npz(folder, lambda arrays: {"x": arrays.pop("feat").T, **arrays})


def named_x(folder):
    return npz(folder, lambda arrays: {"x": arrays.pop("feat"), **arrays})


def without_sizes(folder):
    return npz(folder, lambda arrays: {"feat": arrays["feat"], "boxes": arrays["bbox"]})


def scaled(folder):
    def change(arrays):
        size = np.tile([arrays["image_w"], arrays["image_h"]], 2)
        return {"feat": arrays["feat"].astype(np.float64), "bbox": arrays["bbox"] / size}

    return npz(folder, change)


def npy(folder):
    folder.mkdir()
    for name, x, *_ in IMAGES:
        np.save(folder / f"{name}.npy", x)
    return folder


def padded(arrays, fill):
    found = np.full((len(arrays), max(COUNTS), *arrays[0].shape[1:]), fill, np.float32)
    for row, x in enumerate(arrays):
        found[row, : len(x)] = x
    return found


def hdf5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, x in arrays.items():
            file[name] = x
    return path


def spatial(boxes):
    return np.concatenate([boxes, boxes[..., 2:] - boxes[..., :2]], axis=-1).astype(np.float32)


def fixed_arrays():
    """All images with as many regions: what follows their own is not to be read."""
    features, boxes = padded(FEATURES, 9.0), padded(BOXES, 0.9)
    return {"image_features": features, "spatial_features": spatial(boxes), "num_boxes": COUNTS}


def fixed(folder):
    folder.mkdir()
    arrays = {name: np.array(x)[[1, 2, 0]] for name, x in fixed_arrays().items()}
    return hdf5(folder / "train36.hdf5", arrays | {"image_ids": [IDS[row] for row in (1, 2, 0)]})


def without_ids(folder):
    """As published: the ids beside the file."""
    folder.mkdir()
    (folder / "train36_imgid2idx.json").write_text(json.dumps(dict(zip(IDS, (2, 0, 1), strict=True))))
    return hdf5(folder / "train36.hdf5", {name: np.array(x)[[1, 2, 0]] for name, x in fixed_arrays().items()})


def adaptive_arrays():
    ends = np.cumsum(COUNTS)
    boxes = spatial(np.concatenate(BOXES))
    arrays = {"image_features": np.concatenate(FEATURES), "spatial_features": boxes, "image_ids": IDS}
    return arrays | {"pos_boxes": np.stack([ends - COUNTS, ends], axis=1)}


def adaptive(folder):
    folder.mkdir()
    return hdf5(folder / "train.h5", adaptive_arrays())


def own(folder):
    write_regions(folder.with_suffix(".h5"), memory(folder))
    return folder.with_suffix(".h5")


def tsv_line(name, x, boxes, size):
    encoded = [base64.b64encode(each.astype("<f4").tobytes()).decode() for each in (boxes, x)]
    return "\t".join([name, *map(str, size), str(len(x)), *encoded])


def tsv(folder, end="\r\n", images=IMAGES):
    folder.mkdir()
    text = end.join(tsv_line(*image) for image in images)
    (folder / "a.tsv").write_bytes((text + end).encode())
    return folder / "a.tsv"


def memory(folder):
    return MemoryRegions(folder, IDS, np.array(COUNTS), WIDTH, padded(FEATURES, 9.0), padded(BOXES, 0.9))


FORMATS = (fixed, adaptive, own, memory)
OTHERS = (npz, mcan, named_x, without_sizes, scaled, npy, without_ids, tsv)


def expected(rows, max_regions, has_boxes=True):
    features = np.zeros((len(rows), max_regions, WIDTH), np.float32)
    boxes = np.zeros((len(rows), max_regions, 4), np.float32)
    for index, row in enumerate(rows):
        count = min(COUNTS[row], max_regions)
        features[index, :count] = FEATURES[row][:count]
        boxes[index, :count] = BOXES[row][:count] if has_boxes else 0.0
    return features, boxes, np.minimum(np.array(COUNTS)[list(rows)], max_regions)


def same(found, wanted):
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)
        assert x.dtype == (np.int32 if y.ndim == 1 else np.float32)


def opened(form, folder):
    found = form(folder)
    if form in OTHERS:
        return open_source(found, form is mcan)
    return found if form is memory else open_regions(found)


def lines_of(changes):
    """The lines of a table with other fields, by the numbers of lines and fields from 0."""
    lines = [tsv_line(*image).split("\t") for image in IMAGES]
    for (row, field), change in changes.items():
        lines[row][field] = change(lines[row][field])
    return "".join("\t".join(fields) + "\n" for fields in lines)
