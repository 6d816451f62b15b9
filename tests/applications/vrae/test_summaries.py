"""Tests summaries: document formats, Gaussians of texts, extraction and ROUGE."""

import numpy as np
import pytest
import tensorflow_probability as tfp
from program_cases import PAIRS, VRAE_CASE
from run_files import read_json
from vrae_cases import opinosis, run_of

from applications.common.errors import InputError
from applications.vrae.documents import read_topics
from applications.vrae.summarize import Gaussians, Summarizer, divergences, extract, lexrank, rouge

GENERATOR = np.random.default_rng(3)


def test_opinosis(tmp_path):
    """Lines without words are dropped, and Windows quotation marks are decoded."""
    opinosis(tmp_path)
    topics = read_topics(tmp_path / "topics", tmp_path / "gold")
    assert [topic.name for topic in topics] == ["food", "rooms"]
    lines = [english for _, english in PAIRS[::4]]
    assert topics[0].sentences == [f"{lines[0]} “so”", *lines[1:]]
    assert topics[0].references == [f"{lines[1]} {lines[0]}", f"{lines[2]} {lines[0]}"]
    document = tmp_path / "topics" / "food.txt.data"
    document.write_bytes(document.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r"))
    assert read_topics(tmp_path / "topics", tmp_path / "gold") == topics


def test_bad_documents(tmp_path):
    opinosis(tmp_path)
    cases = (
        ("void", b"\n...\n", "void.txt.data: expected a document with at least one sentence"),
        ("lonely", b"one sentence\n", "gold: expected a reference for the topic lonely"),
        ("picture", bytes(range(256)), "picture.txt.data: expected UTF-8 or Windows-1252 text"),
    )
    for name, content, message in cases:
        path = tmp_path / "topics" / f"{name}.txt.data"
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_topics(tmp_path / "topics", None if name == "void" else tmp_path / "gold")
        path.unlink()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: expected files NAME\.txt\.data"):
        read_topics(tmp_path / "empty")


def gaussians(rows, width=3):
    return Gaussians(GENERATOR.normal(size=(rows, width)), GENERATOR.normal(size=(rows, width), scale=0.5))


def test_divergences_and_mixtures_match_tfp():
    sentences = gaussians(4)
    normal = lambda x: tfp.distributions.MultivariateNormalDiag(x.means, np.exp(x.log_scales))  # noqa: E731
    mixture = sentences.mixture()
    expected = tfp.distributions.kl_divergence(normal(mixture), normal(sentences))
    np.testing.assert_allclose(divergences(mixture, sentences), expected, rtol=1e-10)
    expected_mixture = tfp.distributions.MixtureSameFamily(
        tfp.distributions.Categorical(np.zeros(4)), normal(sentences)
    )
    np.testing.assert_allclose(mixture.means[0], expected_mixture.mean(), rtol=1e-10)
    np.testing.assert_allclose(np.exp(2 * mixture.log_scales[0]), expected_mixture.variance(), rtol=1e-10)
    np.testing.assert_allclose(divergences(mixture, mixture), [0], atol=1e-12)


def test_extract_adds_sentences_that_fit():
    sentences = ["a b c", "d e f g", "a b d", "h"]
    assert extract([1, 0, 3, 2], sentences, 8) == "a b c d e f g h"
    # If no sentence fits, the best sentence is truncated.
    assert extract([1, 0], sentences, 2) == "d e"


def test_the_nearest_sentence_comes_first(tmp_path, eagerly):
    """Sentences are sorted by their KL to the document: a mixture of the sentences, or one sequence of all words."""
    run = run_of(tmp_path, model="vrae")
    sentences = [english for _, english in PAIRS[:9]] + ["zebra", "the dog " * 20]
    for document in ("mixture", "sequence"):
        summarizer = Summarizer(run, document)
        order = summarizer.order(sentences)
        assert sorted(order) == list(range(11))
        sentence_gaussians = summarizer._gaussians(sentences, 7)
        document_gaussian = (
            sentence_gaussians.mixture()
            if document == "mixture"
            else summarizer._gaussians([" ".join(sentences)], None)
        )
        assert np.all(np.diff(divergences(document_gaussian, sentence_gaussians)[order]) >= 0)
    cut = summarizer._gaussians([" ".join(sentences)], 7)
    assert np.any(cut.means != document_gaussian.means)


def test_lexrank():
    """The sentence that is most similar to the other sentences comes first."""
    sentences = ["red green", "red green blue", "red blue", "one two", "green blue red black"]
    order = lexrank(sentences)
    assert order[0] in (1, 4) and order[-1] == 3
    assert sorted(order) == list(range(5))


def test_rouge_is_the_mean_over_references():
    scores = rouge("the dogs saw a ball", ["the dog saw it", "a ball"])
    assert scores["rouge1"]["recall"] == pytest.approx((3 / 4 + 1) / 2)
    assert scores["rouge1"]["precision"] == pytest.approx((3 / 5 + 2 / 5) / 2)
    assert scores["rouge2"]["recall"] == pytest.approx((2 / 3 + 1) / 2)
    assert scores["rougeL"]["fmeasure"] == pytest.approx((2 * 0.75 * 0.6 / 1.35 + 2 * 0.4 / 1.4) / 2)


@pytest.mark.slow
def test_the_command(run_of, tmp_path):
    """The command writes a file per topic, and a table of all systems with means over topics."""
    words = opinosis(tmp_path)
    run = run_of(VRAE_CASE).path
    printed = VRAE_CASE.succeeds("summarize", "--run", run, *words, "--max-words", 14, "--out", tmp_path / "out")
    record = read_json(tmp_path / "out" / "summaries.json")
    assert set(record["systems"]) == {"vrae_sa_aux", "lead", "random", "LexRank"}
    assert (record["num_topics"], record["max_words"], record["topics"]) == (2, 14, ["food", "rooms"])
    for name in record["topics"]:
        text = (tmp_path / "out" / f"{name}.txt").read_text(encoding="utf-8")
        assert 0 < len(text.split()) <= 14
    topic, _ = read_topics(tmp_path / "topics", tmp_path / "gold")
    lead = extract(range(len(topic.sentences)), topic.sentences, 14)
    assert record["systems"]["lead"][0] == rouge(lead, topic.references)
    mean = 100 * np.mean([x["rouge1"]["fmeasure"] for x in record["systems"]["lead"]])
    assert "| lead        | " in printed and f"{mean:.1f} [" in printed
    (tmp_path / "topics" / "rooms.txt.data").write_text("Other sentences.\n")
    message = f"--out: {tmp_path / 'out'} contains summaries of other documents"
    VRAE_CASE.fails(message, "summarize", "--run", run, *words, "--out", tmp_path / "out")
    VRAE_CASE.fails("contains other files", "summarize", "--run", run, *words, "--out", tmp_path / "topics")
    # Without references, the default is 25 words and no ROUGE is computed.
    VRAE_CASE.succeeds("summarize", "--run", run, *opinosis(tmp_path, references=False), "--out", tmp_path / "none")
    record = read_json(tmp_path / "none" / "summaries.json")
    assert record["max_words"] == 25 and "systems" not in record
