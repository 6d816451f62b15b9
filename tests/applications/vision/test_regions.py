"""Region features of every format: what is read is what was written, in graphs, threads and programs."""

import concurrent.futures
import functools
import os
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from files import fails
from program_cases import ROOT
from region_cases import FORMATS, IDS, WIDTH, expected, fixed, hdf5, memory, opened, own, same

from applications.common.errors import input_error_in
from applications.common.runs import digest_of
from applications.vision.codec import RegionCodec
from applications.vision.region_hdf5 import open_regions, write_regions
from applications.vision.regions import MemoryRegions


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_read_is_what_was_written(form, tmp_path):
    regions = opened(form, tmp_path / "a")
    assert (len(regions), regions.width, sorted(regions.ids)) == (3, WIDTH, sorted(IDS))
    assert [regions.num_cut(count) for count in (0, 1, 3, 4)] == [3, 2, 1, 0]
    for images, max_regions in (((2, 0, 2, 1), 4), ((0, 1), 2), ((1, 2, 0), 6), ((), 3)):
        rows = regions.rows_of([IDS[image] for image in images])
        wanted = expected(images, max_regions, True)
        same(regions.read(rows, max_regions), wanted)
    fails(lambda: regions.rows_of(["7", "139", "7", "8"]), f"{regions.place}: ", "2 of 3 ids without one, 7, 8")


@pytest.mark.parametrize("form", (own, memory))
def test_in_a_graph(form, tmp_path):
    regions = opened(form, tmp_path / "a")
    rows = regions.rows_of([IDS[2], IDS[0], IDS[2], IDS[1]])
    targets = np.arange(4)
    dataset = tf.data.Dataset.from_tensor_slices(({"image": rows, "question": targets}, targets)).batch(3)
    for max_regions in (2, 6):
        batches = RegionCodec(WIDTH, max_regions, use_boxes=True).with_regions(dataset, regions)
        inputs, _ = batches.element_spec
        assert set(inputs) == {"question", "regions", "num_regions"}
        assert inputs["regions"].shape == (None, max_regions, WIDTH + 4) and inputs["num_regions"].shape == (None,)
        (first, y), (second, _) = list(batches)
        for batch, images in ((first, (2, 0, 2)), (second, (1,))):
            features_and_boxes = tf.split(batch["regions"], (WIDTH, 4), axis=-1)
            same([*features_and_boxes, batch["num_regions"]], expected(images, max_regions))
        assert y.numpy().tolist() == first["question"].numpy().tolist() == [0, 1, 2]
        same(regions.tensors(tf.constant(rows), max_regions), expected((2, 0, 2, 1), max_regions))


@pytest.mark.parametrize("form", (fixed, own))
def test_several_threads_read_at_once(form, tmp_path):
    regions = opened(form, tmp_path / "a")
    orders = [np.random.default_rng(seed).integers(3, size=20) for seed in range(16)]
    alone = [regions.read(rows, 3) for rows in orders]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda rows: regions.read(rows, 3), orders))
    for first, second in zip(alone, together, strict=True):
        for x, y in zip(first, second, strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_run_knows_its_features_by_what_they_hold(tmp_path):
    """Wherever they lie, and whenever they were written."""
    path = own(tmp_path / "a")
    digest = digest_of(open_regions(path))
    moved = tmp_path / "elsewhere" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    os.utime(moved, (0, 0))
    assert digest_of(open_regions(moved)) == digest
    with h5py.File(moved, "r+") as changed:
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


def with_a_bad_image(path):
    arrays = {"image_features": np.ones((4, 2, WIDTH)), "image_ids": [*IDS, "bad"]}
    arrays["image_features"][3, 0] = np.nan
    return hdf5(path, arrays)


def test_an_error_in_the_midst_of_training(tmp_path):
    """The error of the graph is known by what it holds."""
    path = with_a_bad_image(tmp_path / "zürich.h5")
    regions = open_regions(path)
    rows = regions.rows_of([*IDS, "bad"])
    dataset = tf.data.Dataset.from_tensor_slices(({"image": rows}, np.ones((4, 1)))).batch(1)
    inputs = keras.Input((2, WIDTH), name="regions")
    model = keras.Model([inputs], keras.layers.Dense(1)(keras.layers.Flatten()(inputs)))
    model.compile("sgd", "mse")
    message = f"{path}, image bad: expected finite features. Received: others in region 0"
    fit, evaluate, predict = functools.partial(model.fit, shuffle=False), model.evaluate, model.predict
    for call in (fit, evaluate, predict, list):
        batches = RegionCodec(WIDTH, 2).with_regions(dataset, regions)
        with pytest.raises(tf.errors.OpError) as caught:
            call(batches)
        assert str(input_error_in(caught.value)) == message


# Training that meets a bad file, while other threads read on.
FAILING = """
import sys, time
import numpy as np, tensorflow as tf
from applications.common import command_line
from applications.ved.options import PROGRAM
from applications.vision.codec import RegionCodec
from applications.vision.region_hdf5 import open_regions
from applications.vision.regions import Regions

def read(self, rows, max_regions, read=Regions.read):
    time.sleep(0.05)
    return read(self, rows, max_regions)

def prepare(*arguments):
    Regions.read = read
    regions = open_regions(sys.argv[1])
    dataset = tf.data.Dataset.range(len(regions)).map(lambda row: ({"image": row},)).batch(1).repeat()
    iterator = iter(RegionCodec(regions.width, 2).with_regions(dataset, regions))
    # It is freed late, as where Keras holds it.
    cycle = [iterator]
    cycle.append(cycle)
    list(iterator)

command_line.prepare = prepare
sys.exit(command_line.main(PROGRAM, ["train"]))
"""


@pytest.mark.slow
def test_a_program_that_fails_ends_with_one_line(tmp_path):
    """Though reads are under way, which no thread finishes once Python ends."""
    path = with_a_bad_image(tmp_path / "a.h5")
    result = subprocess.run(
        [sys.executable, "-c", FAILING, str(path)], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    line = f"error: {path}, image bad: expected finite features. Received: others in region 0"
    assert (result.returncode, result.stderr.splitlines()[-1]) == (2, line), result.stderr
    assert "Traceback" not in result.stderr
