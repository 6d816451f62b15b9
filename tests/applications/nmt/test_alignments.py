import math

import numpy as np
import pytest
from files import fails, write

from applications.nmt import alignments
from applications.nmt.alignments import Links
from applications.nmt.data import gold_links
from applications.text.readers import ParallelText
from tools.links_to_pharaoh import pharaoh_lines

# The example of Och and Ney: sure {0-0, 1-1}, possible also 2-1; predicted {0-0, 2-1, 2-2}.
GOLD = [Links({(0, 0), (1, 1)}, {(2, 1)})]
PREDICTED = [Links({(0, 0), (2, 1), (2, 2)})]


def read(path, num_pairs, skip_invalid=False):
    """The links of pairs of 20 words on either side."""
    return gold_links(path, ParallelText(*[[" ".join("w" * 20)] * num_pairs] * 2), skip_invalid)


def random_links(generator, num_pairs, chance=0.3):
    return [
        Links(frozenset((int(i), int(j)) for i, j in np.argwhere(generator.random((5, 6)) < chance)))
        for _ in range(num_pairs)
    ]


def test_possible_links_contain_the_sure_ones():
    links = Links([(0, 1)], [(2, 3)])
    assert links.sure == {(0, 1)} and links.possible == {(0, 1), (2, 3)}
    assert Links({(0, 1)}) == Links({(0, 1)}, {(0, 1)})
    assert len({Links({(0, 1)}), Links({(0, 1)})}) == 1


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_pharaoh(tmp_path, name):
    path = write(tmp_path / name, "\ufeff0-0 1p2 3?1\r\n\n  12-7\t0-0 12p7 0-0\n")
    first, second, third = read(path, num_pairs=3)
    assert first == Links({(0, 0)}, {(1, 2), (3, 1)})
    assert second == Links(frozenset())
    assert third == Links({(12, 7), (0, 0)})


@pytest.mark.parametrize("field", ["1", "1-", "1-2-3", "a-1", "1_2", "1–2", "١-١", "1.0-2", "1- 2", "9" * 5000 + "-0"])
def test_malformed_link(tmp_path, field):
    path = write(tmp_path / "gold", f"0-0\n0-0 {field}\n")
    fails(lambda: read(path, num_pairs=2), f"{path}:2: ", repr(field.split()[0]))


@pytest.mark.parametrize("field", ["-1-0", "0--1", "0p-1", "-2?-3"])
def test_negative_index(tmp_path, field):
    path = write(tmp_path / "gold", f"0-0\n\n{field}\n")
    fails(lambda: read(path, num_pairs=3), f"{path}:3: ", "counted from 0", field)


def test_number_of_lines(tmp_path):
    path = write(tmp_path / "gold", "0-0\n\n")
    assert len(read(path, num_pairs=2)) == 2
    fails(lambda: read(path, num_pairs=3), f"{path}:3: ", "2 lines", "3 pairs")
    fails(lambda: read(path, num_pairs=1), f"{path}:2: ", "2 lines", "1 pairs")
    fails(lambda: read(tmp_path / "none", num_pairs=1), "no such file")


def test_a_file_of_blank_lines_has_no_link(tmp_path):
    path = write(tmp_path / "gold", "\n\n\n")
    fails(lambda: read(path, num_pairs=3), f"{path}: there is no sure link")


def test_a_table_of_links_is_converted(tmp_path):
    """The table of the shared tasks: a line per link, pairs and words as they are counted there."""
    generator = np.random.default_rng(0)
    links = [*random_links(generator, 7), Links({(0, 0)}, {(4, 3)}), Links(frozenset())]
    rows = [
        f"{number:04} {i} {j} {'S' if (i, j) in entry.sure else 'P'} 0.5\n"
        for number, entry in enumerate(links, start=1)
        for i, j in sorted(entry.possible)
    ]
    path = write(tmp_path / "gold.wa", "".join(rows))
    converted = write(tmp_path / "gold.pharaoh", "".join(f"{line}\n" for line in pharaoh_lines(path, 9)))
    assert read(converted, num_pairs=9) == links
    for line, message in (("1 0", "expected 'pair i j'"), ("10 0 0 S", "pair 10 of 9"), ("0 0 0", "pair 0 of 9")):
        wrong = write(tmp_path / "wrong", f"1 0 0 S\n{line}\n")
        with pytest.raises(SystemExit, match=f"wrong:2: {message}"):
            pharaoh_lines(wrong, 9)


@pytest.mark.parametrize("link", ["20-0", "0p20"])
def test_links_out_of_range(tmp_path, link, capsys):
    path = write(tmp_path / "gold", f"0-0 19p19\n0-0 19p19 {link}\n")
    fails(lambda: read(path, num_pairs=2), f"{path}:2: ", f"the link {link.replace('p', '-')} ", "20 source and 20")
    assert read(path, num_pairs=2, skip_invalid=True) == [Links({(0, 0)}, {(19, 19)})] * 2
    assert "1 links out of range were left out" in capsys.readouterr().err


