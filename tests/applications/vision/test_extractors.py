"""From pixels to features of regions: what they are of, and that they are the same wherever they are made."""

import dataclasses
import itertools
import json
import shutil
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from files import fails, write
from word_cases import CELLS, IMAGES, OPTIONS, PIXELS, SIDE, WORDS

from applications.common.serving import in_graph, save_module
from applications.vision import extractors, features
from applications.vision.extractors import Extractor, extract, make_extractor
from applications.vision.features import extractor_beside, read_words, write_features
from applications.vision.images import Images, open_images
from applications.vision.options import ExtractorOptions, FeaturesOptions
from applications.vision.region_hdf5 import open_regions


@pytest.fixture(scope="module")
def extractor(once):
    return Extractor("words", SIDE, CELLS, network=once[0][0].network)


def same_model(network=None):
    """Return a network whose map is its pixels, or a part of them."""
    images = keras.Input((6, 6, 3))
    return keras.Model(images, keras.layers.AveragePooling2D(network or 1)(images))


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
    network = same_model(6 // size)
    maps = keras.ops.convert_to_numpy(network(images.astype(np.float32)))
    # Every cell of the map drawn as so many equal ones, of which every cell of the grid has a whole number.
    fine = maps.repeat(cells, axis=1).repeat(cells, axis=2).reshape(2, cells, size, cells, size, 3)
    features = Extractor("words", 6, cells, network=network)(images)
    np.testing.assert_allclose(features, fine.mean(axis=(2, 4)).reshape(2, cells**2, 3), rtol=1e-5)
    fails(lambda: Extractor("words", 6, size + 1, network=network), f"--grid: expected {size} at most", f" {size + 1}")


@pytest.mark.parametrize("cells, starts", [(3, (0, 3, 6)), (2, (0, 6)), (1, (3,))])
def test_windows_are_seen_on_their_own(cells, starts):
    images = np.random.default_rng(0).integers(0, 256, (2, 12, 12, 3), dtype=np.uint8)
    extractor = Extractor("words", 6, cells, "windows", same_model())
    features = extractor(images).numpy()
    assert (extractor.image_size, features.shape) == (12, (2, cells**2 + 1, 3))
    for region, (y, x) in enumerate(itertools.product(starts, repeat=2)):
        np.testing.assert_allclose(features[:, region], images[:, y : y + 6, x : x + 6].mean(axis=(1, 2)), rtol=1e-5)
        np.testing.assert_allclose(extractor.boxes[region] * 12, [x, y, x + 6, y + 6], atol=1e-5)
    np.testing.assert_allclose(features[:, -1], images.mean(axis=(1, 2)), rtol=1e-5)
    assert extractor.boxes[-1].tolist() == [0, 0, 1, 1]


def test_what_the_network_words_is_trained_on(monkeypatch):
    """Images of which there are words; in float32, whatever the program's own network computes in."""
    seen = []

    def train(*arguments):
        seen.append((*arguments, keras.config.dtype_policy().name))
        return types.SimpleNamespace(network=same_model()), []

    monkeypatch.setattr(extractors, "train_detectors", train)
    options = ExtractorOptions(network="words", image_size=6, grid=2)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        make_extractor(options, IMAGES, {"i7": ["seven"], "i2": ["two"]})
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")
    ((pixels, words, found, policy),) = seen
    assert (words, found, policy) == ([["two"], ["seven"]], options, "float32")
    np.testing.assert_array_equal(pixels, np.concatenate(list(IMAGES.batches(6, [2, 7], title=None))))
    fails(lambda: make_extractor(options, IMAGES, {"other": ["a"]}), "squares: expected an image of every id")


def test_extract_has_the_features_of_all_images(extractor):
    regions = extract(extractor, IMAGES)
    assert (regions.ids, regions.width, regions.place) == (IMAGES.ids, 12, "squares")
    features, boxes, counts = regions.read(np.array([149, 3]), 9)
    np.testing.assert_allclose(features, extractor(PIXELS[[149, 3]]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(boxes, [extractor.boxes] * 2)
    assert counts.tolist() == [9, 9]


def test_images_that_do_not_decode_are_counted(tmp_path, extractor):
    for name in ("b", "a"):
        (tmp_path / f"{name}.png").write_bytes(b"text")
    (tmp_path / "c.png").write_bytes(tf.io.encode_png(PIXELS[0]).numpy())
    images = open_images(tmp_path)
    fails(lambda: extract(extractor, images), "Received: 2 of 3 that do not, a.png, b.png")
    options = FeaturesOptions(images=str(tmp_path), out=str(tmp_path / "out"))
    fails(lambda: write_features(options), "Received: 2 of 3 that do not, a.png, b.png")
    assert not (tmp_path / "out").exists()


def test_what_is_loaded_has_equal_features(tmp_path, extractor):
    for name, each in {"words": extractor, "pixels": Extractor("pixels", SIDE, CELLS)}.items():
        each.save(tmp_path / name)
        each.save(tmp_path / name)
        loaded = Extractor.load(tmp_path / name)
        np.testing.assert_array_equal(loaded(PIXELS[:7]), each(PIXELS[:7]))
        np.testing.assert_array_equal(loaded.boxes, each.boxes)
        assert len(list((tmp_path / name).iterdir())) == 1 + (name == "words")


def test_what_is_no_extractor(tmp_path, extractor):
    fails(lambda: Extractor.load(tmp_path), f"{tmp_path / 'extractor.json'}: expected an extractor")
    extractor.save(tmp_path)
    path = tmp_path / "extractor.json"
    config = json.loads(path.read_text())
    for text in ("{", "[]", "{}", json.dumps(config | {"depth": 3})):
        path.write_text(text)
        fails(lambda: Extractor.load(tmp_path), f"{path}: expected an extractor of this program. Received: ")
    path.write_text(json.dumps(config))
    (tmp_path / config["network"]).write_bytes(b"text")
    fails(lambda: Extractor.load(tmp_path), f"{tmp_path / config['network']}: expected a .keras model. Received: ")


def test_an_exported_module_takes_encoded_images(tmp_path, extractor):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.held = [variable.value for variable in extractor.variables]

        @in_graph(tf.TensorSpec([None], tf.string))
        def features(self, strings):
            return {"features": extractor(extractor.decode(strings))}

    (tmp_path / "images").mkdir()
    large = PIXELS[:3].repeat(3, axis=1).repeat(2, axis=2)
    for row, image in enumerate((PIXELS[0], large[1], large[2])):
        (tmp_path / f"images/{row}.png").write_bytes(tf.io.encode_png(image).numpy())
    module = Module()
    save_module(module, ["features"], tmp_path / "served")
    loaded = tf.saved_model.load(str(tmp_path / "served")).signatures["features"]
    strings = [path.read_bytes() for path in sorted((tmp_path / "images").iterdir())]
    found = loaded(strings=tf.constant(strings))["features"]
    np.testing.assert_allclose(found, extract(extractor, open_images(tmp_path / "images")).features, rtol=1e-4)


@pytest.mark.parametrize("name", ["VGG16", "ResNet50V2", "EfficientNetB0", "words"])
def test_pixels_are_scaled_as_the_network_wants_them(name):
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), dtype=np.uint8)
    expected = {
        "VGG16": images[..., ::-1] - np.array([103.939, 116.779, 123.68]),
        "ResNet50V2": images / 127.5 - 1.0,
    }.get(name, images)
    found = Extractor(name, 6, 6, network=same_model())(images)
    np.testing.assert_allclose(found, expected.reshape(2, 36, 3), rtol=1e-5, atol=1e-4)


def test_a_network_of_keras_applications_with_weights_of_a_file(tmp_path):
    network = keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=(32, 32, 3))
    options = ExtractorOptions(network="MobileNetV2", weights=str(tmp_path / "a.weights.h5"), image_size=32, grid=1)
    network.save_weights(options.weights)
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    scaled = keras.applications.mobilenet_v2.preprocess_input(images.astype(np.float32))
    expected = keras.ops.convert_to_numpy(network(scaled)).reshape(2, 1, 1280)
    np.testing.assert_allclose(make_extractor(options)(images), expected, rtol=1e-4, atol=1e-6)
    small = dataclasses.replace(options, image_size=16)
    fails(lambda: make_extractor(small), "--image-size: MobileNetV2 cannot be built. Received: ")


