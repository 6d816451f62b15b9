"""Captions of a model: of a beam and drawn, from images, features and files; and what is exported."""

import numpy as np
import pytest
import tensorflow as tf
from captioning_cases import APPLICATION, EVERY_MODEL
from captioning_cases import run_of as untrained
from image_cases import colored_images
from program_cases import CAPTIONING_CASE

from applications.captioning.options import GenerateCaptioning
from applications.captioning.serve import Captioner
from applications.common.errors import InputError
from applications.common.training import load_run
from applications.text.text import END, PAD, START, UNKNOWN


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    known = {}

    def made(model="soft"):
        if model not in known:
            known[model] = untrained(tmp_path_factory.mktemp(model), model=model)
        return known[model]

    return made


def seen(run, count=2):
    """Regions of images and their numbers."""
    (inputs,) = next(iter(run.data["train"].images(count)))
    return inputs["regions"], inputs["num_regions"]


def pngs(rows):
    return tf.stack([tf.io.encode_png(image) for image in colored_images(20)[rows]])


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_a_caption_has_the_probability_of_teacher_forcing(made, eagerly, model):
    """And its weights."""
    run = made(model)
    captioner, regions = Captioner(run, 3), seen(run)
    found = {name: x.numpy() for name, x in captioner.search(*regions).items()}
    for index, length in enumerate(found["lengths"]):
        ids = found["ids"][index : index + 1, :length]
        assert not set(ids[0]) & {PAD, START, UNKNOWN} and END not in ids[0, :-1]
        target_input = np.concatenate([[[START]], ids[:, :-1]], axis=1).astype(np.int32)
        one = [x[index : index + 1] for x in regions]
        read = captioner.read(*one, target_input, ids)
        assert float(tf.reduce_sum(read["log_likelihood"])) == pytest.approx(
            float(found["log_probabilities"][index]), rel=1e-4
        )
        np.testing.assert_allclose(found["weights"][index, :length], read["weights"][0], rtol=1e-4, atol=1e-6)


def test_captions_are_no_longer_than_asked_for(made):
    """Though a search that finds no end has a word more."""
    run = made()
    captioner, most = Captioner(run), run.options.captions.max_length
    ids = tf.fill([2, most + 1], 5)
    assert [len(text.split()) for text in captioner.texts(ids).numpy()] == [most, most]


def test_images_and_their_features(made, eagerly):
    """One caption of both; regions beyond those that the model reads are left out, and fewer are padded."""
    run = made()
    captioner, codec = Captioner(run), run.codec.regions
    of_images = captioner.generate(pngs([0, 3]))
    features = codec.extractor(codec.extractor.decode(pngs([0, 3])))
    boxes = np.repeat(codec.extractor.boxes[None], 2, axis=0)
    of_features = captioner.generate_features(features, boxes, [4, 4])
    assert of_images["captions"].numpy().tolist() == of_features["captions"].numpy().tolist()
    np.testing.assert_allclose(of_images["weights"], of_features["weights"], atol=1e-5)
    more = captioner.generate_features(
        tf.pad(features, [[0, 0], [0, 2], [0, 0]], constant_values=9.0), np.pad(boxes, [(0, 0), (0, 2), (0, 0)]), [6, 6]
    )
    np.testing.assert_allclose(more["log_probabilities"], of_images["log_probabilities"], rtol=1e-5)
    fewer = captioner.generate_features(features[:, :2], boxes[:, :2], [2, 2])
    assert (fewer["weights"].numpy()[:, :, 2:] == 0.0).all()


def test_samples(made):
    """The same seed draws the same captions; no word is one that is none."""
    captioner = Captioner(made("wc"))
    images = pngs([0, 1, 2])
    first, again, other = (captioner.sample(images, 5, seed)["captions"].numpy().astype(str) for seed in (1, 1, 2))
    assert first.shape == (3, 5) and (first == again).all() and (first != other).any()
    assert len(set(first.ravel())) > 5
    known = set(made("wc").codec.vocabulary.tokens[4:])
    assert {word for text in first.ravel() for word in text.split()} <= known
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_samples must be positive"):
        captioner.sample(images, 0, 1)


def test_the_first_word_is_drawn_from_its_probability(made):
    """Four standard errors of 4000 draws; the probability is summed over the regions, of which one is drawn for each
    sample."""
    run, count = made("hard"), 4000
    captioner, (regions, num_regions) = Captioner(run), seen(run, 1)
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
    # The end of a caption may come first.
    expected = probabilities[4:]
    features = run.codec.regions.regions_of(run.data["train"].sources).read(run.data["train"].rows[:1], 4)
    drawn = captioner.sample_features(*features, count, 3)["captions"].numpy()[0].astype(str)
    first = np.array([text.split()[0] if text else "" for text in drawn])
    found = np.array([np.mean(first == run.codec.vocabulary.tokens[word]) for word in words])
    assert (np.abs(found - expected) <= 4.0 * np.sqrt(expected / count)).all()


def test_lines_of_ids_and_files(made, eagerly, tmp_path):
    run = made()
    for row in (4, 9):
        (tmp_path / f"{row}.png").write_bytes(tf.io.encode_png(colored_images(20)[row]).numpy())
    lines = ["9", str(tmp_path / "4.png"), "4", str(tmp_path / "9.png")]
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
    options = GenerateCaptioning("", str(tmp_path / "lines"))
    found = list(APPLICATION.generate(run, options))
    captions = [text.decode() for text in Captioner(run).generate(pngs([9, 4]))["captions"].numpy()]
    assert found == [captions[0], captions[1], captions[1], captions[0]]
    for line, message in (
        ("99", r"lines:2: expected the id of an image of .*images.npz, or a file. Received: '99'"),
        (str(tmp_path / "lines"), "expected an image that decodes"),
    ):
        (tmp_path / "lines").write_text(f"9\n{line}\n")
        with pytest.raises(InputError, match=message):
            next(iter(APPLICATION.generate(run, options)))


def test_a_run_on_features_alone(made, tmp_path, monkeypatch):
    """It takes no images, and its endpoints take features."""
    run = made()
    assert Captioner(run).names == ("generate", "sample", "generate_features", "sample_features")
    monkeypatch.setattr(run.codec.regions, "extractor", None)
    captioner, names = APPLICATION.endpoints(run)
    assert names == ("generate", "sample") and captioner.generate is captioner.generate_features
    (tmp_path / "lines").write_text(f"{tmp_path / 'lines'}\n")
    with pytest.raises(InputError, match="lines:1: expected the id of an image, as this run cannot make features"):
        next(iter(APPLICATION.generate(run, GenerateCaptioning("", str(tmp_path / "lines")))))


@pytest.mark.slow
def test_what_is_exported(run_of, exported_by):
    """All endpoints of a trained run, loaded again."""
    trained = run_of(CAPTIONING_CASE).path
    captioner, names = APPLICATION.endpoints(load_run(APPLICATION, trained))
    loaded = tf.saved_model.load(str(exported_by(CAPTIONING_CASE)))
    assert set(loaded.signatures) == {"serving_default", *names}
    images = pngs([2, 7])
    drawn = loaded.sample(images, 3, 5)["captions"].numpy()
    assert drawn.tolist() == captioner.sample(images, 3, 5)["captions"].numpy().tolist()
    found = loaded.generate(images)
    expected = captioner.generate(images)
    assert found["captions"].numpy().tolist() == expected["captions"].numpy().tolist()
    for name in ("weights", "log_probabilities"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)
