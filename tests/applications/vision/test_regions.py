"""Region features of every format: what is read is what was written, and what is damaged is named."""

import base64
import concurrent.futures
import functools
import json
import os
import shutil
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from files import fails
from program_cases import ROOT

from applications.common.errors import InputError, input_error_in
from applications.common.runs import digest_of
from applications.vision.regions import MemoryRegions, open_regions, with_regions, write_regions

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
    (folder / "train36_imgid2idx.json").write_text(json.dumps(dict(zip(IDS, (2, 0, 1), strict=True))))
    return hdf5(folder / "train36.hdf5", {name: np.array(x)[[1, 2, 0]] for name, x in fixed_arrays().items()})


def adaptive_arrays():
    ends = np.cumsum(COUNTS)
    arrays = {"image_features": np.concatenate(FEATURES), "image_bb": np.concatenate(PIXELS), "image_ids": IDS}
    return arrays | {"pos_boxes": np.stack([ends - COUNTS, ends], axis=1)}


def adaptive(folder):
    folder.mkdir()
    return hdf5(folder / "train.h5", adaptive_arrays())


def own(folder):
    write_regions(folder.with_suffix(".h5"), open_regions(npz(folder)))
    return folder.with_suffix(".h5")


def tsv_line(name, x, boxes, size):
    encoded = [base64.b64encode(each.astype("<f4").tobytes()).decode() for each in (boxes, x)]
    return "\t".join([name, *map(str, size), str(len(x)), *encoded])


def tsv(folder, end="\r\n", images=IMAGES):
    folder.mkdir()
    text = end.join(tsv_line(*image) for image in images)
    (folder / "a.tsv").write_bytes((text + end).encode())
    return folder / "a.tsv"


def joined(folder):
    """Two files, one image in the first; their names give their order."""
    tsv(folder, "\n", IMAGES[:1])
    ends = np.cumsum(COUNTS[1:])
    hdf5(
        folder / "b.h5",
        {
            "image_features": np.concatenate(FEATURES[1:]),
            "spatial_features": spatial(np.concatenate(BOXES[1:])),
            "pos_boxes": np.stack([ends - COUNTS[1:], ends], axis=1),
            "image_ids": IDS[1:],
        },
    )
    return folder


def memory(folder):
    return MemoryRegions(folder, IDS, np.array(COUNTS), WIDTH, padded(FEATURES, 9.0), padded(BOXES, 0.9))


FORMATS = (npz, mcan, named_x, without_sizes, scaled, npy, fixed, adaptive, own, tsv, joined, memory)


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
    return found if form is memory else open_regions(found)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_read_is_what_was_written(form, tmp_path):
    regions = opened(form, tmp_path / "a")
    assert (len(regions), regions.width, sorted(regions.ids)) == (3, WIDTH, sorted(IDS))
    assert [regions.num_cut(count) for count in (0, 1, 3, 4)] == [3, 2, 1, 0]
    for images, max_regions in (((2, 0, 2, 1), 4), ((0, 1), 2), ((1, 2, 0), 6), ((), 3)):
        rows = regions.rows_of([IDS[image] for image in images])
        wanted = expected(images, max_regions, form is not npy)
        same(regions.read(rows, max_regions), wanted)
    assert regions.rows_of(["139", "none"], skip_missing=True).tolist() == [regions.ids.index("139"), -1]
    fails(lambda: regions.rows_of(["7", "139", "7", "8"]), f"{regions.place}: ", "2 of 3 ids without one, 7, 8")
    with pytest.raises(IndexError, match="-1"):
        regions.read(np.array([0, -1]), 2)


