"""From captions and images to batches: words, parts, what is left out, and in which order."""

import numpy as np
import pytest
import tensorflow as tf
from application_cases import changed
from captioning_cases import options_of, run_of, scene_values
from image_cases import caption_file, color_of, colored_images

from applications.captioning import data
from applications.captioning.options import PROGRAM, EvaluateCaptioning, FeaturesCaptioning, Options
from applications.common.errors import InputError
from applications.common.option_values import check
from applications.text.text import END, PAD, START, UNKNOWN
from applications.vision import scenes
from applications.vision.codec import RegionCodec
from applications.vision.extractors import Extractor
from applications.vision.images import open_images
from applications.vision.options import ExtractorOptions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("run"))


def test_words():
    """As in the published splits: lower case, punctuation left out, that inside of numbers and contractions too."""
    assert data.words_of(["A man's T-shirt , 3.5 m .", "...", "Über “two” dogs!"]) == [
        ["a", "man", "s", "t", "shirt", "3", "5", "m"],
        [],
        ["über", "two", "dogs"],
    ]


def test_an_encoded_part(run):
    part, vocabulary = run.data["test"], run.codec.vocabulary
    assert (len(part), len(part.texts), part.num_batches(4)) == (5, 10, 3)
    assert part.report["captions_cut"] == 5
    assert part.image.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert part.tokens[1] == ["there", "is", "a", color_of(15), "square"]
    for words, target_input, target in zip(part.tokens, part.target_input, part.target, strict=True):
        ids = [vocabulary.ids[word] for word in words]
        rest = [PAD] * (5 - len(ids))
        assert target_input.tolist() == [START, *ids, *rest] and target.tolist() == [*ids, END, *rest]


def test_other_images_of_a_folder_are_not_read(tmp_path):
    """A file that does not decode stops no run whose captions do not mention it."""
    (tmp_path / "images").mkdir()
    for row, pixels in enumerate(colored_images(20)):
        (tmp_path / f"images/{row}.jpg").write_bytes(tf.io.encode_jpeg(pixels).numpy())
    broken = tmp_path / "images/20.jpg"
    broken.write_bytes((tmp_path / "images/0.jpg").read_bytes()[:-2] + b"none")
    options = options_of(tmp_path, images=str(tmp_path / "images"))
    parts = data.read(options)
    for part in parts.values():
        codec = RegionCodec(12, 4, extractor=Extractor(4, 2))
        assert set(codec.regions_of(part.sources).ids) == {str(row) for row in range(20)}
    assert data.read_other(options, EvaluateCaptioning("", captions=options.captions.test_captions)) is not None
    with pytest.raises(InputError, match=f"{broken}: expected an image that decodes"):
        list(open_images(tmp_path / "images").batches(4))


def test_what_encoding_loses_is_counted(tmp_path):
    run = run_of(tmp_path, max_length=3, min_word_count=12)
    assert "green" not in run.codec.vocabulary.ids and "square" in run.codec.vocabulary.ids
    part = run.data["test"]
    assert part.target.shape == (10, 4) and part.tokens[1] == ["there", "is", "a"]
    assert part.report["captions_cut"] == 5
    assert part.report["unknown_words"] == np.sum(part.target == UNKNOWN) > 0
    with pytest.raises(InputError, match="--min-word-count: no word occurs 99 times"):
        run_of(tmp_path, min_word_count=99)


def test_batches_pair_captions_with_the_regions_of_their_images(run):
    part, pixels = run.data["train"], colored_images(20)
    seen = []
    for inputs, target in part.batches(run.options):
        assert set(inputs) == {"regions", "num_regions", "target_input", "target"}
        np.testing.assert_array_equal(inputs["target"], target)
        assert inputs["num_regions"].numpy().tolist() == [4] * len(target)
        seen += zip(inputs["regions"].numpy(), target.numpy(), strict=True)
    assert len(seen) == len(part.texts)
    for index, (regions, target) in enumerate(seen):
        np.testing.assert_array_equal(target, part.target[index])
        cells = pixels[int(part.captions.ids[part.image[index]])].reshape(2, 4, 2, 4, 3).transpose(0, 2, 1, 3, 4)
        np.testing.assert_allclose(regions[:, :48], cells.reshape(4, 48) / 127.5 - 1.0, atol=1e-5)
        np.testing.assert_array_equal(regions[0, 48:], [0.0, 0.0, 0.5, 0.5])


