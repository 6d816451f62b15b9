import math

import pytest

from applications.text import metrics


def test_distinct_by_hand():
    # Input 1: words a b a c, bigrams (a b) and (a c). Input 2: words a a a, bigrams (a a) twice.
    draws = [["a b", "a c"], ["a a a"]]
    assert metrics.distinct(draws, 1) == pytest.approx((3 / 4 + 1 / 3) / 2)
    assert metrics.distinct(draws, 2) == pytest.approx((2 / 2 + 1 / 2) / 2)
    assert metrics.distinct(draws, 3) == pytest.approx((0 + 1) / 2)


def test_published_distinct_crosses_draws_and_divides_by_tokens():
    # One sequence a b a c: bigrams (a b), (b a), (a c) over 4 tokens.
    draws = [["a b", "a c"]]
    assert metrics.distinct(draws, 1, published=True) == pytest.approx(3 / 4)
    assert metrics.distinct(draws, 2, published=True) == pytest.approx(3 / 4)


def test_empty_draws_count_as_nothing():
    assert metrics.distinct([["", ""]], 1) == 0.0
    assert metrics.distinct([["", "a"]], 1) == 1.0
    assert metrics.unigram_entropy([["", ""], ["a b"]]) == pytest.approx(math.log(2) / 2)


def test_entropy_is_in_nats():
    assert metrics.unigram_entropy([["a b", "c d"]]) == pytest.approx(math.log(4))
    assert metrics.unigram_entropy([["a a", "a b"]]) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))


def test_self_bleu():
    assert metrics.self_bleu([["a b c d e"] * 3]) == pytest.approx(100.0)
    assert metrics.self_bleu([["a b c d e", "f g h i j"]]) < 15.0
    # Draws 1 and 2 match each other; draw 3 matches no other draw.
    mixed = metrics.self_bleu([["a b c d e", "a b c d e", "v w x y z"]])
    assert 66.0 < mixed < 75.0
    assert metrics.self_bleu([["a b", ""]]) == 0.0


def test_bleu_by_hand():
    # Matches: unigrams 4/5, bigrams 3/4, trigrams 2/3, 4-grams 1/2. Both sentences have the same length.
    precisions = [4 / 5, 3 / 4, 2 / 3, 1 / 2]
    table = metrics.bleu_table(["a b c d x"], [["a b c d e"]])
    assert list(table) == [1, 2, 3, 4]
    for order, result in table.items():
        assert result.score == pytest.approx(100 * math.prod(precisions[:order]) ** (1 / order))
        assert f"order:{order}" in result.signature
        assert "tok:none" in result.signature
    # Every n-gram matches, so the score is the brevity penalty exp(1 - 4/2).
    assert metrics.bleu_table(["a b"], [["a b c d"]])[2].score == pytest.approx(100 * math.exp(-1))


def test_the_signature_names_lower_case():
    for lowercase, score, case in ((False, 50.0, "case:mixed"), (True, 100.0, "case:lc")):
        result = metrics.bleu_table(["a b c d"], [["a B C d"]], lowercase)[1]
        assert result.score == pytest.approx(score) and f"|{case}|" in result.signature


def test_bleu_of_several_references():
    hypotheses = ["w x y z", "a b c d", "p q r s"]
    lists = [["a b c d", "w x y z"], ["a b c d"], ["1 2 3 4", "5", "p q r s"]]
    assert metrics.bleu_table(hypotheses, lists)[4].score == pytest.approx(100.0)
    assert metrics.bleu_table(hypotheses, [entries[:1] for entries in lists])[4].score < 50.0


def test_bleu_does_not_tokenise_again():
    # Three of four tokens match; the reference has six.
    expected = 100 * 0.75 * math.exp(1 - 6 / 4)
    assert metrics.bleu_table(["it 's a.b c"], [["it 's a . b c"]])[1].score == pytest.approx(expected)


def test_group_references():
    grouped = metrics.group_references(["s", "t", "s", "s"], ["1", "2", "3", "1"])
    assert list(grouped.items()) == [("s", ["1", "3"]), ("t", ["2"])]
