"""Tests files of word links, alignments of pieces merged into words, and alignment scores."""

import math

import numpy as np
import pytest
from files import fails, write

from applications.nmt import alignments
from applications.nmt.alignments import Links
from applications.nmt.data import gold_links
from applications.text.readers import ParallelText
from tools.links_to_pharaoh import pharaoh_lines

# The example of Och and Ney 2003: sure {0-0, 1-1}, possible also 2-1; predicted {0-0, 2-1, 2-2}.
GOLD = [Links({(0, 0), (1, 1)}, {(2, 1)})]
PREDICTED = [Links({(0, 0), (2, 1), (2, 2)})]


def read(path, num_pairs):
    """Read the links of `num_pairs` pairs with 20 words per side."""
    return gold_links(path, ParallelText(*[[" ".join("w" * 20)] * num_pairs] * 2))


def random_links(generator, num_pairs, chance=0.3):
    return [
        Links(frozenset((int(i), int(j)) for i, j in np.argwhere(generator.random((5, 6)) < chance)))
        for _ in range(num_pairs)
    ]


def test_pharaoh(tmp_path):
    path = write(tmp_path / "gold.gz", "\ufeff0-0 1p2 3?1\r\n\n  12-7\t0-0 12p7 0-0\n")
    first, second, third = read(path, num_pairs=3)
    assert first == Links({(0, 0)}, {(1, 2), (3, 1)})
    assert second == Links(frozenset())
    assert third == Links({(12, 7), (0, 0)})


@pytest.mark.parametrize("field", ["1", "1-2-3", "a-1", "1–2", "١-١", "9" * 5000 + "-0"])
def test_malformed_link(tmp_path, field):
    path = write(tmp_path / "gold", f"0-0\n0-0 {field}\n")
    fails(lambda: read(path, num_pairs=2), f"{path}:2: ", repr(field))


def test_files_that_do_not_fit_the_pairs(tmp_path):
    path = write(tmp_path / "gold", "0-0\n\n-1-0\n")
    fails(lambda: read(path, num_pairs=3), f"{path}:3: ", "counted from 0", "-1-0")
    path = write(tmp_path / "gold", "0-0\n\n")
    fails(lambda: read(path, num_pairs=3), f"{path}:3: ", "2 lines", "3 pairs")
    path = write(tmp_path / "gold", "\n\n\n")
    fails(lambda: read(path, num_pairs=3), f"{path}: expected at least one sure link")
    for link in ("20-0", "0p20"):
        path = write(tmp_path / "gold", f"0-0 19p19\n0-0 19p19 {link}\n")
        fails(lambda: read(path, num_pairs=2), f"{path}:2: ", f"the link {link.replace('p', '-')} ", "20 source and 20")  # noqa: B023


def test_a_table_of_links_is_converted(tmp_path):
    """Tables of the shared tasks have one link per line and count pairs from 1."""
    links = [*random_links(np.random.default_rng(0), 7), Links({(0, 0)}, {(4, 3)}), Links(frozenset())]
    rows = [
        f"{number:04} {i} {j} {'S' if (i, j) in entry.sure else 'P'} 0.5\n"
        for number, entry in enumerate(links, start=1)
        for i, j in sorted(entry.possible)
    ]
    path = write(tmp_path / "gold.wa", "".join(rows))
    converted = write(tmp_path / "gold.pharaoh", "".join(f"{line}\n" for line in pharaoh_lines(path, 9)))
    assert read(converted, num_pairs=9) == links
    for line, message in (
        ("1 0", "expected 'pair i j'"),
        ("10 0 0 S", "expected a pair from 1"),
        ("0 0 0", "expected a pair"),
    ):
        wrong = write(tmp_path / "wrong", f"1 0 0 S\n{line}\n")
        with pytest.raises(SystemExit, match=f"wrong:2: {message}"):
            pharaoh_lines(wrong, 9)


def test_merge_by_hand():
    weights = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]]
    merged = alignments.merge_to_words(weights, [0, 0, 1, 2], [0, 0, 1])
    np.testing.assert_allclose(merged, [[0.65, 0.15, 0.2], [0.0, 0.25, 0.75]])
    np.testing.assert_allclose(alignments.merge_to_words(weights, range(4), range(3)), weights)


def test_merge_with_words_without_a_piece():
    weights = [[0.5, 0.3, 0.2], [0.0, 0.0, 1.0], [0.2, 0.2, 0.6]]
    merged = alignments.merge_to_words(weights, [0, 0, 2], [1, 1, 3])
    np.testing.assert_allclose(merged, [[0, 0, 0], [0.4, 0, 0.6], [0, 0, 0], [0.4, 0, 0.6]])
    assert alignments.merge_to_words(np.zeros((0, 2)), [0, 1], []).shape == (0, 2)


def test_links_of_the_largest_weight():
    weights = np.array([[0.1, 0.7, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0]])
    assert alignments.links_of(weights) == Links({(1, 0), (0, 1)})
    assert alignments.links_of(np.zeros((2, 0))) == Links(frozenset())


def test_scores_by_hand():
    scores = alignments.alignment_scores(PREDICTED, GOLD)
    # |A| = 3, |S| = 2, |A & S| = 1, |A & P| = 2.
    assert scores == pytest.approx((2 / 3, 1 / 2, 2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2), 1 - 3 / 5))
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
    # Predicted links that are only possible do not change the recall.
    assert alignments.alignment_scores([Links({(0, 0), (1, 1), (2, 1)})], GOLD) == (1.0, 1.0, 1.0, 0.0)
    # If all gold links are sure, the error rate is 1 - F1.
    scores = alignments.alignment_scores(random_links(generator, 4), gold)
    assert scores.aer == pytest.approx(1.0 - scores.f1)


def test_entropy():
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(alignments.entropy(weights), [math.log(4.0), 0.0, math.log(2.0), 0.0])
    assert not np.signbit(alignments.entropy(weights)).any()
