"""Metrics of captions by hand, against pycocoevalcap and with a program in the place of Java; pointing accuracy."""

import math
import os
import pathlib
import sys

import numpy as np
import pytest
from files import fails
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from applications.captioning import metrics
from applications.captioning.metrics import FIGURES, caption_metrics, pointing, rule_tokens
from applications.text.metrics import bleu_table

# What METEOR 1.5 answers for four captions, of which the third is its reference and the fourth is empty: statistics,
# and then the scores of each and of all of them.
COUNTS = """\
6 5 3 2 2 2 2 2 1 1 0 0 0 0 0 0 0 0 0 0 2 5 5
4 5 1 2 1 1 0 0 0 0 0 0 0 0 0 0 1 1 1 1 1 3 3
2 2 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 1 2 2
0 2 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"""
SCORES = """\
0.4398732861414338
0.25798316496745183
1.0
0.0
0.34507634197030296"""
# METEOR in the shell: the statistics where captions are scored, and the scores where statistics are.
ANSWERS = f"""IFS= read -r line; log "$line"; case "$line" in
EVAL*) show '{SCORES}';;
*) each log; show '{COUNTS}';;
esac"""
HYPOTHESES = ["a man is riding a horse .", "the man\nrides \u2028 quickly", "a dog", ""]
REFERENCES = [["a man rides a horse", "a person on a horse ."], ["a man rides a horse"], ["a dog"], ["a ||| dog", "."]]


@pytest.fixture(autouse=True)
def first_time():
    """What is said once is said in every test."""
    metrics._say_without_java.cache_clear()


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Returns the function that puts a shell script in the place of Java, and returns the file that it logs to.

    As PTBTokenizer it returns its lines; as METEOR it does what the function is given.
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


def folder_of_package():
    package = pathlib.Path(sys.modules["pycocoevalcap.bleu.bleu"].__file__).parents[1]
    return sorted(path for path in package.rglob("*") if path.suffix != ".pyc")


def test_bleu_by_hand():
    """Of the corpus; the closest reference counts for the length, and n-grams match those of any reference."""
    found = without_java(["a b c d x", "p q"], [["a b c", "b c d e f g", "v w y d z"], ["p q r s", "r"]])
    # Of the first match a b c d, ab bc cd, abc bcd, and no n-gram of four words; of the second all.
    precisions = [(4 + 2) / (5 + 2), (3 + 1) / (4 + 1), 2 / 3]
    # Lengths: 5 for 5; 2 for 1, which is closer than 4.
    for order in (1, 2, 3):
        assert found[f"bleu_{order}"] == pytest.approx(math.prod(precisions[:order]) ** (1 / order), abs=1e-8)
    assert found["bleu_4"] < 1e-3
    short = without_java(["a b", "p q"], [["a b c d"], ["p q r"]])
    assert short["bleu_2"] == pytest.approx(math.exp(1 - 7 / 4), abs=1e-8)


def test_rouge_l_by_hand():
    """Beta is 1.2; precision and recall are the best of any reference."""
    found = without_java(["a b c d x", "p q", "n"], [["a b y c d", "b a"], ["p q r s"], ["m"]])
    first = 2.44 * 0.8 * 0.8 / (0.8 + 1.44 * 0.8)
    second = 2.44 * 1.0 * 0.5 / (0.5 + 1.44 * 1.0)
    assert found["rouge_l"] == pytest.approx((first + second + 0) / 3)
    mixed = without_java(["a b c d x"], [["a b c d e", "a b"]])
    assert mixed["rouge_l"] == pytest.approx(2.44 * 0.8 * 1.0 / (1.0 + 1.44 * 0.8))