def test_weights_of_another_network_or_of_none(tmp_path, monkeypatch):
    def network(filters=4, **options):
        return keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Conv2D(filters, 3, name="only")])

    monkeypatch.setattr(keras.applications, "VGG16", network)
    options = ExtractorOptions(network="VGG16", weights=str(tmp_path / "a.weights.h5"), image_size=6, grid=2)
    expected = f"--weights: {options.weights}: expected the weights of VGG16 without its top. Received: "
    network().save_weights(options.weights)
    assert make_extractor(options).width == 4
    for other in (network(5), keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Rescaling(2.0)])):
        other.save_weights(options.weights)
        fails(lambda: make_extractor(options), expected)
    write(tmp_path / "a.weights.h5", "text")
    fails(lambda: make_extractor(options), expected)


def test_features_that_are_not_finite_are_an_error():
    network = same_model()
    network = keras.Model(network.inputs, keras.layers.Rescaling(np.inf)(network.output))
    extractor = Extractor("words", 6, 2, network=network)
    fails(lambda: extract(extractor, IMAGES), "--weights: expected finite features. Received: others")


def test_the_command_writes_features_and_their_extractor(tmp_path, capsys, detectors, monkeypatch):
    monkeypatch.setattr(extractors, "train_detectors", lambda *arguments: (detectors, []))
    images = Images("squares", IMAGES.ids[:140], pixels=PIXELS[:140])
    options = FeaturesOptions(
        images="squares",
        out=str(tmp_path / "out"),
        words=str(tmp_path / "words.tsv.gz"),
        extractor=OPTIONS,
    )
    said = {each: words for each, words in WORDS.items() if each in images.ids[10:]}
    write(tmp_path / "words.tsv.gz", "".join(f"{each}.png\t{' '.join(words)}\n" for each, words in said.items()))
    monkeypatch.setattr(features, "open_images", lambda path: images)
    write_features(options)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "words: about 130 of 140 images"
    assert lines[-1] == f"written: {tmp_path / 'out' / 'regions.h5'}, 140 images of 9 regions of width 12"
    written = open_regions(tmp_path / "out/regions.h5")
    assert written.ids == images.ids
    for path in ("out", "out/regions.h5"):
        beside = extractor_beside(tmp_path / path)
        np.testing.assert_allclose(
            written.read(np.arange(140), 9)[0], extract(beside, images).features, rtol=1e-4, atol=1e-6
        )
    np.testing.assert_allclose(written.read([0], 9)[1][0], beside.boxes, atol=1e-6)
    shutil.rmtree(tmp_path / "out/extractor")
    assert extractor_beside(tmp_path / "out") is None
    write(tmp_path / "words.tsv.gz", "i0\ta\ni149\tb\n")
    fails(
        lambda: write_features(options),
        f"{options.words}: expected an image of every id. Received: 1 of 2 ids without one, i149",
    )


def test_words_of_a_file(tmp_path):
    path = write(tmp_path / "words.tsv", "COCO_val2014_000000000139.jpg\tA red\tshape.\nother\ta\n139\tBlue\n")
    assert read_words(path) == {"139": ["a", "red", "shape", ".", "blue"], "other": ["a"]}
    for number, text in enumerate(("x\ta\nb", "x\ta\n\n", "x\ta\ny\t \n", "x\ta\n\tred\n")):
        path = write(tmp_path / f"{number}.tsv", text)
        fails(lambda path=path: read_words(path), f"{path}:2: expected an image, a tab and words. Received: ")