def test_images_in_their_order(run):
    part = run.data["valid"]
    (every,) = (inputs for (inputs,) in part.images(9))
    assert set(every) == {"regions", "num_regions"} and len(every["regions"]) == len(part) == 3
    (some,) = (inputs for (inputs,) in part.images(9, [2, 0]))
    np.testing.assert_array_equal(some["regions"], every["regions"].numpy()[[2, 0]])


def test_epochs_have_orders_of_their_own(run):
    part, number = run.data["train"], run.data["train"].num_batches(8)
    order = lambda first, count: [  # noqa: E731
        row.tobytes()
        for inputs, _ in part.batches(run.options, first).take(count)
        for row in np.concatenate(
            [inputs["target"], inputs["regions"].numpy().reshape(len(inputs["target"]), -1)], axis=1
        )
    ]
    both, second = order(0, 2 * number), order(1, number)
    count = len(part.texts)
    assert both[count:] == second and sorted(both[:count]) == sorted(second) and both[:count] != second


def test_validation_is_held_out_by_image(tmp_path):
    """The same for all seeds of the model; test captions stay what they are."""
    parts = [data.read(options_of(tmp_path, **values)) for values in ({}, {"seed": 3})]
    ids = [{name: part.captions.ids for name, part in found.items()} for found in parts]
    assert ids[0] == ids[1]
    assert sorted(ids[0]["train"] + ids[0]["valid"], key=int) == [str(row) for row in range(15)]
    assert len(ids[0]["valid"]) == 3 and ids[0]["test"] == [str(row) for row in range(15, 20)]


def test_images_that_are_missing(tmp_path):
    path = tmp_path / "more.json"
    path.write_text(caption_file(range(15), [(77, "a cat"), (78, "a dog"), (78, "another dog")]))
    with pytest.raises(InputError, match="Received: 2 of 22 ids without one, 77, 78"):
        data.read(options_of(tmp_path, train_captions=str(path)))


def test_rendered_scenes():
    options = changed(Options(), **scene_values(num_scenes=20))
    parts = data.read(options)
    assert {name: len(part.captions) for name, part in parts.items()} == {"train": 16, "valid": 2, "test": 2}
    ids = [image for part in parts.values() for image in part.captions.ids]
    assert sorted(ids, key=int) == [str(row) for row in range(20)]
    for part in parts.values():
        for image, scene, captions in zip(part.captions.ids, part.scenes, part.captions.captions, strict=True):
            assert len(captions) == 3 and set(captions) <= set(scenes.true_captions(scene))
            row = part.sources.images.rows_of([image])[0]
            np.testing.assert_array_equal(part.sources.images.read(row), scenes.render(scene, data.SCENE_SIZE))
    sources = data.sources_of(options)
    assert sources.images.ids == parts["train"].sources.images.ids


def test_a_codec_is_read_as_it_was_written(run, tmp_path):
    class Folder:
        path = tmp_path

        def file(self, name):
            return tmp_path / name

    run.codec.save(Folder())
    found = data.load_codec(None, Folder())
    assert found.vocabulary.tokens == run.codec.vocabulary.tokens
    ids = np.array([[found.vocabulary.ids["a"], found.vocabulary.ids["square"], END, UNKNOWN]])
    assert found.words.decode(ids).numpy().tolist() == [b"a square"]


@pytest.mark.parametrize(
    "values, message",
    [
        ({"valid_captions": __file__}, "--valid-captions is given without --train-captions"),
        ({"train_captions": __file__}, "--train-captions and --features or --images belong together"),
        ({"max_regions": 3}, "--max-regions: expected 16 at least"),
    ],
)
def test_options_that_do_not_go_together(values, message):
    with pytest.raises(InputError, match=message):
        check(changed(Options(), **values))


def test_features_of_words_of_captions(tmp_path):
    options = options_of(tmp_path)
    extractor = ExtractorOptions("words", grid=2, image_size=8)
    chosen = FeaturesCaptioning(options.regions.images, str(tmp_path / "features"), extractor=extractor)
    with pytest.raises(InputError, match="--captions: the network words, and no other, learns from it"):
        check(chosen)
    chosen.captions = options.captions.train_captions
    check(chosen)
    PROGRAM.function("features")(chosen)
    run = run_of(tmp_path, images=None, network="pixels", features=str(tmp_path / "features"))
    assert run.codec.regions.width == 128 and run.codec.regions.extractor.network is not None