@pytest.mark.parametrize(
    ("hypothesis", "references", "similarities"),
    [
        ("a b c d", ["a b c d"], [1, 1, 1, 1]),
        ("p q x", ["p q r"], [2 / 3, 1 / 2, 0, 0]),
        # Two references: the mean. Words of no reference are as rare as words of one.
        ("p q x", ["p q r", "v w y"], [1 / 3, 1 / 4, 0, 0]),
        # Counts are clipped: of p twice only once.
        ("p p", ["p q"], [1 / math.sqrt(4 * 2), 0, 0, 0]),
        # Two bigrams too many: exp(-2^2 / (2 * 6^2)).
        ("p q r s", ["p q"], [math.exp(-4 / 72) * x for x in (2 / math.sqrt(4 * 2), 1 / math.sqrt(3), 0, 0)]),
        ("", ["p q"], [0, 0, 0, 0]),
    ],
)
def test_cider_is_cider_d(hypothesis, references, similarities):
    """Beside an image of other words, whose caption is its reference, all words weigh the same."""
    found = without_java([hypothesis, "e f g h"], [references, ["e f g h"]])
    assert found["cider"] == pytest.approx((10 * np.mean(similarities) + 10) / 2)


def test_cider_weighs_words_by_the_images_that_have_them():
    """A word of all images weighs nothing, one of two of four images log 2, one of one image log 4."""
    references = [["a b c"], ["a b d"], ["a e"], ["a f"]]
    found = without_java(["a b x", "", "", ""], references)
    unigrams = math.log(2) ** 2 / (math.hypot(math.log(2), math.log(4)) ** 2)
    bigrams = math.log(2) ** 2 / (math.hypot(math.log(2), math.log(4)) ** 2)
    assert found["cider"] == pytest.approx(10 * (unigrams + bigrams) / 4 / 4)


def random_captions(num_images, seed=0):
    generator = np.random.default_rng(seed)
    words = np.array([*"abcdefgh"])
    chance = np.arange(8, 0, -1) / 36
    return [
        [" ".join(generator.choice(words, generator.integers(3, 12), p=chance)) for _ in range(5)]
        for _ in range(num_images)
    ]


def test_figures_are_those_of_pycocoevalcap(capsys):
    rows = random_captions(60)
    hypotheses, references = [row[0] for row in rows], [row[1:] for row in rows]
    found = without_java(hypotheses, references)
    truth, given = dict(enumerate(references)), {index: [text] for index, text in enumerate(hypotheses)}
    expected = [*Bleu(4).compute_score(truth, given, verbose=0)[0]]
    expected += [scorer.compute_score(truth, given)[0] for scorer in (Rouge(), Cider())]
    assert [found[name] for name in FIGURES[:6]] == pytest.approx(expected, rel=1e-12)
    table = bleu_table(hypotheses, references)
    assert [100 * found[f"bleu_{order}"] for order in table] == pytest.approx([x.score for x in table.values()])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("caption", "tokens"),
    [
        # As PTBTokenizer has them, without what pycocoevalcap removes.
        (
            "A man's \"dog\", isn't it? (T-shirt) & 50% U.S. café",
            "a man 's dog is n't it -lrb- t-shirt -rrb- & 50 % u.s. café",
        ),
        (
            "A “quote” — dash… a/b w/ 3.5 10:30 gonna cannot it’s dogs' #",
            "a quote dash a/b w / 3.5 10:30 gon na can not it 's dogs #",
        ),
        (
            "Half-eaten T.V. dinner; he'll can't [one] U.S.A.",
            "half-eaten t.v. dinner he 'll ca n't -lsb- one -rsb- u.s.a.",
        ),
        ("  the <unk>\nst. 5–6 {dog's}.-- ", "the <unk> st. 5 6 -lcb- dog 's -rcb-"),
        ("...", ""),
    ],
)
def test_tokens_by_rules(caption, tokens):
    """Tokens of tokens are the same ones: a model writes tokens."""
    assert rule_tokens([caption]) == [tokens]
    assert rule_tokens([tokens]) == [tokens]


def test_without_java_a_line_says_so_once(java, capsys):
    for _ in range(2):
        found = caption_metrics(["A dog (runs).", "a cat"], [["a dog runs", "Dogs."], ["The cat."]])
    assert found["tokenizer"] == "rules without Java" and "meteor" not in found
    assert found == caption_metrics(["A dog (runs).", "a cat"], [["a dog runs", "Dogs."], ["The cat."]], java=False)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "There is no Java: captions are split into tokens by rules of this program, and METEOR is left out\n"
    )