@pytest.mark.parametrize("form", (npz, memory, joined))
def test_in_a_graph(form, tmp_path):
    regions = opened(form, tmp_path / "a")
    rows = regions.rows_of([IDS[2], IDS[0], IDS[2], IDS[1]])
    targets = np.arange(4)
    dataset = tf.data.Dataset.from_tensor_slices(({"image": rows, "question": targets}, targets)).batch(3)
    for max_regions in (2, 6):
        batches = with_regions(dataset, regions, max_regions)
        inputs, _ = batches.element_spec
        assert inputs["regions"].shape == (None, max_regions, WIDTH) and inputs["boxes"].shape == (None, max_regions, 4)
        assert inputs["num_regions"].shape == (None,)
        (first, y), (second, _) = list(batches)
        same([first[name] for name in ("regions", "boxes", "num_regions")], expected((2, 0, 2), max_regions))
        same([second[name] for name in ("regions", "boxes", "num_regions")], expected((1,), max_regions))
        assert y.numpy().tolist() == first["question"].numpy().tolist() == [0, 1, 2]
        assert first["image"].numpy().tolist() == rows[:3].tolist()
        same(regions.tensors(tf.constant(rows), max_regions), expected((2, 0, 2, 1), max_regions))


def test_grids_are_flattened_and_have_boxes(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    grid = np.arange(2 * 3 * WIDTH, dtype=np.float16).reshape(2, 3, WIDTH)
    np.save(folder / "7.npy", grid)
    np.savez(folder / "8.npz", x=grid + 1)
    for transposed in (False, True):
        np.savez(folder / "9.npz", x=grid[0].T if transposed else grid[0], bbox=np.ones((3, 4)))
        features, boxes, counts = open_regions(folder).read([0, 1, 2], 6)
        np.testing.assert_array_equal(features[0], grid.reshape(6, WIDTH))
        np.testing.assert_array_equal(features[1], features[0] + 1)
        np.testing.assert_array_equal(features[2, :3], grid[0])
        np.testing.assert_allclose(boxes[0, 4], [1 / 3, 1 / 2, 2 / 3, 1])
        np.testing.assert_allclose(boxes[1, 0], [0, 0, 1 / 3, 1 / 2])
        assert counts.tolist() == [6, 6, 3]


@pytest.mark.parametrize(
    "shapes, transposed",
    [
        (((3, 5), (4, 5)), False),
        (((3, 5), (3, 5)), False),
        (((5, 5),), False),
        (((5, 3), (5, 4)), True),
        (((5, 3), (5, 3)), "1.npz: expected an array x of which boxes, or the other files"),
        (((5, 3), (5, 6)), "1.npz: expected an array x of which boxes, or the other files"),
        (((3, 5), (3, 6)), "2.npz: expected features of width 5, as other files have. Received: 6"),
        (((5, 3), (5, 2), (6, 4)), "3.npz: expected features of width 5, as other files have. Received: 6"),
        (((7, 3), (7, 4), (3, 2)), "expected features of width 7, as other files have. Received: 3"),
    ],
)
def test_which_side_of_x_is_the_width_without_boxes(tmp_path, shapes, transposed):
    for number, shape in enumerate(shapes, start=1):
        np.savez(tmp_path / f"{number}.npz", x=np.ones(shape))
    if isinstance(transposed, str):
        fails(lambda: open_regions(tmp_path), transposed)
    else:
        assert open_regions(tmp_path).transposed == transposed


def test_boxes_say_which_side_of_x_is_the_width(tmp_path):
    def write(*pairs):
        for number, (shape, boxes) in enumerate(pairs, start=1):
            np.savez(tmp_path / f"{number}.npz", x=np.ones(shape), bbox=np.ones((boxes, 4)))

    write(((9, 4), 9), ((4, 4), 4))
    assert not open_regions(tmp_path).transposed
    write(((4, 9), 9), ((4, 4), 4))
    regions = open_regions(tmp_path)
    assert (regions.transposed, regions.width, regions.counts.tolist()) == (True, 4, [9, 4])
    write(((4, 9), 9), ((9, 4), 9))
    fails(lambda: open_regions(tmp_path), f"{tmp_path / '1.npz'}: expected x (n, D), as in {tmp_path / '2.npz'}")
    write(((4, 9), 9), ((4, 8), 7))
    fails(lambda: open_regions(tmp_path), "2.npz: expected a box for each of 8 regions. Received: 7")


BAD_FILES = {
    "expected one array, x or feat. Received: none": {"y": np.ones((2, 3))},
    "expected one array, x or feat. Received: x, feat": {"x": np.ones((2, 3)), "feat": np.ones((2, 3))},
    "expected features (n, D) or (h, w, D). Received: (3,)": {"feat": np.ones(3)},
    "expected features (n, D) or (h, w, D). Received: (2, 0)": {"feat": np.ones((2, 0))},
    "expected boxes (n, 4). Received: (2, 5)": {"feat": np.ones((2, 3)), "bbox": np.ones((2, 5))},
    "expected image_w and image_h. Received: image_h alone": {"feat": np.ones((2, 3)), "image_h": 3},
    "expected a file that can be read. Received: an array of object": {"feat": np.array([[{}]])},
    "expected a file that can be read. Received: an array of complex64": {"feat": np.ones((2, 3), np.complex64)},
    "expected features of width 5, as other files have. Received: 3": {"feat": np.ones((2, 3))},
    "expected a region at least. Received: none, as of 1 of 4 images": {"feat": np.ones((0, 5))},
}


@pytest.mark.parametrize("message", BAD_FILES)
def test_a_bad_file_of_an_image_is_named(message, tmp_path):
    np.savez(npz(tmp_path / "a") / "bad.npz", **BAD_FILES[message])
    fails(lambda: open_regions(tmp_path / "a"), f"{tmp_path / 'a' / 'bad.npz'}: {message}")


def test_two_files_of_one_image(tmp_path):
    folder = npz(tmp_path / "a")
    (folder / "val").mkdir()
    np.save(folder / "val" / "139.npy", FEATURES[0])
    np.save(folder / ".hidden.npy", FEATURES[0])
    fails(lambda: open_regions(folder), f"{folder / 'val' / '139.npy'}: ", f"139 again, after {folder / NAMES[0]}.jpg")


VALUES = {
    "expected finite features. Received: others in region 1": {"feat": [[1.0] * 5, [1.0, np.nan, 1.0, 1.0, 1.0]]},
    "expected finite features. Received: others in region 0": {"feat": [[np.inf] * 5]},
    "expected finite features. Received: others in region 2": {"feat": [[1.0] * 5] * 2 + [[1e300] * 5]},
    "expected boxes x0, y0, x1, y1 in the image. Received: others": [
        {"bbox": [[0.0, 0.0, np.nan, 1.0]]},
        # Width and height instead of the second corner; a box of a larger image; one before its left border.
        {"bbox": [[200.0, 100.0, 50.0, 60.0]], "image_w": 640, "image_h": 480},
        {"bbox": [[0.0, 0.0, 680.0, 480.0]], "image_w": 640, "image_h": 480},
        {"bbox": [[-50.0, 0.0, 640.0, 480.0]], "image_w": 640, "image_h": 480},
        {"bbox": [[0.0, 0.0, 1.0, 1.5]]},
        {"bbox": [[0.0, 0.0, 640.0, 480.0]], "image_w": -640, "image_h": 480},
        {"bbox": [[0.0, 0.0, 640.0, 480.0]], "image_w": 0, "image_h": 480},
    ],
    "expected a file that can be read. Received: can only": {
        "bbox": [[0.0, 0.0, 5.0, 5.0]],
        "image_w": [640, 1],
        "image_h": 480,
    },
}


@pytest.mark.parametrize("message", VALUES)
def test_bad_values_are_named_when_they_are_read(message, tmp_path):
    folder, cases = npz(tmp_path / "a"), VALUES[message]
    for arrays in cases if isinstance(cases, list) else [cases]:
        np.savez(folder / "bad.npz", **{"feat": [[1.0] * 5], **arrays})
        regions = open_regions(folder)
        good = regions.rows_of(IDS)
        assert np.isfinite(regions.read(good, 4)[0]).all()
        fails(lambda regions=regions: regions.read(range(4), 4), f"{folder / 'bad.npz'}: {message}")


def test_boxes_are_divided_by_the_size_or_their_maxima(tmp_path):
    boxes = np.array([[0.0, 10.0, 50.0, 100.0], [100.0, 0.0, 200.0, 50.0]])
    for name, size in (("a", {}), ("b", {"image_w": 400, "image_h": np.array([200])})):
        np.savez(tmp_path / f"{name}.npz", feat=np.ones((2, 3)), bbox=boxes, **size)
    np.savez(tmp_path / "c.npz", feat=np.ones((2, 3)), bbox=boxes / 200, image_w=400, image_h=200)
    # A little beyond the border.
    np.savez(tmp_path / "d.npz", feat=np.ones((2, 3)), bbox=boxes * 1.02, image_w=200, image_h=100)
    _, found, _ = open_regions(tmp_path).read([0, 1, 2, 3], 1)
    np.testing.assert_allclose(found[0], [[0.0, 0.1, 0.25, 1.0]])
    np.testing.assert_allclose(found[1], [[0.0, 0.05, 0.125, 0.5]])
    np.testing.assert_allclose(found[2], [[0.0, 0.05, 0.25, 0.5]])
    np.testing.assert_allclose(found[3], [[0.0, 0.102, 0.255, 1.0]], rtol=1e-6)


@pytest.mark.parametrize("form", (npz, npy, adaptive, own, tsv))
def test_a_file_that_is_cut_off(form, tmp_path):
    path = form(tmp_path / "a")
    file = path if path.is_file() else sorted(path.iterdir())[1]
    content = file.read_bytes()
    place = f"{file}:3: " if form is tsv else f"{file}: "
    for length in (0, len(content) // 2, len(content) - 4):
        file.write_bytes(content[:length])
        fails(
            lambda: open_regions(path),
            f"{file}:2: " if form is tsv and length == len(content) // 2 else (f"{file}: " if not length else place),
        )


def test_files_that_change_after_they_were_opened(tmp_path):
    folder = npz(tmp_path / "a")
    regions = open_regions(folder)
    file = folder / regions.files[0]
    content = bytearray(file.read_bytes())
    start = content.index(FEATURES[0].tobytes())
    content[start + 1] ^= 1
    file.write_bytes(content)
    fails(lambda: regions.read([0], 4), f"{file}: expected a file that can be read. Received: Bad CRC-32")
    np.savez(file, feat=np.ones((2, WIDTH)))
    fails(lambda: regions.read([0], 4), f"{file}: expected 3 regions of width 5, as when it was opened.")
    file.unlink()
    fails(lambda: regions.read([0], 4), f"{file}: ", "No such file")


def changed(arrays, **values):
    return {name: x for name, x in (arrays | values).items() if x is not None}


BAD_HDF5 = {
    "expected a data set image_features. Received: image_ids": {"image_ids": IDS},
    "expected image_features of 2 or 3 axes, floating numbers. Received: int64": changed(
        adaptive_arrays(), image_features=np.ones((8, 5), int)
    ),
    "expected a data set pos_boxes. Received: image_bb, image_features, image_ids": changed(
        adaptive_arrays(), pos_boxes=None
    ),
    "expected pos_boxes (N, 2), rows of 8 regions. Received: others": changed(
        adaptive_arrays(), pos_boxes=[[0, 3], [3, 4], [4, 9]]
    ),
    "expected pos_boxes of 2 axes, integers. Received: float64 (3, 2)": changed(
        adaptive_arrays(), pos_boxes=np.ones((3, 2))
    ),
    "image 1000: expected a region at least. Received: none, as of 2 of 3 images": changed(
        adaptive_arrays(), pos_boxes=[[0, 3], [3, 3], [4, 3]]
    ),
    "expected num_boxes (3,), 4 at most. Received: others": changed(fixed_arrays(), image_ids=IDS, num_boxes=[3, 1, 5]),
    "expected spatial_features (3, 4, 6). Received: (3, 3, 6)": changed(
        fixed_arrays(), image_ids=IDS, spatial_features=np.ones((3, 3, 6))
    ),
    "image_ids: expected the ids of 3 images. Received: 2": changed(adaptive_arrays(), image_ids=IDS[:2]),
    "expected image_ids of 1 axes, integers or strings. Received: float64": changed(
        adaptive_arrays(), image_ids=np.ones(3)
    ),
    "image 7: expected every image once. Received: 7 again, after": changed(adaptive_arrays(), image_ids=[7, 8, 7]),
    "expected a data set image_ids, or bad_imgid2idx.json beside it. Received: neither": adaptive_arrays()
    | {"image_ids": None},
    "expected features of images. Received: none": {
        "image_features": np.ones((0, 4, 5)),
        "image_ids": np.zeros(0, int),
    },
}


@pytest.mark.parametrize("message", BAD_HDF5)
def test_bad_hdf5(message, tmp_path):
    path = hdf5(tmp_path / "bad.h5", changed(BAD_HDF5[message]))
    fails(lambda: open_regions(path), f"{path}", message)


def test_all_regions_are_read_where_no_numbers_of_them_are(tmp_path):
    arrays = changed(fixed_arrays(), num_boxes=None, image_ids=IDS)
    regions = open_regions(hdf5(tmp_path / "a.h5", arrays))
    assert regions.counts.tolist() == [4, 4, 4]
    same(regions.read([1, 2], 4), (padded(FEATURES, 9.0)[1:], padded(BOXES, 0.9)[1:], np.array([4, 4])))


def test_ids_of_published_hdf5(tmp_path):
    """Integers in the file; or a dictionary beside it, which the error says how to make of the published pickle."""
    arrays = changed(adaptive_arrays(), image_ids=np.array([139, 1000, 7]))
    assert open_regions(hdf5(tmp_path / "a.hdf5", arrays)).ids == ["139", "1000", "7"]
    path = hdf5(tmp_path / "b.hdf5", changed(arrays, image_ids=None))
    beside = tmp_path / "b_imgid2idx.json"
    # {139: 0, 1000: 1, 7: 2} as Python 2 has written it.
    beside.with_suffix(".pkl").write_bytes(b"(dp0\nI139\nI0\nsI1000\nI1\nsI7\nI2\ns.")
    with pytest.raises(InputError, match=r"b_imgid2idx\.json beside it\. Received: neither; if you trust") as caught:
        open_regions(path)
    command = str(caught.value).partition("make it: python ")[2].replace('"', "").split(maxsplit=1)[1]
    code, source, target = command.rsplit(maxsplit=2)
    subprocess.run([sys.executable, "-I", "-S", "-c", code, source, target], check=True)
    assert open_regions(path).ids == ["139", "1000", "7"]
    for text in ('{"139": 0, "1000": 0, "7": 2}', "[0, 1, 2]", '{"139": ', '{"139": "0"}'):
        beside.write_text(text)
        fails(lambda: open_regions(path), f"{beside}: expected a file that can be read. Received: ")
    beside.write_text('{"139": 0}')
    fails(lambda: open_regions(path), f"{beside}: expected the ids of 3 images. Received: 1")


def test_damaged_hdf5_is_named_when_it_is_read(tmp_path):
    path = tmp_path / "a.h5"
    arrays = adaptive_arrays()
    with h5py.File(path, "w") as file:
        for name, x in arrays.items():
            chunks = {"chunks": (1, WIDTH), "fletcher32": True} if name == "image_features" else {}
            file.create_dataset(name, data=x, **chunks)
    content = bytearray(path.read_bytes())
    content[content.index(FEATURES[1].tobytes())] ^= 1
    path.write_bytes(content)
    regions = open_regions(path)
    assert regions.read([0, 2], 4)[2].tolist() == [3, 4]
    fails(lambda: regions.read([0, 1], 4), f"{path}, image 1000: expected a file that can be read. Received: ")


def lines_of(changes):
    """The lines of a table with other fields, by the numbers of lines and fields from 0."""
    lines = [tsv_line(*image).split("\t") for image in IMAGES]
    for (row, field), change in changes.items():
        lines[row][field] = change(lines[row][field])
    return "".join("\t".join(fields) + "\n" for fields in lines)


BAD_TABLES = {
    ":2: expected image_id, image_w, image_h, num_boxes": {(1, 1): lambda text: "wide"},
    ":2: expected an image with a size. Received: 0 x 375": {(1, 1): lambda text: "0"},
    ":3: expected a region at least. Received: none, as of 1 of 3 images": {
        (2, 3): lambda text: "0",
        (2, 4): lambda text: "",
        (2, 5): lambda text: "",
    },
    "24 and 28 characters of base64 for 1 regions of width 5. Received: 24 and 24": {(1, 5): lambda text: text[4:]},
    "24 and 28 characters of base64 for 1 regions of width 5. Received: 24 and 32": {
        (1, 5): lambda text: text + "AAAA"
    },
    "44 and 56 characters of base64 for 2 regions of width 5. Received: 88 and 108": {(2, 3): lambda text: "2"},
    "the last two 24 and 28 characters of base64 for 1 regions of width 5. Received: 7 fields": {
        (1, 4): lambda text: text[:5] + "\t" + text[5:]
    },
    ":3: expected every image once. Received: 139 again, after": {(2, 0): lambda text: "000000000139"},
}


@pytest.mark.parametrize("message", BAD_TABLES)
def test_bad_tables(message, tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_text(lines_of(BAD_TABLES[message]))
    fails(lambda: open_regions(path), f"{path}:", message)


def test_damaged_base64_is_named_when_it_is_read(tmp_path):
    path = tmp_path / "bad.tsv"
    for change in (lambda text: "*" + text[1:], lambda text: "****" + text[4:]):
        for field in (4, 5):
            path.write_text(lines_of({(1, field): change}))
            regions = open_regions(path)
            assert regions.read([2, 0], 4)[2].tolist() == [4, 3]
            fails(lambda regions=regions: regions.read([0, 1], 4), f"{path}:2: expected a file that can be read.")


def test_what_is_none_of_the_formats(tmp_path):
    fails(lambda: open_regions(tmp_path / "none"), f"{tmp_path / 'none'}: ", "Received: nothing of this name")
    fails(lambda: open_regions(tmp_path), f"{tmp_path}: expected .npz and .npy files, or", "Received: none")
    (tmp_path / "a.lmdb").write_bytes(b"")
    fails(lambda: open_regions(tmp_path / "a.lmdb"), "Received: a file that ends in '.lmdb'")
    folder = joined(tmp_path / "a")
    np.save(folder / "8.npy", FEATURES[0])
    fails(lambda: open_regions(folder), f"Received: {folder / 'a.tsv'} and {folder / '8.npy'}")
    (folder / "8.npy").unlink()
    shutil.copy(folder / "b.h5", folder / "c.h5")
    fails(lambda: open_regions(folder), f"{folder / 'c.h5'}, image 1000: ", f"again, after {folder / 'b.h5'}, image")
    (folder / "c.h5").unlink()
    hdf5(folder / "c.h5", {"image_features": np.ones((1, 2, 3)), "image_ids": [5]})
    fails(lambda: open_regions(folder), "expected features of one width. Received: 5 in ", f", 3 in {folder / 'c.h5'}")


@pytest.mark.parametrize("form", (npz, tsv, own))
def test_several_threads_read_at_once(form, tmp_path):
    regions = opened(form, tmp_path / "a")
    orders = [np.random.default_rng(seed).integers(3, size=20) for seed in range(16)]
    alone = [regions.read(rows, 3) for rows in orders]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda rows: regions.read(rows, 3), orders))
    for first, second in zip(alone, together, strict=True):
        for x, y in zip(first, second, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("form", (npz, own, tsv))
def test_a_run_knows_its_features_by_what_they_hold(form, tmp_path):
    """Wherever they lie, and whenever they were written."""
    path = form(tmp_path / "a")
    digest = digest_of(open_regions(path))
    moved = tmp_path / "elsewhere" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    for file in [moved, *moved.rglob("*")]:
        os.utime(file, (0, 0))
    assert digest_of(open_regions(moved)) == digest
    file = moved if moved.is_file() else sorted(moved.iterdir())[0]
    old = FEATURES[0].tobytes()
    if form is tsv:
        file.write_text(lines_of({(0, 5): lambda text: base64.b64encode(old[::-1]).decode()}).replace("\n", "\r\n"))
    elif form is npz:
        np.savez(file, feat=FEATURES[0] + 1, bbox=PIXELS[0], image_w=640, image_h=480)
    else:
        with h5py.File(file, "r+") as changed:
            changed["image_features"][0, 0] += 1
    assert digest_of(open_regions(moved)) != digest


def test_writing_is_atomic(tmp_path, monkeypatch):
    path = own(tmp_path / "a")
    content = path.read_bytes()
    monkeypatch.setattr(MemoryRegions, "read_image", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_regions(path, memory("a"))
    assert path.read_bytes() == content and [file.name for file in tmp_path.iterdir() if file.is_file()] == ["a.h5"]


def test_shapes_in_memory():
    features, boxes = np.ones((2, 3, WIDTH), np.float32), np.ones((3, 4), np.float32)
    regions = MemoryRegions("a", ["1", "2"], np.array([3, 2]), WIDTH, features, boxes)
    assert regions.read([1], 3)[1].tolist() == [[[1.0] * 4, [1.0] * 4, [0.0] * 4]]
    assert regions.tensors(tf.constant([1]), 3)[1].numpy().tolist() == regions.read([1], 3)[1].tolist()
    for arguments in (
        ([3, 4], WIDTH, features, boxes),
        ([3, 2], 4, features, boxes),
        ([3, 2], WIDTH, features, boxes[1:]),
    ):
        with pytest.raises(ValueError, match="Received: "):
            MemoryRegions("a", ["1", "2"], np.array(arguments[0]), *arguments[1:])


def test_an_error_in_the_midst_of_training(tmp_path):
    """The error of the graph is known by what it holds."""
    folder = npz(tmp_path / "zürich")
    np.save(folder / "bad.npy", np.full((2, WIDTH), np.nan))
    regions = open_regions(folder)
    rows = regions.rows_of([*IDS, "bad"])
    dataset = tf.data.Dataset.from_tensor_slices(({"image": rows}, np.ones((4, 1)))).batch(1)
    inputs = keras.Input((2, WIDTH), name="regions")
    model = keras.Model([inputs], keras.layers.Dense(1)(keras.layers.Flatten()(inputs)))
    model.compile("sgd", "mse")
    message = f"{folder / 'bad.npy'}: expected finite features. Received: others in region 0"
    fit, evaluate, predict = functools.partial(model.fit, shuffle=False), model.evaluate, model.predict
    for call in (fit, evaluate, predict, list):
        batches = with_regions(dataset, regions, 2)
        with pytest.raises(tf.errors.OpError) as caught:
            call(batches)
        assert str(input_error_in(caught.value)) == message


# Training that meets a bad file, while other threads read on.
FAILING = """
import sys, time
import numpy as np, tensorflow as tf
from applications.common import command_line
from applications.ved.options import PROGRAM
from applications.vision.regions import Regions, open_regions, with_regions

def read(self, rows, max_regions, read=Regions.read):
    time.sleep(0.05)
    return read(self, rows, max_regions)

def prepare(*arguments):
    Regions.read = read
    regions = open_regions(sys.argv[1])
    dataset = tf.data.Dataset.range(len(regions)).map(lambda row: ({"image": row},)).batch(1).repeat()
    iterator = iter(with_regions(dataset, regions, 2))
    # It is freed late, as where Keras holds it.
    cycle = [iterator]
    cycle.append(cycle)
    list(iterator)

command_line.prepare = prepare
sys.exit(command_line.main(PROGRAM, ["train"]))
"""


def test_a_program_that_fails_ends_with_one_line(tmp_path):
    """Though reads are under way, which no thread finishes once Python ends."""
    folder = npz(tmp_path / "a")
    np.save(folder / "bad.npy", np.full((2, WIDTH), np.nan))
    result = subprocess.run(
        [sys.executable, "-c", FAILING, str(folder)], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    line = f"error: {folder / 'bad.npy'}: expected finite features. Received: others in region 0"
    assert (result.returncode, result.stderr.splitlines()[-1]) == (2, line), result.stderr
    assert "Traceback" not in result.stderr
