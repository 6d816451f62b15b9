"""Region features of every format: what is read is what was written, in graphs, threads and programs."""

import base64
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
from region_cases import (
    FEATURES,
    FORMATS,
    IDS,
    PIXELS,
    WIDTH,
    expected,
    joined,
    lines_of,
    memory,
    npy,
    npz,
    opened,
    own,
    same,
    tsv,
)

from applications.common.errors import input_error_in
from applications.common.runs import digest_of
from applications.vision.regions import MemoryRegions, open_regions, with_regions, write_regions


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


@pytest.mark.slow
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
