"""Tests captions from images and from features, by beam search and by sampling, and the exported endpoints."""

import numpy as np
import pytest
import tensorflow as tf
from captioning_cases import APPLICATION, EVERY_MODEL
from image_cases import colored_images
from tiers import slow_after

from applications.captioning.decode import Captioner
from applications.text.text import END, PAD, START, UNKNOWN


def first_images(run, count=2):
    """Return the regions and the region counts of the first `count` images."""
    (inputs,) = next(iter(run.data["train"].images(count)))
    return inputs["regions"], inputs["num_regions"]


def pngs(rows):
    return tf.stack([tf.io.encode_png(image) for image in colored_images(20)[rows]])


@pytest.mark.parametrize("model", slow_after(EVERY_MODEL, 2))
def test_search_matches_teacher_forcing(run_of_model, eagerly, model):
    """Teacher forcing gives the log-probability and the weights that beam search returns for a caption."""
    run = run_of_model(model)
    captioner, regions = Captioner(run, 3), first_images(run)
    searched = {name: x.numpy() for name, x in captioner.search(*regions).items()}
    for index, length in enumerate(searched["lengths"]):
        ids = searched["ids"][index : index + 1, :length]
        assert not set(ids[0]) & {PAD, START, UNKNOWN} and END not in ids[0, :-1]
        target_input = np.concatenate([[[START]], ids[:, :-1]], axis=1).astype(np.int32)
        image = [x[index : index + 1] for x in regions]
        read = captioner.read(*image, target_input, ids)
        assert float(tf.reduce_sum(read["log_likelihood"])) == pytest.approx(
            float(searched["log_probabilities"][index]), rel=1e-4
        )
        np.testing.assert_allclose(searched["weights"][index, :length], read["weights"][0], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_images_and_their_features(run_of_model, eagerly):
    """An image and its features give the same caption. Excess regions are dropped, and missing regions are padded."""
    run = run_of_model()
    captioner, codec = Captioner(run), run.codec.regions
    from_images = captioner.generate(pngs([0, 3]))
    features = codec.extractor(codec.extractor.decode(pngs([0, 3])))
    boxes = np.repeat(codec.extractor.boxes[None], 2, axis=0)
    from_features = captioner.generate_features(features, boxes, [4, 4])
    assert from_images["captions"].numpy().tolist() == from_features["captions"].numpy().tolist()
    np.testing.assert_allclose(from_images["weights"], from_features["weights"], atol=1e-5)
    more = captioner.generate_features(
        tf.pad(features, [[0, 0], [0, 2], [0, 0]], constant_values=9.0), np.pad(boxes, [(0, 0), (0, 2), (0, 0)]), [6, 6]
    )
    np.testing.assert_allclose(more["log_probabilities"], from_images["log_probabilities"], rtol=1e-5)
    fewer = captioner.generate_features(features[:, :2], boxes[:, :2], [2, 2])
    assert (fewer["weights"].numpy()[:, :, 2:] == 0.0).all()


@pytest.mark.slow
def test_the_first_word_is_drawn_from_its_probability(run_of_model):
    """Word frequencies over 4000 samples match within four standard errors. Each sample draws a region, so the expected
    probability is a sum over regions."""
    run, count = run_of_model("hard"), 4000
    captioner, (regions, num_regions) = Captioner(run), first_images(run, 1)
    words = np.arange(4, len(run.codec.vocabulary), dtype=np.int32)
    memory = run.models.encoder(regions)
    p = captioner.read(regions, num_regions, [[START]], words[:1, None])["weights"][0, 0].numpy()
    prepared = run.models.decoder.prepare_memory(memory)
    embedded = run.models.embedding(tf.constant([[START]]))[:, 0]
    probabilities = 0.0
    for region in range(4):
        noise = {"attention": {"alignment": {"gumbel": 1e6 * tf.one_hot([region], 4)}}}
        outputs, _ = run.models.decoder.step(embedded, run.models.decoder.start(1, prepared), prepared, noise)
        decoded = {name: x[:, None] for name, x in outputs.items()}
        log_words = run.models.emission.log_words(decoded, memory, None)[0, 0].numpy()
        probabilities += p[region] * np.exp(log_words - np.logaddexp.reduce(log_words[3:]))
    # Index 3 is the end token, which gives an empty caption.
    expected = probabilities[4:]
    features = run.codec.regions.regions_of(run.data["train"].sources).read(run.data["train"].rows[:1], 4)
    drawn = captioner.sample_features(*features, count, 3)["captions"].numpy()[0].astype(str)
    first = np.array([text.split()[0] if text else "" for text in drawn])
    frequencies = np.array([np.mean(first == run.codec.vocabulary.tokens[word]) for word in words])
    assert (np.abs(frequencies - expected) <= 4.0 * np.sqrt(expected / count)).all()


def test_a_run_on_features_only(run_of_model, tmp_path, monkeypatch):
    """A run without an extractor exports endpoints that accept only features."""
    run = run_of_model()
    assert Captioner(run).names == ("generate", "sample", "generate_features", "sample_features")
    monkeypatch.setattr(run.codec.regions, "extractor", None)
    captioner, names = APPLICATION.endpoints(run)
    assert names == ("generate", "sample") and captioner.generate is captioner.generate_features
