"""Region features of other formats become one HDF5; damaged, ambiguous and foreign files are named."""

import numpy as np
import pytest
from files import fails
from region_cases import (
    COUNTS,
    FEATURES,
    IDS,
    NAMES,
    OTHERS,
    WIDTH,
    expected,
    hdf5,
    lines_of,
    mcan,
    npy,
    npz,
    same,
    tsv,
    without_ids,
)

from applications.vision.region_hdf5 import open_regions
from tools.convert_regions import main, open_source


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_written_is_what_was_read(form, tmp_path, capsys):
    source, out = form(tmp_path / "a"), tmp_path / "regions.h5"
    assert main([str(source), "--out", str(out), *(["--transposed"] if form is mcan else [])]) == 0
    assert f"written: {out}, 3 images, {sum(COUNTS)} regions of width {WIDTH}" in capsys.readouterr().out
    regions = open_regions(out)
    assert sorted(regions.ids) == sorted(IDS)
    for images, max_regions in (((2, 0, 2, 1), 4), ((0, 1), 2)):
        rows = regions.rows_of([IDS[image] for image in images])
        same(regions.read(rows, max_regions), expected(images, max_regions, form is not npy))


def test_several_sources_become_one_file(tmp_path, capsys):
    first, second = npz(tmp_path / "a"), tmp_path / "b"
    (first / f"{NAMES[1]}.jpg.npz").unlink()
    second.mkdir()
    np.save(second / f"{NAMES[1]}.npy", FEATURES[1])
    out = str(tmp_path / "all.h5")
    assert main([str(first), str(second), "--out", out]) == 0
    assert sorted(open_regions(out).ids) == sorted(IDS)
    assert main([str(first), "--out", out]) == 2
    assert capsys.readouterr().err == f"error: --out: expected a new file. Received: {out}, which exists\n"
    other = str(tmp_path / "other.h5")
    for sources, message in (
        ([first, first], f"{first / NAMES[0]}.jpg.npz: expected every image once"),
        ([first, hdf5(tmp_path / "c.h5", {"image_features": np.ones((1, 2, 3)), "image_ids": [5]})], "of one width"),
        ([tmp_path / "none"], f"{tmp_path / 'none'}: expected a folder of .npz or .npy files, or"),
    ):
        assert main([*map(str, sources), "--out", other]) == 2
        assert message in capsys.readouterr().err


def test_ids_beside_a_published_file(tmp_path):
    path = without_ids(tmp_path / "a")
    fails(lambda: open_regions(path), f"{path}: expected a data set image_ids", "_imgid2idx.json")
    beside = path.with_name("train36_imgid2idx.json")
    for text in ('{"139": 0, "1000": 0, "7": 2}', "[0, 1, 2]", '{"139": ', '{"139": "0"}'):
        beside.write_text(text)
        fails(lambda: open_source(path), f"{beside}: expected a file that can be read. Received: ")
    beside.write_text('{"139": 0}')
    fails(lambda: open_source(path), f"{path}: expected the ids of 3 images. Received: 1")


@pytest.mark.parametrize("form", (npz, npy, tsv))
def test_a_file_that_is_cut_off(form, tmp_path):
    path = form(tmp_path / "a")
    file = path if path.is_file() else sorted(path.iterdir())[1]
    content = file.read_bytes()
    for length in (0, len(content) // 2, len(content) - 4):
        file.write_bytes(content[:length])
        line = "" if form is not tsv or not length else ":2" if length == len(content) // 2 else ":3"
        fails(lambda: open_source(path), f"{file}{line}: ")


def test_which_side_of_x_is_the_width_is_said(tmp_path):
    for number, (shape, boxes) in enumerate((((4, 9), 9), ((4, 4), 4)), start=1):
        np.savez(tmp_path / f"{number}.npz", x=np.ones(shape), bbox=np.ones((boxes, 4)))
    regions = open_source(tmp_path, transposed=True)
    assert (regions.width, regions.counts.tolist()) == (4, [9, 4])
    fails(lambda: open_source(tmp_path), f"{tmp_path / '1.npz'}: expected a box for each of 4 regions. Received: 9")


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
    fails(lambda: open_source(tmp_path / "a"), f"{tmp_path / 'a' / 'bad.npz'}: {message}")


def test_two_files_of_one_image(tmp_path):
    folder = npz(tmp_path / "a")
    (folder / "val").mkdir()
    np.save(folder / "val" / "139.npy", FEATURES[0])
    np.save(folder / ".hidden.npy", FEATURES[0])
    fails(lambda: open_source(folder), f"{folder / 'val' / '139.npy'}: ", f"139 again, after {folder / NAMES[0]}.jpg")


VALUES = {
    "expected finite features. Received: others in region 1": {"feat": [[1.0] * 5, [1.0, np.nan, 1.0, 1.0, 1.0]]},
    "expected finite features. Received: others in region 0": {"feat": [[np.inf] * 5]},
    "expected finite features. Received: others in region 2": {"feat": [[1.0] * 5] * 2 + [[1e300] * 5]},
    "expected boxes x0, y0, x1, y1 in the image, from 0 to 1. Received: others": [
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
        regions = open_source(folder)
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
    _, found, _ = open_source(tmp_path).read([0, 1, 2, 3], 1)
    np.testing.assert_allclose(found[0], [[0.0, 0.1, 0.25, 1.0]])
    np.testing.assert_allclose(found[1], [[0.0, 0.05, 0.125, 0.5]])
    np.testing.assert_allclose(found[2], [[0.0, 0.05, 0.25, 0.5]])
    np.testing.assert_allclose(found[3], [[0.0, 0.102, 0.255, 1.0]], rtol=1e-6)


def test_files_that_change_after_they_were_opened(tmp_path):
    folder = npz(tmp_path / "a")
    regions = open_source(folder)
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
    fails(lambda: open_source(path), f"{path}:", message)


def test_damaged_base64_is_named_when_it_is_read(tmp_path):
    path = tmp_path / "bad.tsv"
    for change in (lambda text: "*" + text[1:], lambda text: "****" + text[4:]):
        for field in (4, 5):
            path.write_text(lines_of({(1, field): change}))
            regions = open_source(path)
            assert regions.read([2, 0], 4)[2].tolist() == [4, 3]
            fails(lambda regions=regions: regions.read([0, 1], 4), f"{path}:2: expected a file that can be read.")


def test_grids_are_flattened_and_have_boxes(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    grid = np.arange(2 * 3 * WIDTH, dtype=np.float16).reshape(2, 3, WIDTH)
    np.save(folder / "7.npy", grid)
    np.savez(folder / "8.npz", x=grid + 1)
    for transposed in (False, True):
        np.savez(folder / "9.npz", x=grid[0].T if transposed else grid[0], bbox=np.ones((3, 4)))
        features, boxes, counts = open_source(folder, transposed).read([0, 1, 2], 6)
        np.testing.assert_array_equal(features[0], grid.reshape(6, WIDTH))
        np.testing.assert_array_equal(features[1], features[0] + 1)
        np.testing.assert_array_equal(features[2, :3], grid[0])
        np.testing.assert_allclose(boxes[0, 4], [1 / 3, 1 / 2, 2 / 3, 1])
        np.testing.assert_allclose(boxes[1, 0], [0, 0, 1 / 3, 1 / 2])
        assert counts.tolist() == [6, 6, 3]
