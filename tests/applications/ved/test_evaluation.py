import json

import numpy as np
import pytest
import tensorflow as tf
from ved_cases import call, read_metrics

from applications.text.metrics import distinct, unigram_entropy
from applications.text.text import PAD
from applications.ved.data import EncodedPairs, load_splits
from applications.ved.evaluation import decode_all, diversity, likelihood_report, quality
from applications.ved.generation import Generator
from applications.ved.training import load_run
from keras_vattn.losses import sequence_log_likelihood

REFERENCES = [["the cat sat on the mat", "a cat sat there"], ["dogs bark at night"]]


def test_quality_compares_with_all_references():
    report = quality(["a cat sat there", "dogs bark at night"], REFERENCES)
    assert [report[f"bleu_{order}"] for order in range(1, 5)] == pytest.approx([100.0] * 4)
    assert "tok:none" in report["bleu_signature"]
    report = quality(["the cat sat on the mat", "a cat sat there"], REFERENCES)
    assert report["bleu_1"] == pytest.approx(100 * 6 / 10)


def test_diversity_averages_over_draws():
    draws = [["a cat sat there", "the mat"], ["dogs bark at night", "dogs bark at night"]]
    report = diversity(draws, REFERENCES)
    by_draw = [quality([row[index] for row in draws], REFERENCES)["bleu_2"] for index in range(2)]
    assert report["bleu_2"] == pytest.approx(np.mean(by_draw)) and by_draw[0] != by_draw[1]
    assert report["entropy"] == pytest.approx(unigram_entropy(draws)) == pytest.approx((np.log(6) + np.log(4)) / 2)
    assert report["dist_1"] == pytest.approx(distinct(draws, 1)) == pytest.approx((1.0 + 0.5) / 2)
    assert report["distinct_draws"] == 1.5
    assert report["distinct_references_among_draws"] == 1.0
    assert diversity([["a"], ["b"]], REFERENCES)["self_bleu"] is None


def test_decoding_in_batches_keeps_the_order():
    class Words:
        def decode(self, ids):
            return tf.strings.reduce_join(tf.strings.as_string(ids), axis=-1, separator=" ")

    ids = [np.arange(1, 1 + length) for length in np.random.default_rng(0).integers(0, 5, 150)]
    sentences = decode_all(lambda batch, number: batch, Words(), ids)
    assert [[int(word) for word in sentence.split() if word != "0"] for sentence in sentences] == [
        x.tolist() for x in ids
    ]
    draws = decode_all(lambda batch, number: tf.stack([batch, -batch], axis=1), Words(), ids[:3])
    assert all(len(row) == 2 for row in draws)


@pytest.fixture(scope="module")
def loaded(trained):
    _, options, codec, models = load_run(trained.path)
    return options, codec, models, Generator(models, codec, options)


def test_likelihood_is_that_of_the_logits(trained, loaded, eagerly):
    options, codec, models, generator = loaded
    encoded = EncodedPairs.encode(options, codec, load_splits(options).valid)
    total, tokens = 0.0, 0
    for inputs, target in encoded.batches(options):
        total += float(tf.reduce_sum(sequence_log_likelihood(target, models.training(inputs), ignore_class=PAD)))
        tokens += int(np.count_nonzero(target))
    report = likelihood_report(generator, models, options, encoded)
    assert report["num_tokens"] == tokens == sum(len(row) + 1 for row in encoded.targets)
    assert report["plug_in_nats"] == pytest.approx(-total / len(encoded.targets), rel=1e-5)
    assert report["plug_in_perplexity"] == pytest.approx(np.exp(-total / tokens), rel=1e-5)
    divergence = report["latent_kl"] + report["attention_kl"]
    assert report["elbo_nats"] == pytest.approx(-report["reconstruction_nats"] - divergence, rel=1e-6)
    assert np.log(report["elbo_perplexity"]) == pytest.approx(-report["elbo_nats"] * len(encoded.targets) / tokens)
    assert min(report["latent_kl"], report["attention_kl"]) > 0
    # The same draws every time, and what the run reported.
    assert read_metrics(trained.path)["report"]["likelihood"] == pytest.approx(report, rel=1e-5)
    with tf.device("CPU:0"):
        latent = models.encoder.get_layer("latent")
        hidden = np.random.default_rng(0).normal(size=(4, 16)).astype("float32")
        divergences = latent.posterior_distribution(hidden).kl_divergence(latent.prior_distribution(hidden))
    assert (divergences.numpy() > 0).all()


def test_the_command_and_its_curve(trained, eagerly):
    arguments = ["--latent-temperatures", 0, 1, "--word-temperatures", 0.5, "--max-sources", 3, "--name", "sweep"]
    status, output, errors = call("evaluate", "--run", trained.path, *arguments)
    try:
        assert status == 0, errors
        report = json.loads((trained.path / "sweep.json").read_text(encoding="utf-8"))
        assert (trained.path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    finally:
        for ending in ("json", "png"):
            (trained.path / f"sweep.{ending}").unlink(missing_ok=True)
    assert report["split"] == "valid" and report["num_sources"] == 3
    assert [point["temperature"] for point in report["curves"]["latent"]] == [0.0, 1.0]
    mean, drawn = report["curves"]["latent"]
    # At temperature 0 every draw is the MAP sentence.
    assert mean["bleu_4"] == pytest.approx(report["map"]["bleu_4"]) and mean["distinct_draws"] == 1.0
    assert drawn["entropy"] == pytest.approx(report["sampling"]["entropy"])
    assert drawn["entropy"] > mean["entropy"]
    assert [point["temperature"] for point in report["curves"]["word"]] == [0.5]
    assert "plug_in_perplexity" in report["likelihood"] and "likelihood" in output