def test_a_java_that_does_not_run_is_none(java, capsys):
    java("exit 1", version="exit 1")
    assert caption_metrics(["a", "b"], [["a"], ["c"]])["tokenizer"] == "rules without Java"
    assert "no Java" in capsys.readouterr().err


def test_java_is_not_asked_where_it_is_not_wanted(java, capsys):
    log = java("exit 1")
    assert without_java(["a", "b"], [["a"], ["c"]])["tokenizer"] == "rules without Java"
    assert not log.exists() and capsys.readouterr() == ("", "")


def test_with_java(java, capsys):
    """Its tokens without punctuation, and METEOR of the statistics that it returns; nothing is left behind."""
    log, before = java(ANSWERS), folder_of_package()
    found = caption_metrics(HYPOTHESES, REFERENCES)
    assert found["tokenizer"] == "PTBTokenizer" and found["num_empty"] == 1
    assert found["meteor"] == float(SCORES.splitlines()[-1])
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith("SCORE")] == [
        "SCORE ||| a man rides a horse ||| a person on a horse ||| a man is riding a horse",
        "SCORE ||| a man rides a horse ||| the man rides quickly",
        "SCORE ||| a dog ||| a dog",
        "SCORE ||| a   dog |||  ||| ",
    ]
    assert [line for line in lines if line.startswith("EVAL")] == [" ||| ".join(["EVAL", *COUNTS.splitlines()])]
    commands = [line.split() for line in lines if line[0].isdigit()]
    assert [line[1] for line in commands] == ["-version"] + ["-Dfile.encoding=UTF-8"] * 4
    assert_ended(commands)
    assert folder_of_package() == before and capsys.readouterr() == ("", "")


def assert_ended(commands):
    for process, *_ in commands:
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


@pytest.mark.parametrize(
    ("meteor", "said"),
    [
        (
            'show Options >&2; show "MemoryError: heap" >&2; show "  at Main" >&2; exit 1',
            "status 1, 'MemoryError: heap'",
        ),
        ("exit 3", "status 3"),
        ("each log; show '1 2 3'", "expected 2 lines and status 0. Received: 1"),
        (
            'IFS= read -r line; show a; case "$line" in EVAL*) show b; show c;; *) show d;; esac',
            "a number. Received: 'c'",
        ),
    ],
)
def test_java_that_fails(java, meteor, said):
    """Also before it has read what it is given; it is waited for in vain by nobody, and does not go on."""
    log, before = java(meteor), folder_of_package()
    fails(lambda: caption_metrics(["dog " * 20_000, "cat"], [["dog"], ["cat"]]), "java: METEOR: ", said)
    assert_ended(line.split() for line in log.read_text().splitlines() if line[0].isdigit())
    assert folder_of_package() == before


def test_captions_without_words():
    found = without_java(["", "a b c d", "..."], [[".", "?"], ["a b c d"], ["x"]])
    assert (found["num_images"], found["num_empty"]) == (3, 2)
    assert found["rouge_l"] == pytest.approx(1 / 3)
    nothing = without_java(["", "!"], [["a"], ["b c"]])
    assert [nothing[name] for name in FIGURES[:6]] == pytest.approx([0.0] * 6, abs=1e-12)


def test_cider_of_one_image_is_zero_and_said_to_be(capsys):
    assert without_java(["a b"], [["a b"]])["cider"] == 0.0
    assert capsys.readouterr().err == "CIDEr of a single image is 0: no n-gram tells it from other images\n"


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


def test_equal_weights_point_as_often_as_chance():
    cells = [[0, 1, 2, 3, -1]]
    found = pointing([np.full((5, 4), 0.25)], cells, [list("abcde")], {})["all"]
    assert found == {"accuracy": 0.25, "chance": 0.25, "num_words": 4}
    two = pointing([np.array([[0.5, 0.5, 0.0]])], [[1]], [["a"]], {})["all"]
    assert two["accuracy"] == 0.5
