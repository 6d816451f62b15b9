"""Tests options on images: invalid combinations, and derived values."""

import pytest
from files import fails

from applications.common.option_values import check
from applications.vision.options import ExtractorOptions, FeaturesOptions, RegionOptions

WRONG = [
    ({"image_size": 50}, "--image-size: expected a multiple of --grid, 6, for the network pixels. Received: 50"),
    ({"grid": 5}, "--image-size: expected a multiple of --grid, 5, for the network pixels. Received: 48"),
    ({"network": "words", "image_size": 11}, "--image-size: expected at least 2 * --grid = 12. Received: 11"),
    ({"features": "none"}, "--features: no such file or folder. Received: "),
    ({"images": "none"}, "--images: must be a folder of images or an .npz file. Received: "),
    ({"images": "a.tsv"}, "--images: must be a folder of images or an .npz file. Received: "),
    ({"grid": 8}, "--max-regions: expected at least 64, the number of grid cells. Received: 36"),
]


@pytest.fixture
def folder(tmp_path):
    for name in ("a.npz", "a.tsv", "old/regions.h5"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("values, message", WRONG)
def test_options_that_do_not_go_together(values, message, folder):
    placed = {name: str(folder / x) if name in ("features", "images") else x for name, x in values.items()}
    fails(lambda: check(RegionOptions(**{"network": "pixels"} | placed)), message)


def test_files_may_have_any_number_of_regions(folder):
    check(RegionOptions(features=str(folder / "a.tsv"), images=str(folder / "a.npz"), max_regions=10))


def test_the_command_features(folder):
    words = FeaturesOptions(str(folder), str(folder / "new"), ExtractorOptions(network="words"))
    check(words)
    words.check_words("captions", "a.json")
    fails(
        lambda: words.check_words("captions", None),
        "--captions: required for --network words, not allowed otherwise",
        "Received: none",
    )
    for out in ("old", "a.tsv"):
        options = FeaturesOptions(str(folder), str(folder / out))
        fails(lambda options=options: check(options), "--out: expected a new folder. Received: ", "which exists")


def test_the_network_determines_the_side():
    sides = [ExtractorOptions(network=network).side for network in ("pixels", "words")]
    assert sides == [48, 96] and RegionOptions().side == 96
