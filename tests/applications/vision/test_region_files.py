"""Damaged, ambiguous and foreign files of region features are named."""

import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
from files import fails
from region_cases import (
    BOXES,
    FEATURES,
    IDS,
    NAMES,
    WIDTH,
    adaptive,
    adaptive_arrays,
    fixed_arrays,
    hdf5,
    joined,
    lines_of,
    npy,
    npz,
    own,
    padded,
    same,
    tsv,
)

from applications.common.errors import InputError
from applications.vision.regions import open_regions

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
