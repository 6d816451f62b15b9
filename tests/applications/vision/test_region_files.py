"""Damaged, ambiguous and foreign files of region features are named."""

import h5py
import numpy as np
import pytest
from files import fails
from region_cases import (
    BOXES,
    FEATURES,
    IDS,
    WIDTH,
    adaptive,
    adaptive_arrays,
    fixed,
    fixed_arrays,
    hdf5,
    own,
    padded,
    same,
)

from applications.vision.region_hdf5 import open_regions


def changed(arrays, **values):
    return {name: x for name, x in (arrays | values).items() if x is not None}


BAD_HDF5 = {
    "expected a data set image_features. Received: image_ids": {"image_ids": IDS},
    "expected image_features of 2 or 3 axes, floating numbers. Received: int64": changed(
        adaptive_arrays(), image_features=np.ones((8, 5), int)
    ),
    "expected a data set pos_boxes. Received: image_features, image_ids, spatial_features": changed(
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
    "expected the ids of 3 images. Received: 2": changed(adaptive_arrays(), image_ids=IDS[:2]),
    "expected image_ids of 1 axes, integers or strings. Received: float64": changed(
        adaptive_arrays(), image_ids=np.ones(3)
    ),
    "image 7: expected every image once. Received: 7 again, after": changed(adaptive_arrays(), image_ids=[7, 8, 7]),
    "NAME_imgid2idx.json. Received: image_features, pos_boxes": adaptive_arrays() | {"image_ids": None},
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


@pytest.mark.parametrize("form", (fixed, adaptive, own))
def test_a_file_that_is_cut_off(form, tmp_path):
    path = form(tmp_path / "a")
    content = path.read_bytes()
    for length in (0, len(content) // 2, len(content) - 4):
        path.write_bytes(content[:length])
        fails(lambda: open_regions(path), f"{path}: ")


@pytest.mark.parametrize(
    "message, features, boxes",
    [
        ("expected finite features. Received: others in region 1", [1, np.nan], [0, 0, 1, 1]),
        ("expected finite features. Received: others in region 0", [np.inf, 1], [0, 0, 1, 1]),
        ("expected boxes x0, y0, x1, y1 in the image", [1, 1], [0, 0, np.nan, 1]),
        ("expected boxes x0, y0, x1, y1 in the image", [1, 1], [0, 0, 1, 1.5]),
        ("expected boxes x0, y0, x1, y1 in the image", [1, 1], [0.5, 0, 0.2, 1]),
    ],
)
def test_bad_values_are_named_when_they_are_read(message, features, boxes, tmp_path):
    arrays = fixed_arrays() | {"image_ids": IDS}
    arrays["image_features"][0, :2] = np.array(features)[:, None]
    arrays["spatial_features"][0, 0, :4] = boxes
    path = hdf5(tmp_path / "a.h5", arrays)
    regions = open_regions(path)
    assert regions.read([1, 2], 4)[2].tolist() == [1, 4]
    fails(lambda: regions.read([0], 4), f"{path}, image 139: {message}")


def test_what_is_none_of_the_formats(tmp_path):
    fails(lambda: open_regions(tmp_path / "none"), f"{tmp_path / 'none'}: ", "Received: nothing of this name")
    fails(lambda: open_regions(tmp_path), f"{tmp_path}: ", "tools.convert_regions", "Received: a folder")
    (tmp_path / "a.tsv").write_bytes(b"")
    fails(lambda: open_regions(tmp_path / "a.tsv"), "Received: a.tsv")
