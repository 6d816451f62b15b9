"""Lines of sentences with their uncertainty, on figures made by hand."""

import numpy as np
import tensorflow as tf

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
    """The padding has no words; without draws their columns are left out."""
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
    """The end counts, and the padding does not."""
    target = tf.constant([[5, 6, END], [7, END, PAD]])
    assert shifted(target).numpy().tolist() == [[START, 5, 6], [START, 7, PAD]]
    found = uncertainty_of(lambda: tf.math.log(tf.fill((2, 3, 8), 1 / 8)), target)
    assert set(found) == {"num_words", "log_likelihood", "entropy", "word_entropy"}
    assert found["num_words"].numpy().tolist() == [3, 2]
    np.testing.assert_allclose(found["log_likelihood"], -np.log(8) * np.array([3, 2]), rtol=1e-5)
    np.testing.assert_allclose(found["entropy"], np.log(8), rtol=1e-5)
