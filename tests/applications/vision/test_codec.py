"""Tests the region codec of a run: the scale, boxes that can be drawn, and whether regions are cells of scenes."""

import types

import numpy as np
import pytest
from files import fails
from image_cases import colored_images

from applications.common.runs import RunFolder
from applications.text.text import Vocabulary
from applications.vision import scenes
from applications.vision.codec import RegionCodec, Sources, picture_of
from applications.vision.extractors import Extractor
from applications.vision.images import Images
from applications.vision.program import Codec, answers_about, load_codec
from applications.vision.regions import MemoryRegions


def regions(features, boxes, counts):
    ids = [str(row) for row in range(len(features))]
    return MemoryRegions("features", ids, np.array(counts), features.shape[-1], features, boxes)


def test_the_scale_is_computed_on_training_images():
    generator = np.random.default_rng(0)
    features = generator.normal(scale=3.0, size=(40, 4, 50)).astype("float32")
    features[:, 2:] = 1e3  # padding
    features[30:] *= 100.0  # test images
    sources = Sources(None, regions(features, np.zeros((4, 4), "float32"), [2] * 40))
    options = types.SimpleNamespace(features="nowhere", max_regions=4, use_boxes=False)
    codec = RegionCodec.fit(options, sources, [str(row) for row in range(30)] * 2, {})
    assert codec.scale == pytest.approx(3.0, rel=0.05)


def test_boxes_that_are_drawn_have_an_area():
    """A region without area at the edge of an image is enlarged. Without boxes, nothing is drawn."""
    boxes = np.array([[[1, 0.2, 1, 0.4], [0, 0, 0, 0], [0.5, 0.5, 0.6, 1]], np.zeros((3, 4))], np.float32)
    images = Images("images", ["0", "1"], pixels=colored_images(2))
    sources = Sources(images, regions(np.ones((2, 3, 2), "float32"), boxes, [3, 2]))
    image, drawn = picture_of(RegionCodec(2, 3), sources, 0)
    np.testing.assert_array_equal(image, images.pixels[0])
    assert (drawn[:, 2:] > drawn[:, :2]).all() and drawn.min() >= 0.0 and drawn.max() <= 1.0
    np.testing.assert_array_equal(drawn[2], boxes[0, 2])
    assert picture_of(RegionCodec(2, 3), sources, 1) is None
    assert picture_of(RegionCodec(2, 3), Sources(None, sources.regions), 0) is None


@pytest.mark.parametrize(
    "boxes, expected", [(scenes.CELL_BOXES, True), (scenes.CELL_BOXES[::-1], False), (scenes.CELL_BOXES[:9], False)]
)
def test_which_regions_are_the_cells_of_scenes(boxes, expected):
    """The region of a word in a caption is known only if the regions are the cells of scenes."""
    extractor = types.SimpleNamespace(boxes=boxes)
    assert scenes.are_cells(RegionCodec(3, len(boxes), extractor=extractor)) == expected
    assert scenes.are_cells(RegionCodec(3, 16)) and not scenes.are_cells(RegionCodec(3, 36))


def test_an_unknown_name_among_images(tmp_path):
    images = Images("images", ["0", "1"], pixels=colored_images(2))
    codec = RegionCodec(3, 4, extractor=None)
    fails(lambda: answers_about(codec, ["0", "no"], lambda: Sources(images, None), "lines", None), "lines:2:", "'no'")


def test_damaged_files_are_named(tmp_path):
    folder = RunFolder(tmp_path, {})
    Codec(Vocabulary(["red"]), RegionCodec(48, 4, extractor=Extractor(8, 2))).save(folder)
    assert vars(load_codec(None, folder).regions)["max_regions"] == 4
    for name in ("codec.json", "regions.json", "extractor/extractor.json"):
        path = tmp_path / name
        before = path.read_bytes()
        for content in (b"", b"{", b"[1]", b"{}", bytes(range(256)), None):
            path.unlink() if content is None else path.write_bytes(content)
            fails(lambda: load_codec(None, folder), path)
        path.write_bytes(before)
