"""Tests how captions and images become batches: vocabulary, splits, truncation and order."""

import numpy as np
import pytest
from application_cases import changed
from captioning_cases import options_of, run_of, scene_values
from image_cases import color_of, colored_images

from applications.captioning import data
from applications.captioning.options import PROGRAM, FeaturesCaptioning, Options
from applications.common.errors import InputError
from applications.common.option_values import check
from applications.text.text import END, PAD, START, UNKNOWN
from applications.vision import scenes
from applications.vision.options import ExtractorOptions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("run"))


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


def test_encoding_counts_truncated_captions_and_unknown_words(tmp_path):
    run = run_of(tmp_path, max_length=3, min_word_count=12)
    assert "green" not in run.codec.vocabulary.ids and "square" in run.codec.vocabulary.ids
    part = run.data["test"]
    assert part.target.shape == (10, 4) and part.tokens[1] == ["there", "is", "a"]
    assert part.report["captions_cut"] == 5
    assert part.report["unknown_words"] == np.sum(part.target == UNKNOWN) > 0
    with pytest.raises(InputError, match="--min-word-count: no word occurs at least 99 times"):
        run_of(tmp_path, min_word_count=99)


def test_batches_pair_captions_with_the_regions_of_their_images(run):
    part, pixels = run.data["train"], colored_images(20)
    examples = []
    for inputs, target in part.batches(run.options):
        assert set(inputs) == {"regions", "num_regions", "target_input", "target"}
        np.testing.assert_array_equal(inputs["target"], target)
        assert inputs["num_regions"].numpy().tolist() == [4] * len(target)
        examples += zip(inputs["regions"].numpy(), target.numpy(), strict=True)
    assert len(examples) == len(part.texts)
    for index, (regions, target) in enumerate(examples):
        np.testing.assert_array_equal(target, part.target[index])
        cells = pixels[int(part.captions.ids[part.image[index]])].reshape(2, 4, 2, 4, 3).transpose(0, 2, 1, 3, 4)
        np.testing.assert_allclose(regions[:, :48], cells.reshape(4, 48) / 127.5 - 1.0, atol=1e-5)
        np.testing.assert_array_equal(regions[0, 48:], [0.0, 0.0, 0.5, 0.5])


def test_rendered_scenes():
    parts = data.read(changed(Options(), **scene_values(num_scenes=20)))
    assert {name: len(part.captions) for name, part in parts.items()} == {"train": 16, "valid": 2, "test": 2}
    ids = [image for part in parts.values() for image in part.captions.ids]
    assert sorted(ids, key=int) == [str(row) for row in range(20)]
    for part in parts.values():
        for image, scene, captions in zip(part.captions.ids, part.scenes, part.captions.captions, strict=True):
            assert len(captions) == 3 and set(captions) <= set(scenes.true_captions(scene))
            row = part.sources.images.rows_of([image])[0]
            np.testing.assert_array_equal(part.sources.images.read(row), scenes.render(scene, data.SCENE_SIZE))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"valid_captions": __file__}, "--valid-captions requires --train-captions"),
        ({"train_captions": __file__}, "--train-captions and an image source, --features or --images, belong together"),
    ],
)
def test_incompatible_options(values, message):
    with pytest.raises(InputError, match=message):
        check(changed(Options(), **values))


@pytest.mark.slow
def test_features_of_words_of_captions(tmp_path):
    """The feature extractor `words` is trained on the words of captions."""
    options = options_of(tmp_path)
    extractor = ExtractorOptions("words", grid=2, image_size=8)
    captions, folder = options.captions.train_captions, tmp_path / "features"
    values = FeaturesCaptioning(options.regions.images, str(folder), captions=captions, extractor=extractor)
    PROGRAM.function("features")(values)
    run = run_of(tmp_path, images=None, network="pixels", features=str(folder))
    assert run.codec.regions.extractor.network is not None