def test_merge_by_hand():
    weights = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]]
    merged = alignments.merge_to_words(weights, [0, 0, 1, 2], [0, 0, 1])
    np.testing.assert_allclose(merged, [[0.65, 0.15, 0.2], [0.0, 0.25, 0.75]])
    np.testing.assert_allclose(merged.sum(axis=1), 1.0)
    np.testing.assert_allclose(alignments.merge_to_words(weights, range(4), range(3)), weights)


def test_pieces_of_no_word_are_left_out():
    weights = [[0.5, 0.3, 0.2], [0.0, 0.0, 1.0], [0.2, 0.2, 0.6]]
    merged = alignments.merge_to_words(weights, [0, 0, -1], [0, 1, -1])
    np.testing.assert_allclose(merged, [[0.8], [0.0]])
    assert alignments.merge_to_words(np.ones((2, 1)), [-1], [0, 0]).shape == (1, 0)
    # Words of which nothing was read.
    merged = alignments.merge_to_words(weights, [0, 0, 2], [1, 1, 3])
    np.testing.assert_allclose(merged, [[0, 0, 0], [0.4, 0, 0.6], [0, 0, 0], [0.4, 0, 0.6]])
    assert alignments.merge_to_words(np.zeros((0, 2)), [0, 1], []).shape == (0, 2)


def test_links_of_the_largest_weight():
    weights = np.array([[0.1, 0.7, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0]])
    assert alignments.links_of(weights) == Links({(1, 0), (0, 1)})
    assert alignments.links_of(np.zeros((2, 0))) == Links(frozenset())
    assert alignments.links_of(np.zeros((0, 2))) == Links(frozenset())


def test_scores_by_hand():
    scores = alignments.alignment_scores(PREDICTED, GOLD)
    # |A| = 3, |S| = 2, |A & S| = 1, |A & P| = 2.
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(1 / 2)
    assert scores.f1 == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    assert scores.aer == pytest.approx(1 - 3 / 5)


def test_scores_add_counts_over_the_corpus():
    gold = [*GOLD, Links({(0, 0)}), Links(frozenset())]
    predicted = [*PREDICTED, Links({(0, 0)}), Links({(1, 1)})]
    scores = alignments.alignment_scores(predicted, gold)
    assert scores == pytest.approx((3 / 5, 2 / 3, 2 * 0.6 * (2 / 3) / (0.6 + 2 / 3), 1 - 5 / 8))


def test_scores_at_the_ends():
    generator = np.random.default_rng(0)
    gold = random_links(generator, 4)
    assert alignments.alignment_scores(gold, gold) == (1.0, 1.0, 1.0, 0.0)
    nothing = [Links(frozenset())] * 4
    assert alignments.alignment_scores(nothing, gold) == (0.0, 0.0, 0.0, 1.0)
    # Possible links neither cost nor earn recall.
    assert alignments.alignment_scores([Links({(0, 0), (1, 1)})], GOLD) == (1.0, 1.0, 1.0, 0.0)
    assert alignments.alignment_scores([Links({(0, 0), (1, 1), (2, 1)})], GOLD) == (1.0, 1.0, 1.0, 0.0)


def test_with_sure_links_only_the_error_rate_is_one_minus_f1():
    generator = np.random.default_rng(1)
    scores = alignments.alignment_scores(random_links(generator, 9), random_links(generator, 9))
    assert scores.aer == pytest.approx(1.0 - scores.f1)


@pytest.mark.parametrize("measure", ["precision", "recall", "f1", "aer"])
def test_interval_holds_the_score(measure):
    generator = np.random.default_rng(2)
    gold, predicted = random_links(generator, 40), random_links(generator, 40, chance=0.5)
    interval = alignments.bootstrap_interval(predicted, gold, measure)
    value, low, high = interval
    assert value == pytest.approx(getattr(alignments.alignment_scores(predicted, gold), measure))
    assert low < value < high
    assert interval == alignments.bootstrap_interval(predicted, gold, measure)


def test_interval_covers_as_the_normal_one():
    # Every pair has one sure and one predicted link, so recall is the mean of independent zeros and ones.
    hits = np.arange(200) < 120
    gold = [Links({(0, 0)})] * 200
    predicted = [Links({(0, 0)} if hit else {(1, 1)}) for hit in hits]
    interval = alignments.bootstrap_interval(predicted, gold, "recall")
    half = 1.96 * math.sqrt(0.6 * 0.4 / 200)
    assert interval == pytest.approx((0.6, 0.6 - half, 0.6 + half), abs=0.01)


def test_entropy():
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    expected = [math.log(4.0), 0.0, math.log(2.0), 0.0]
    np.testing.assert_allclose(alignments.entropy(weights), expected)
    assert alignments.entropy(weights.reshape(2, 2, 4).astype(np.float32)).shape == (2, 2)
    assert not np.signbit(alignments.entropy(weights)).any()
    assert alignments.entropy(np.array([5e-324, 1.0])) == pytest.approx(0.0)
