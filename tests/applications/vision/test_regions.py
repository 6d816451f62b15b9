"""Tests that region features of all formats are read correctly, in graphs and threads, and errors for invalid files."""

import base64
import concurrent.futures
import functools
import json
import os
import zlib

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from files import fails

from applications.common.errors import input_error_in
from applications.common.runs import digest_of
from applications.vision.codec import RegionCodec
from applications.vision.region_hdf5 import open_regions, write_regions
from applications.vision.regions import MemoryRegions
from tools.convert_regions import main

WIDTH = 5
COUNTS = (3, 1, 4)
NAMES = ("COCO_train2014_000000000139", "COCO_train2014_000000001000", "synpic7")
IDS = ["139", "1000", "synpic7"]
SIZES = ((640, 480), (500, 375), (64, 64))
generator = np.random.default_rng(0)
FEATURES = [generator.normal(size=(count, WIDTH)).astype(np.float32) for count in COUNTS]
BOXES = [
    np.hstack([generator.uniform(0, 0.5, (count, 2)), generator.uniform(0.5, 1, (count, 2))]).astype(np.float32)
    for count in COUNTS
]
PIXELS = [boxes * np.tile(size, 2).astype(np.float32) for boxes, size in zip(BOXES, SIZES, strict=True)]


def padded(arrays):
    """Return arrays padded to one length. Readers must not return the padding value 0.9."""
    together = np.full((len(arrays), max(COUNTS), arrays[0].shape[1]), 0.9, np.float32)
    for row, x in enumerate(arrays):
        together[row, : len(x)] = x
    return together


def expected(images, max_regions):
    counts = np.minimum(np.array(COUNTS)[list(images)], max_regions)
    mask = np.arange(max_regions)[:, None] < counts[:, None, None]
    filled = (np.pad(padded(x), [(0, 0), (0, 4), (0, 0)])[list(images), :max_regions] for x in (FEATURES, BOXES))
    return *(np.where(mask, x, 0.0) for x in filled), counts


