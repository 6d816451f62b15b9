"""Tests features of regions from pixels: their content, and that training, files and exports give equal features."""

import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from files import fails

from applications.common.serving import in_graph, save_module
from applications.vision.extractors import Extractor, extract, extractor_beside, make_extractor, write_features
from applications.vision.images import Images, open_images
from applications.vision.options import ExtractorOptions, FeaturesOptions
from applications.vision.region_hdf5 import open_regions
from applications.vision.word_detectors import noisy_or, vocabulary_of

COLORS = {"red": (220, 30, 30), "green": (20, 200, 40), "blue": (30, 40, 220), "black": (5, 5, 5)}
CELLS, SIDE = 3, 24


def squares(count):
    """Return images with two squares of different colours in different cells, and the cell of each colour."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(100, 140, (count, SIDE, SIDE, 3)).astype(np.uint8)
    places = []
    for image in pixels:
        names = generator.permutation(list(COLORS))[:2].tolist()
        cells = generator.permutation(CELLS**2)[:2].tolist()
        for name, cell in zip(names, cells, strict=True):
            row, column = divmod(cell, CELLS)
            image[8 * row + 1 : 8 * row + 7, 8 * column + 1 : 8 * column + 7] = COLORS[name]
        places.append(dict(zip(names, cells, strict=True)))
    return pixels, places


PIXELS, PLACES = squares(150)
IMAGES = Images("squares", [f"i{row}" for row in range(len(PIXELS))], pixels=PIXELS)
WORDS = {f"i{row}": ["a", "square", *places] for row, places in enumerate(PLACES)}
OPTIONS = ExtractorOptions(network="words", image_size=SIDE, grid=CELLS)


@pytest.fixture(scope="module")
def extractor():
    """Return the trained extractor `words`, which computes in float32 under any dtype policy."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        trained_extractor = make_extractor(OPTIONS, IMAGES, {each: WORDS[each] for each in IMAGES.ids[:140]})
        assert keras.config.dtype_policy().name == "mixed_bfloat16" and trained_extractor.network.dtype == "float32"
    finally:
        keras.config.set_dtype_policy("float32")
    return trained_extractor


def pooling(size):
    """Return a network that averages pixels over squares."""
    images = keras.Input((6, 6, 3))
    return keras.Model(images, keras.layers.AveragePooling2D(size)(images))


def test_pixels_are_those_of_the_cells():
    images = np.arange(2 * 6 * 6 * 3, dtype=np.uint8).reshape(2, 6, 6, 3)
    extractor = make_extractor(ExtractorOptions(image_size=6, grid=3))
    features = extractor(images).numpy()
    assert (features.shape, extractor.width, features.dtype) == ((2, 9, 12), 12, np.float32)
    for region, (row, column) in enumerate(itertools.product(range(3), repeat=2)):
        cell = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        np.testing.assert_allclose(features[:, region], cell.reshape(2, 12) / 127.5 - 1.0, atol=1e-6)
        np.testing.assert_allclose(3 * extractor.boxes[region], [column, row, column + 1, row + 1], atol=1e-6)


