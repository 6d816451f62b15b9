"""Options on images: what does not go together, and what they amount to."""

import dataclasses
import subprocess
import sys
import types

import keras
import pytest
from files import fails
from program_cases import ROOT

from applications.common.option_values import check, with_values
from applications.vision.options import NETWORKS, ExtractorOptions, FeaturesOptions, RegionOptions


@pytest.fixture
def folder(tmp_path):
    """A folder with files, and a finished one of the command `features`."""
    for name in ("a.weights.h5", "a.npz", "a.tsv", "a.ckpt", "old/regions.h5"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def features_options(folder, **values):
    extractor = {name: values.pop(name) for name in list(values) if name in ExtractorOptions.__dataclass_fields__}
    return FeaturesOptions(**{"images": str(folder)} | values, extractor=ExtractorOptions(**extractor))


WRONG = [
    ({"network": "resnet"}, "--network: expected one of pixels, words, ConvNeXtBase, ", "Xception. Received: resnet"),
    ({"network": "ResNet50"}, "--weights: ResNet50 needs a file of weights; none are downloaded. Received: none"),
    ({"network": "ResNet50", "weights": "a.ckpt"}, "--weights: expected a .weights.h5 or .h5 file. Received: "),
    ({"network": "ResNet50", "weights": "none.h5"}, "--weights: no such file. Received: "),
    ({"weights": "a.weights.h5"}, "--weights: the network pixels reads none. Received: "),
    ({"network": "words", "weights": "a.weights.h5"}, "--weights: the network words reads none. Received: "),
    ({"regions": "windows"}, "--regions: the network pixels has a grid. Received: windows"),
    ({"image_size": 50}, "--image-size: expected a multiple of --grid, 6, for the network pixels. Received: 50"),
    ({"grid": 5}, "--image-size: expected a multiple of --grid, 5, for the network pixels. Received: 48"),
    ({"network": "words", "image_size": 11}, "--image-size: expected twice --grid, 6, at least. Received: 11"),
    ({"regions": "cells"}, "--regions: must be 'grid' or 'windows'. Received: cells"),
    ({"grid": 0}, "--grid: must be greater than 0. Received: 0"),
]
WRONG_REGIONS = [
    ({"features": "none"}, "--features: no such file or folder. Received: "),
    ({"images": "none"}, "--images: must be a folder of images or an .npz file. Received: "),
    ({"images": "a.tsv"}, "--images: must be a folder of images or an .npz file. Received: "),
    ({"grid": 8}, "--max-regions: expected 64 at least, the regions of an image. Received: 36"),
    ({"max_regions": 35}, "--max-regions: expected 36 at least, the regions of an image. Received: 35"),
    (
        {"network": "words", "regions": "windows", "grid": 6},
        "--max-regions: expected 37 at least, the regions of an image. Received: 36",
    ),
]
WRONG_FEATURES = [
    ({"network": "words"}, "--words: the network words learns what is said about the images. Received: none"),
    ({"words": "a.tsv"}, "--words: the network pixels learns no words; choose --network words. Received: "),
    ({"out": "old"}, "--out: ", "old has features already; choose another folder. Received: regions.h5 in it"),
    ({"out": "a.tsv"}, "--out: expected a folder. Received: the file "),
]
RIGHT = [
    {"network": "ResNet50", "weights": "a.weights.h5"},
    {"network": "MobileNetV3Small", "weights": "a.weights.h5", "regions": "windows"},
    {"network": "words", "image_size": 12},
    {"network": "pixels", "image_size": 6},
]


def placed(values, folder):
    """Return values in which the names of files are paths."""
    named = ("weights", "features", "images", "words", "out")
    return {name: str(folder / value) if name in named else value for name, value in values.items()}


def test_options_that_do_not_go_together(folder):
    for values, *message in WRONG:
        fails(lambda values=values: check(ExtractorOptions(**placed(values, folder))), *message)
        fails(lambda values=values: check(features_options(folder, **placed(values, folder))), *message)
    for values, *message in WRONG + WRONG_REGIONS:
        fails(lambda values=values: check(RegionOptions(**{"network": "pixels"} | placed(values, folder))), *message)
    for values, *message in WRONG_FEATURES:
        fails(lambda values=values: check(features_options(folder, **placed(values, folder))), *message)


def test_options_that_do(folder):
    for values in RIGHT:
        check(RegionOptions(**placed(values, folder)))
        check(ExtractorOptions(**placed(values, folder)))
    check(features_options(folder, network="words", words=str(folder / "a.tsv"), out=str(folder / "new")))
    # A folder that a killed command has begun.
    check(features_options(folder, out=str(folder)))
    for path in ("a.npz", "."):
        # Files have as many regions as they have, and no network.
        options = {"features": str(folder / "a.tsv"), "images": str(folder / path), "max_regions": 10}
        check(RegionOptions(**options, network="words"))


def test_what_the_defaults_are_of_each_network():
    found = {
        (network, regions): (options.side, options.cells, options.num_regions)
        for network in ("pixels", "words", "VGG16")
        for regions in ("grid", "windows")
        for options in [ExtractorOptions(network=network, regions=regions)]
    }
    assert found[("pixels", "grid")] == (48, 6, 36)
    assert found[("words", "grid")] == (96, 6, 36)
    assert found[("VGG16", "grid")] == (224, 6, 36)
    assert found[("words", "windows")] == (96, 3, 10)
    options = ExtractorOptions(network="words", grid=4, image_size=40, regions="windows")
    assert (options.side, options.cells, options.num_regions) == (40, 4, 17)


def test_the_networks_are_those_of_keras():
    functions = {
        name: value
        for name, value in vars(keras.applications).items()
        if name[0].isupper() and isinstance(value, types.FunctionType)
    }
    assert {*NETWORKS} == functions.keys()
    for function in functions.values():
        assert callable(sys.modules[function.__module__].preprocess_input)


def test_keras_is_not_imported():
    code = (
        "import sys, applications.vision.options as found; sys.exit(bool({'keras', 'tensorflow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_a_command_line_has_them_all_on_one_level(folder):
    options = with_values(features_options(folder), {"network": "words", "out": "x", "grid": 3})
    assert (options.extractor.network, options.out, options.extractor.cells) == ("words", "x", 3)
    shared = {field.name for field in dataclasses.fields(ExtractorOptions)}
    assert shared < {field.name for field in dataclasses.fields(RegionOptions)}