def same(regions, images, max_regions):
    """Assert that the regions of images are read correctly."""
    rows = regions.rows_of([IDS[image] for image in images])
    for x, y in zip(regions.read(rows, max_regions), expected(images, max_regions), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def write_npz(folder, transposed=False):
    for name, x, boxes, (width, height) in zip(NAMES, FEATURES, PIXELS, SIZES, strict=True):
        features = {"x": x.T} if transposed else {"feat": x}
        np.savez(folder / f"{name}.jpg.npz", bbox=boxes, image_w=width, image_h=height, **features)
    return folder


def write_tsv(folder):
    lines = []
    for name, x, boxes, size in zip(NAMES, FEATURES, PIXELS, SIZES, strict=True):
        encoded = [base64.b64encode(array.tobytes()).decode() for array in (boxes, x)]
        lines.append("\t".join([name, *map(str, size), str(len(x)), *encoded]) + "\r\n")
    (folder / "a.tsv").write_bytes("".join(lines).encode())
    return folder / "a.tsv"


def write_hdf5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, x in arrays.items():
            file[name] = x
    return path


def with_sizes(boxes):
    return np.concatenate([boxes, boxes[..., 2:] - boxes[..., :2]], axis=-1)


def write_fixed(folder):
    """Write files in the published format: equal numbers of regions for all images, and the ids in a separate file."""
    (folder / "train36_imgid2idx.json").write_text(json.dumps(dict(zip(IDS, (2, 0, 1), strict=True))))
    arrays = {"image_features": padded(FEATURES), "spatial_features": with_sizes(padded(BOXES)), "num_boxes": COUNTS}
    return write_hdf5(folder / "train36.hdf5", **{name: np.array(x)[[1, 2, 0]] for name, x in arrays.items()})


def adaptive():
    ends = np.cumsum(COUNTS)
    features = {"image_features": np.concatenate(FEATURES), "spatial_features": with_sizes(np.concatenate(BOXES))}
    return features | {"pos_boxes": np.stack([ends - COUNTS, ends], axis=1), "image_ids": IDS}


def fixed():
    """Return the arrays of a file with equal numbers of regions for all images, (N, R, D)."""
    arrays = {"image_features": padded(FEATURES), "spatial_features": with_sizes(padded(BOXES)), "num_boxes": COUNTS}
    return arrays | {"image_ids": IDS}


def test_ids_are_names_or_numbers(tmp_path):
    numbers = write_hdf5(tmp_path / "numbers.h5", **adaptive() | {"image_ids": [139, 1000, 7]})
    assert open_regions(numbers).ids == ["139", "1000", "7"]


@pytest.fixture
def path(tmp_path):
    """Write a file of region features and return its path."""
    write_regions(tmp_path / "regions.h5", zip(IDS, FEATURES, BOXES, strict=True))
    return tmp_path / "regions.h5"


def memory():
    return MemoryRegions("memory", IDS, np.array(COUNTS), WIDTH, padded(FEATURES), padded(BOXES))


def test_reading_returns_what_was_written(path, tmp_path):
    files = [path, write_hdf5(tmp_path / "a.h5", **adaptive()), write_hdf5(tmp_path / "fixed.h5", **fixed())]
    for regions in (memory(), *map(open_regions, files)):
        assert (len(regions), regions.width, regions.ids) == (3, WIDTH, IDS)
        assert [regions.num_cut(count) for count in (0, 1, 3, 4)] == [3, 2, 1, 0]
        for images, max_regions in (((2, 0, 2, 1), 4), ((0, 1), 2), ((1, 2, 0), 6), ((), 3)):
            same(regions, images, max_regions)
        fails(lambda regions=regions: regions.rows_of(["7", "139", "7", "8"]), "2 of 3 ids without an image, 7, 8")


@pytest.mark.parametrize("form", [write_npz, functools.partial(write_npz, transposed=True), write_tsv, write_fixed])
def test_other_formats_become_one_file(form, tmp_path, capsys):
    out, transposed = tmp_path / "out.h5", isinstance(form, functools.partial)
    (tmp_path / "source").mkdir()
    source = form(tmp_path / "source")
    assert main([str(source), "--out", str(out), *(["--transposed"] if transposed else [])]) == 0
    assert f"written: {out}, 3 images, 8 regions" in capsys.readouterr().out
    for images, max_regions in (((2, 0, 2, 1), 4), ((0, 1), 2)):
        same(open_regions(out), images, max_regions)
    assert main([str(source), "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"error: --out: expected a new file. Received: {out}, which exists\n"


def test_sources_that_cannot_be_converted(tmp_path, capsys):
    source = write_npz(tmp_path)
    np.savez(tmp_path / "wide.npz", feat=np.ones((2, 3)))
    for sources, message in (
        ([source], "image wide: expected regions of width 5. Received: 2 regions of width 3"),
        ([tmp_path / "none"], f"{tmp_path / 'none'}: expected a folder of .npz files, or"),
        ([write_tsv(tmp_path)] * 2, "image 139: expected each image once"),
    ):
        assert main([*map(str, sources), "--out", str(tmp_path / "out.h5")]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "out.h5").exists()
    (tmp_path / "a.tsv").write_text((tmp_path / "a.tsv").read_text()[:-40])
    assert main([str(tmp_path / "a.tsv"), "--out", str(tmp_path / "out.h5")]) == 2
    assert f"{tmp_path / 'a.tsv'}:3: expected image_id" in capsys.readouterr().err


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_in_a_graph(is_in_memory, path):
    regions = memory() if is_in_memory else open_regions(path)
    targets = np.arange(4)
    dataset = tf.data.Dataset.from_tensor_slices(({"image": [2, 0, 2, 1], "question": targets}, targets)).batch(3)
    for max_regions in (2, 6):
        batches = RegionCodec(WIDTH, max_regions, use_boxes=True).with_regions(dataset, regions)
        inputs, _ = batches.element_spec
        assert set(inputs) == {"question", "regions", "num_regions"}
        assert inputs["regions"].shape == (None, max_regions, WIDTH + 4) and inputs["num_regions"].shape == (None,)
        for (batch, _), images in zip(batches, ((2, 0, 2), (1,)), strict=True):
            *arrays, counts = expected(images, max_regions)
            np.testing.assert_allclose(batch["regions"], np.concatenate(arrays, axis=-1), rtol=1e-5, atol=1e-6)
            assert batch["num_regions"].numpy().tolist() == counts.tolist()


def test_several_threads_read_at_once(path):
    regions = open_regions(path)
    orders = [np.random.default_rng(seed).integers(3, size=20) for seed in range(16)]
    alone = [regions.read(rows, 3) for rows in orders]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda rows: regions.read(rows, 3), orders))
    for first, second in zip(alone, together, strict=True):
        for x, y in zip(first, second, strict=True):
            np.testing.assert_array_equal(x, y)


# A stored file of two images with 1 and 2 regions of width 2 (zlib, base85): HDF5 versions write different bytes.
SMALL_FILE = (
    "c-rgqaB<`1lHy_j0S*oZ76t(ZWbhvf>^M;QF!=;1%?PDCp!5nRm^dR?P68?}2sIyFT}Y6tD@gT!Gyt>5fCWNJFpPqc2s~UJ13+{Hly3p0PcWg"
    "X%gjwoPmNDYO)M!bN-bt!D9A64Ps*<VF_GjmQ;N~jtpW~v85vk1Y8YXB4G7Hy5nzU@gE<3}F9Fsns36b40<}q;gF(C=D$mNm0hVWCf*8mFP2tR"
    "p3>?@~e8qsqL$IH}3nS219I$X>#;;xjRxYsNR|oTD1?$L2&xFzy6IwcA!bn#FV66fi4A8i6AdsFUIIySmhCv!05O*^&GUD(*#Gk@~kUWRm-xg4"
    "RqbI-_qlGFW4cJ2xkOL4m0Pz9`2DI{#5v_bPG`37mECB#y(nCc"
)


def test_the_digest_of_features_depends_on_their_content(tmp_path):
    """The digest depends on the content, not on path or time. Runs of earlier versions stored this digest."""
    path = tmp_path / "regions.h5"
    path.write_bytes(zlib.decompress(base64.b85decode(SMALL_FILE)))
    digest = digest_of(open_regions(path))
    assert digest == "bb21484df6fcbbb1115067afc5690e7acc94219c1f6d9340a9830e426aac752a"
    moved = path.rename(tmp_path / "moved.h5")
    os.utime(moved, (0, 0))
    assert digest_of(open_regions(moved)) == digest
    with h5py.File(moved, "r+") as changed:
        changed["image_features"][0, 0] += 1
    assert digest_of(open_regions(moved)) != digest


def test_writing_is_atomic(path):
    content = path.read_bytes()
    fails(lambda: write_regions(path, [("1", np.full((1, 5), np.nan), None)]), "image 1: expected finite features")
    assert path.read_bytes() == content and [file.name for file in path.parent.iterdir()] == ["regions.h5"]


BAD = {
    "object 'image_features' doesn't exist": {"image_features": None},
    "object 'pos_boxes' doesn't exist": {"pos_boxes": None},
    "pos_boxes that do not fit 8 regions and 3 images": {"pos_boxes": [[0, 3], [3, 4], [4, 9]]},
    "pos_boxes that do not fit 8 regions and 2 images": {"image_ids": IDS[:2]},
    "an image without regions": {"pos_boxes": [[0, 3], [3, 3], [4, 8]]},
    "an image that occurs twice": {"image_ids": ["7", "8", "7"]},
    "image_ids or num_boxes that do not fit 3 images x 4 regions": fixed() | {"num_boxes": [3, 1, 5]},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_files(message, tmp_path):
    arrays = {name: x for name, x in (adaptive() | BAD[message]).items() if x is not None}
    path = write_hdf5(tmp_path / "bad.h5", **arrays)
    fails(lambda: open_regions(path), f"{path}: expected image_features, pos_boxes and image_ids", message)


def test_a_truncated_or_missing_file(path):
    content = path.read_bytes()
    for length in (0, len(content) // 2, len(content) - 4):
        path.write_bytes(content[:length])
        fails(lambda: open_regions(path), f"{path}: ")
    fails(lambda: open_regions(path.with_name("none.h5")), "none.h5: expected an .h5 file of region features")


def test_an_error_during_training(tmp_path):
    """`input_error_in` finds the message of an input error in the error that TensorFlow raises."""
    arrays = adaptive()
    arrays["image_features"][3, 0] = np.nan
    path = write_hdf5(tmp_path / "zürich.h5", **arrays)
    dataset = tf.data.Dataset.from_tensor_slices(({"image": [0, 1, 2]}, np.ones((3, 1)))).batch(1)
    inputs = keras.Input((2, WIDTH), name="regions")
    model = keras.Model([inputs], keras.layers.Dense(1)(keras.layers.Flatten()(inputs)))
    model.compile("sgd", "mse")
    for call in (functools.partial(model.fit, shuffle=False), model.predict):
        with pytest.raises(tf.errors.OpError) as caught:
            call(RegionCodec(WIDTH, 2).with_regions(dataset, open_regions(path)))
        assert (
            str(input_error_in(caught.value))
            == f"{path}, image 1000: expected finite features. Received: NaN or infinity"
        )


@pytest.mark.parametrize("box", [[0, 0, np.nan, 1], [0, 0, 1, 1.5], [0.5, 0, 0.2, 1]])
def test_bad_boxes_are_named_when_they_are_read(box, tmp_path):
    arrays = adaptive()
    arrays["spatial_features"][3, :4] = box
    regions = open_regions(write_hdf5(tmp_path / "a.h5", **arrays))
    same(regions, (0, 2), 4)
    fails(lambda: regions.read([1], 4), f"{regions.place}, image 1000: expected boxes 0 <= x0 <= x1 <= 1")
