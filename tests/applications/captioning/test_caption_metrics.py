"""Tests the pointing accuracy, and caption metrics against values by hand and with a stub for Java."""

import math
import os
import sys

import numpy as np
import pytest
from files import fails

from applications.captioning import metrics
from applications.captioning.metrics import caption_metrics, pointing, rule_tokens

# A shell stub of METEOR. It returns statistics per caption, then the score of each caption and of the corpus.
METEOR = """IFS= read -r line; log "$line"; case "$line" in
EVAL*) show 0.5; show 0.25; show 0.375;;
*) each log; show '6 5'; show '4 5';;
esac"""
HYPOTHESES = ["a man is riding\na horse .", ""]
REFERENCES = [["a man rides a horse", "a person on a horse ."], ["a ||| dog", "."]]


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Return a function that replaces Java with a shell script and returns the log file of this script.

    Called as PTBTokenizer, the script echoes its input. Called as METEOR, it runs the shell commands in `meteor`.
    """
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(meteor, version="exit 0"):
        log, script = tmp_path / "log", tmp_path / "java"
        script.write_text(
            f'#!/bin/sh\nlog() {{ printf "%s\\n" "$1" >> {log}; }}\n'
            f'each() {{ while IFS= read -r line; do "$1" "$line"; done; }}\n'
            f'show() {{ printf "%s\\n" "$1"; }}\n'
            f'log "$$ $*"\ncase "$*" in\n-version) {version};;\n*PTBTokenizer*) each show;;\n*) {meteor};;\nesac\n'
        )
        script.chmod(0o755)
        return log

    return install


def without_java(hypotheses, references):
    return caption_metrics(hypotheses, references, java=False)


def test_bleu_by_hand():
    """BLEU is computed over the whole corpus with the closest reference lengths. N-grams may match any reference."""
    scores = without_java(["a b c d x", "p q"], [["a b c", "b c d e f g", "v w y d z"], ["p q r s", "r"]])
    # The first caption matches a b c d, ab bc cd, abc bcd and no 4-gram. All n-grams of the second caption match.
    precisions = [(4 + 2) / (5 + 2), (3 + 1) / (4 + 1), 2 / 3]
    # The caption of 5 words has a reference of 5 words. For the caption of 2 words, length 1 is closer than length 4.
    for order in (1, 2, 3):
        assert scores[f"bleu_{order}"] == pytest.approx(math.prod(precisions[:order]) ** (1 / order), abs=1e-8)
    assert scores["bleu_4"] < 1e-3
    short = without_java(["a b", "p q"], [["a b c d"], ["p q r"]])
    assert short["bleu_2"] == pytest.approx(math.exp(1 - 7 / 4), abs=1e-8)


@pytest.mark.parametrize(
    ("hypothesis", "references", "similarities"),
    [
        ("a b c d", ["a b c d"], [1, 1, 1, 1]),
        ("p q x", ["p q r"], [2 / 3, 1 / 2, 0, 0]),
        # CIDEr is a mean over references. A word in no reference gets the weight of a word in one image's references.
        ("p q x", ["p q r", "v w y"], [1 / 3, 1 / 4, 0, 0]),
        # CIDEr counts a word at most as often as the reference contains it, so p counts once.
        ("p p", ["p q"], [1 / math.sqrt(4 * 2), 0, 0, 0]),
        # The length penalty for two extra words is exp(-2^2 / (2 * 6^2)).
        ("p q r s", ["p q"], [math.exp(-4 / 72) * x for x in (2 / math.sqrt(4 * 2), 1 / math.sqrt(3), 0, 0)]),
        ("", ["p q"], [0, 0, 0, 0]),
    ],
)
def test_cider(hypothesis, references, similarities):
    """The second image has other words and a perfect caption, so all words have the same weight."""
    scores = without_java([hypothesis, "e f g h"], [references, ["e f g h"]])
    assert scores["cider"] == pytest.approx((10 * np.mean(similarities) + 10) / 2)


@pytest.mark.parametrize(
    ("caption", "tokens"),
    [
        # The expected tokens are those of PTBTokenizer without the punctuation that pycocoevalcap removes.
        (
            "A man's \"dog\", isn't it? (T-shirt) & 50% U.S. café",
            "a man 's dog is n't it -lrb- t-shirt -rrb- & 50 % u.s. café",
        ),
        (
            "A “quote” — dash… a/b w/ 3.5 10:30 gonna cannot it’s dogs' #",
            "a quote dash a/b w / 3.5 10:30 gon na can not it 's dogs #",
        ),
        ("  the <unk>\nst. 5–6 {dog's}.-- ", "the <unk> st. 5 6 -lcb- dog 's -rcb-"),
        ("...", ""),
    ],
)
def test_tokens_by_rules(caption, tokens):
    """Tokenisation is idempotent: it does not change the output of a model, which already consists of tokens."""
    assert rule_tokens([caption]) == [tokens]
    assert rule_tokens([tokens]) == [tokens]


def test_with_java(java, capsys):
    """The tokenizer removes punctuation. METEOR first returns statistics, and then computes scores from them."""
    log = java(METEOR)
    report = caption_metrics(HYPOTHESES, REFERENCES)
    assert (report["tokenizer"], report["num_empty"], report["meteor"]) == ("PTBTokenizer", 1, 0.375)
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith(("SCORE", "EVAL"))] == [
        "SCORE ||| a man rides a horse ||| a person on a horse ||| a man is riding a horse",
        "SCORE ||| a   dog |||  ||| ",
        "EVAL ||| 6 5 ||| 4 5",
    ]
    assert_ended(line.split() for line in lines if line[0].isdigit())
    assert capsys.readouterr() == ("", "")


def assert_ended(commands):
    for process, *_ in commands:
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


@pytest.mark.parametrize(
    ("meteor", "message"),
    [
        ('show "MemoryError: heap" >&2; exit 1', "status 1, 'MemoryError: heap'"),
        ("each log; show '1 2 3'", "expected 2 lines and exit status 0. Received: 1"),
    ],
)
def test_java_errors(java, meteor, message):
    """A failure of Java raises an error, even if Java ends before it has read its input. No Java process remains."""
    log = java(meteor)
    fails(lambda: caption_metrics(["dog " * 20_000, "cat"], [["dog"], ["cat"]]), "java: METEOR: ", message)
    assert_ended(line.split() for line in log.read_text().splitlines() if line[0].isdigit())


def test_captions_without_words():
    scores = without_java(["", "a b c d", "..."], [[".", "?"], ["a b c d"], ["x"]])
    assert (scores["num_images"], scores["num_empty"]) == (3, 2)
    assert scores["rouge_l"] == pytest.approx(1 / 3)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocoevalcap.bleu.bleu_scorer", None)
    fails(metrics.require_pycocoevalcap, 'pip install "keras_vattn[captions]"')
    fails(lambda: without_java(["a"], [["a"]]), 'pip install "keras_vattn[captions]"')


def test_pointing_by_hand():
    weights = [
        np.array([[0.1, 0.9, 0.0, 0.0], [0.3, 0.2, 0.4, 0.1], [0.0, 0.0, 0.0, 1.0]]),
        np.array([[0.2, 0.8], [0.9, 0.1]]),
    ]
    cells, words = [(-1, 2, 0), [1, 1]], [["a", "red", "circle"], ["red", "square"]]
    kinds = {"shape": {"circle", "square"}, "colour": {"red": 0}, "size": {"big"}}
    assert pointing(weights, cells, words, kinds) == {
        "all": {"accuracy": 0.5, "chance": pytest.approx((2 / 4 + 2 / 2) / 4), "num_words": 4},
        "shape": {"accuracy": 0.0, "chance": pytest.approx((1 / 4 + 1 / 2) / 2), "num_words": 2},
        "colour": {"accuracy": 1.0, "chance": pytest.approx((1 / 4 + 1 / 2) / 2), "num_words": 2},
    }
    assert list(pointing(weights, cells, words, {})) == ["all"]


def test_pointing_of_equal_weights():
    cells = [[0, 1, 2, 3, -1]]
    accuracy = pointing([np.full((5, 4), 0.25)], cells, [list("abcde")], {})["all"]
    assert accuracy == {"accuracy": 0.25, "chance": 0.25, "num_words": 4}
    two = pointing([np.array([[0.5, 0.5, 0.0]])], [[1]], [["a"]], {})["all"]
    assert two["accuracy"] == 0.5
