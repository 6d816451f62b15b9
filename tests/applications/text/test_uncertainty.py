"""Tests tables of sentences with uncertainties, and the quality of the most certain sentences."""

import numpy as np
import pytest
import sacrebleu.metrics
import tensorflow as tf
from application_cases import tables_of

from applications.common.significance import corpus_score
from applications.text.coverage import coverage_lines, coverage_report
from applications.text.text import END, PAD, START
from applications.text.uncertainty import lines_of, shifted, uncertainty_of, written_of

FIGURES = {
    "num_words": np.array([2, 3]),
    "log_likelihood": np.array([-1.5, -2.0]),
    "entropy": np.array([0.5, 1.0]),
    "word_entropy": np.array([[0.25, 0.75, 0.0], [1.0, 1.0, 1.0]]),
}
DRAWN = {
    "predictive_log_likelihood": np.array([-1.25, -2.25]),
    "log_likelihoods": np.array([[-1.0, -2.0], [-2.0, -3.0]]),
    "mutual_information": np.array([0.125, 0.25]),
    "reverse_mutual_information": np.array([0.1, 0.2]),
    "word_mutual_information": np.array([[0.0, 0.25, 0.0], [0.25, 0.25, 0.25]]),
}
TEXTS, WORDS = [b"yes", b"not now"], np.array([[b"yes", b"<end>", b"<pad>"], [b"not", b"now", b"<end>"]])


def test_a_line_for_each_sentence_below_the_heads():
    """Padding has no words. Without draws, the table lacks the columns that need draws."""
    heads, first, second = (line.split("\t") for line in lines_of(written_of(TEXTS, WORDS, FIGURES | DRAWN)))
    assert dict(zip(heads, first, strict=True)) == {
        "text": "yes",
        "num_words": "2",
        "log_likelihood": "-1.5000",
        "entropy": "0.5000",
        "predictive_log_likelihood": "-1.2500",
        "log_likelihood_sd": "0.5000",
        "mutual_information": "0.1250",
        "reverse_mutual_information": "0.1000",
        "words": "yes <end>",
        "word_entropy": "0.2500 0.7500",
        "word_mutual_information": "0.0000 0.2500",
    }
    assert second[heads.index("words")] == "not now <end>"
    heads, first, _ = (line.split("\t") for line in lines_of(written_of(TEXTS, WORDS, FIGURES)))
    assert heads == ["text", "num_words", "log_likelihood", "entropy", "words", "word_entropy"]
    assert first == ["yes", "2", "-1.5000", "0.5000", "yes <end>", "0.2500 0.7500"]
    assert lines_of([]) == [] and lines_of([None]) == [""]
    sentences = written_of(TEXTS, WORDS, FIGURES)
    heads, *answers = lines_of(sentences)
    assert lines_of([None, *sentences, None]) == [heads, "", *answers, ""]


def test_written_words_are_read_again():
    """The end token counts as a word of the sentence; padding does not."""
    target = tf.constant([[5, 6, END], [7, END, PAD]])
    assert shifted(target).numpy().tolist() == [[START, 5, 6], [START, 7, PAD]]
    outputs = uncertainty_of(lambda: tf.math.log(tf.fill((2, 3, 8), 1 / 8)), target)
    assert set(outputs) == {"num_words", "log_likelihood", "entropy", "word_entropy"}
    assert outputs["num_words"].numpy().tolist() == [3, 2]
    np.testing.assert_allclose(outputs["log_likelihood"], -np.log(8) * np.array([3, 2]), rtol=1e-5)
    np.testing.assert_allclose(outputs["entropy"], np.log(8), rtol=1e-5)


def sentences(information, entropy, log_likelihood, num_words):
    columns = {"mutual_information": information, "entropy": entropy}
    columns |= {"log_likelihood": log_likelihood, "num_words": num_words}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_the_quality_of_the_most_certain():
    """Mutual information ranks sentences by quality, entropy and likelihood per word in reverse, and a random order
    gives the mean quality."""
    quality = np.arange(20.0)[::-1]
    num_words = np.where(np.arange(20) % 2, 4, 2)
    records = sentences(np.arange(20), -np.arange(20), -quality * num_words, num_words)
    report = coverage_report(records, {"mean": lambda rows: quality[rows].mean()}, "attention")
    curves = report["quality"]["mean"]
    best = [quality[:size].mean() for size in range(2, 21, 2)]
    worst = [quality[::-1][:size].mean() for size in range(2, 21, 2)]
    np.testing.assert_allclose(curves["mutual_information"]["curve"], best)
    np.testing.assert_allclose(curves["entropy"]["curve"], worst)
    np.testing.assert_allclose(curves["likelihood"]["curve"], worst)
    assert curves["mutual_information"]["area"] == pytest.approx(np.mean(best))
    assert curves["random"]["area"] == pytest.approx(quality.mean(), abs=1.0)
    assert (report["drawn"], report["mutual_information"]) == ("attention", 9.5)
    del_information = [{name: x for name, x in row.items() if name != "mutual_information"} for row in records]
    assert set(coverage_report(del_information, {"mean": len}, None)["quality"]["mean"]) == {
        "entropy",
        "likelihood",
        "random",
    }


def test_equally_certain_sentences_have_no_order():
    """Ties are not ranked by quality, although the input is sorted from best to worst."""
    quality = np.arange(100.0)[::-1]
    records = sentences(*np.ones((4, 100)))
    curves = coverage_report(records, {"mean": lambda rows: quality[rows].mean()}, "attention")["quality"]["mean"]
    assert curves["entropy"]["curve"][0] < 75.0 < quality[:10].mean()


def test_the_score_of_a_corpus_of_some_rows():
    hypotheses, references = ["a red dog is here", "a cat", "two red birds are there"], ["a red dog was here"] * 3
    metric = sacrebleu.metrics.CHRF()
    score, rows = corpus_score(metric, hypotheses, references), [2, 0]
    expected = metric.corpus_score([hypotheses[row] for row in rows], [[references[row] for row in rows]]).score
    assert score(np.array(rows)) == pytest.approx(expected)


def test_tables_over_seeds():
    def report(area):
        areas = {"mutual_information": area + 1.0, "entropy": area, "likelihood": area - 2.0, "random": area - 3.0}
        quality = {name: {"area": x, "curve": [x] * 10} for name, x in areas.items()}
        return {"drawn": "attention", "quality": {"bleu": quality}}

    text = "\n\n".join(coverage_lines({"wc": [report(30.0), report(32.0)]}, {"bleu": ("BLEU", 10.0), "chrf": ("c", 1)}))
    ((title, lines),) = tables_of(text).items()
    assert title == "BLEU of the 10% to 100% most certain sentences; area: mean"
    by_order = {line["sorted by"]: line for line in lines}
    assert by_order["mutual information"]["area"].startswith("320.00 [")
    assert by_order["mutual information"]["over random"] == "40.00 [40.00, 40.00]"
    assert by_order["entropy"]["over likelihood"] == "20.00 [20.00, 20.00]"
    assert by_order["likelihood"]["over likelihood"] == by_order["random"]["over random"] == "-"
    assert by_order["random"]["100%"] == "280.0" and {line["drawn"] for line in lines} == {"attention"}