@pytest.mark.parametrize("size, cells", [(6, 6), (6, 3), (6, 4), (6, 1), (3, 2)])
def test_a_cell_has_the_mean_of_the_map_over_its_area(size, cells):
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), dtype=np.uint8)
    network = pooling(6 // size)
    maps = keras.ops.convert_to_numpy(network(images.astype(np.float32)))
    # Repeat each cell of the map until the map's size is a multiple of the grid, then average over each grid cell.
    fine = maps.repeat(cells, axis=1).repeat(cells, axis=2).reshape(2, cells, size, cells, size, 3)
    features = Extractor(6, cells, network)(images)
    np.testing.assert_allclose(features, fine.mean(axis=(2, 4)).reshape(2, cells**2, 3), rtol=1e-5)


@pytest.mark.slow
def test_the_network_words_tells_the_colours_of_cells(extractor):
    """In new images, the features of a square are nearest to the mean features of its colour in training images."""
    features = extract(extractor, IMAGES).features
    things = [(row, name, cell) for row, places in enumerate(PLACES) for name, cell in places.items()]
    training_cells, test_cells = (
        [thing for thing in things if (thing[0] < 140) == is_known] for is_known in (True, False)
    )
    means = {name: np.mean([features[r, c] for r, n, c in training_cells if n == name], axis=0) for name in COLORS}
    right = [min(means, key=lambda name: np.linalg.norm(means[name] - features[r, c])) == n for r, n, c in test_cells]
    assert np.mean(right) > 0.9


def test_which_words_are_learned():
    assert vocabulary_of([["b", "a", "rare", "."], *[["a", "b", "all"]] * 5, *[["all"]] * 5]) == ["a", "b"]
    fails(lambda: make_extractor(OPTIONS, IMAGES, {"i1": ["a"]}), "words: expected at least one word that describes 5")
    fails(lambda: make_extractor(OPTIONS, IMAGES, {"other": ["a"]}), "squares: expected an image for every id")


def test_the_noisy_or_is_that_of_the_probabilities():
    logits = np.random.default_rng(0).normal(-2.0, 3.0, (4, 3, 3, 5))
    present = 1.0 - np.prod(1.0 / (1.0 + np.exp(logits)), axis=(1, 2))
    expected = np.log(present) - np.log1p(-present)
    np.testing.assert_allclose(noisy_or(tf.constant(logits, tf.float32)), expected, rtol=2e-4, atol=1e-4)
    # With four equal cells, small odds are multiplied by four, and large log-odds are summed.
    large = noisy_or(tf.tile(tf.constant([[[[1e4, -40.0, 0.0]]]]), (1, 2, 2, 1)))
    np.testing.assert_allclose(large[0], [4e4, -40 + np.log(4.0), np.log(15.0)], rtol=1e-6)


@pytest.mark.slow
def test_a_loaded_extractor_gives_equal_features(tmp_path, extractor):
    for name, each in {"words": extractor, "pixels": Extractor(SIDE, CELLS)}.items():
        each.save(tmp_path / name)
        loaded = Extractor.load(tmp_path / name)
        np.testing.assert_array_equal(loaded(PIXELS[:7]), each(PIXELS[:7]))
        np.testing.assert_array_equal(loaded.boxes, each.boxes)


def test_invalid_extractors(tmp_path, extractor):
    extractor.save(tmp_path)
    path = tmp_path / "extractor.json"
    config = json.loads(path.read_text())
    for text in ("{", "[]", "{}", json.dumps(config | {"network": "none.keras"})):
        path.write_text(text)
        fails(lambda: Extractor.load(tmp_path), f"{path}: expected an extractor of this program. Received: ")
    path.write_text(json.dumps(config | {"name": "VGG16", "regions": "windows"}))
    fails(lambda: Extractor.load(tmp_path), f"{path}: cannot load name=VGG16, regions=windows.")


@pytest.mark.slow
def test_an_exported_module_takes_encoded_images(tmp_path, extractor):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.variables_of_extractor = [variable.value for variable in extractor.variables]

        @in_graph(tf.TensorSpec([None], tf.string))
        def features(self, strings):
            return {"features": extractor(extractor.decode(strings))}

    (tmp_path / "images").mkdir()
    large = PIXELS[:3].repeat(3, axis=1).repeat(2, axis=2)
    for row, image in enumerate((PIXELS[0], large[1], large[2])):
        (tmp_path / f"images/{row}.png").write_bytes(tf.io.encode_png(image).numpy())
    save_module(Module(), ["features"], tmp_path / "served")
    loaded = tf.saved_model.load(str(tmp_path / "served")).signatures["features"]
    strings = [path.read_bytes() for path in sorted((tmp_path / "images").iterdir())]
    features = loaded(strings=tf.constant(strings))["features"]
    np.testing.assert_allclose(features, extract(extractor, open_images(tmp_path / "images")).features, rtol=1e-4)


def test_the_command_writes_features_and_their_extractor(tmp_path, capsys):
    np.savez(tmp_path / "images.npz", PIXELS[:70])
    options = FeaturesOptions(
        images=str(tmp_path / "images.npz"),
        out=str(tmp_path / "out"),
        extractor=ExtractorOptions(image_size=SIDE, grid=CELLS),
    )
    write_features(options)
    last = f"written: {tmp_path / 'out' / 'regions.h5'}, 70 images, 630 regions of width 192"
    assert capsys.readouterr().out.splitlines()[-1] == last
    written = open_regions(tmp_path / "out/regions.h5")
    assert written.ids == [str(row) for row in range(70)]
    for path in ("out", "out/regions.h5"):
        beside = extractor_beside(tmp_path / path)
        features, boxes, _ = written.read(np.arange(70), 9)
        np.testing.assert_array_equal(features, extract(beside, open_images(options.images)).features)
        np.testing.assert_allclose(boxes[0], beside.boxes, atol=1e-6)
    assert extractor_beside(tmp_path) is None
