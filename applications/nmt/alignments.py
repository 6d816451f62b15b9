"""Word alignments: reading gold ones, taking them from attention weights, and measuring their quality.

A link (i, j) joins source word i to target word j, both counted from 0. Matrices of weights have shape (T, S): one row
per target word or piece, one column per source word or piece. Scores are shares between 0 and 1, entropies in nats.
"""

import dataclasses
import re
import typing

import numpy as np

from applications.common.errors import InputError
from applications.common.significance import percentiles, resample
from applications.text.readers import read_lines

_LINK = re.compile(r"(-?[0-9]{1,9})([-p?])(-?[0-9]{1,9})")


@dataclasses.dataclass(frozen=True)
class Links:
    """The links of one pair of sentences.

    Args:
        sure: links (i, j) that a good alignment must have.
        possible: links that it may have as well. The sure ones are added. Default: the sure ones only.
    """

    sure: frozenset
    possible: frozenset = frozenset()

    def __post_init__(self):
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", self.sure | frozenset(self.possible))


def read_pharaoh(path, num_pairs):
    """Reads a file of word alignments.

    Line n has the links of pair n, as ``0-0 1p2``; ``i-j`` is sure, ``ipj`` or ``i?j`` is possible. A blank line is a
    pair without links. tools/links_to_pharaoh.py writes such a file from a table with a line per link.

    Args:
        path: the file, plain or ``.gz``.
        num_pairs: int, how many pairs of sentences there are.

    Returns:
        A list of `Links`, one per pair.

    Raises:
        InputError: for a file that cannot be read, a malformed link, a word before the first one, or a number of lines
            other than `num_pairs`.
    """
    lines = read_lines(path)
    if len(lines) != num_pairs:
        raise InputError(
            f"{path}:{min(len(lines), num_pairs) + 1}: the file has {len(lines)} lines of links, "
            f"but there are {num_pairs} pairs of sentences"
        )
    return [links_of_line(path, number, line) for number, line in enumerate(lines, start=1)]


def links_of_line(path, number, line):
    """Returns the `Links` of a line of a Pharaoh file, whose path and number a message names."""
    sure, possible = set(), set()
    for field in line.split():
        match = _LINK.fullmatch(field)
        if not match:
            raise InputError(
                f"{path}:{number}: expected links as '0-2' (sure), '0p2' or '0?2' (possible). Received: {field!r}"
            )
        i, j = int(match[1]), int(match[3])
        if i < 0 or j < 0:
            raise InputError(f"{path}:{number}: the words of a link are counted from 0. Received: {field!r}")
        (sure if match[2] == "-" else possible).add((i, j))
    return Links(sure, possible)


def check_links(links, sources, targets, skip_invalid, path):
    """Compares links with the sentences that they belong to.

    Args:
        links: list of `Links`.
        sources, targets: one list of words per entry of `links`.
        skip_invalid: drop links out of range, and count them, instead of raising.
        path: the file that the links are from, for messages.

    Returns:
        `(links, num_dropped)`: the list of `Links` without those out of range, and how many these were.

    Raises:
        InputError: without `skip_invalid`, for a link whose source or target word does not exist, with the line of the
            pair and the link.
    """
    kept, num_dropped = [], 0
    for number, (entry, source, target) in enumerate(zip(links, sources, targets, strict=True), start=1):
        outside = {(i, j) for i, j in entry.possible if not (0 <= i < len(source) and 0 <= j < len(target))}
        if outside and not skip_invalid:
            i, j = min(outside)
            raise InputError(
                f"{path}:{number}: the link {i}-{j} is out of range (words counted from 0): pair {number} has "
                f"{len(source)} source and {len(target)} target words; mend it, or skip such links where the command "
                "has --skip-invalid"
            )
        kept.append(Links(entry.sure - outside, entry.possible - outside))
        num_dropped += len(outside)
    return kept, num_dropped


def merge_to_words(weights, source_words, target_words):
    """Weights between words, from weights between pieces of words.

    The weights of the source pieces of a word are summed, since they share a probability; the rows of the target
    pieces of a word are averaged, since each is a distribution of its own. So rows that sum to 1 still do.

    Args:
        weights: (T, S), rows of probabilities.
        source_words: (S,), int, the word that each source piece belongs to, counted from 0; -1 for a piece of no word,
            as the end of the sentence, whose weight is left out. A word without a piece has weight 0.
        target_words: (T,), int, likewise; the row of a piece of no word is left out.

    Returns:
        (T_words, S_words), float64.
    """
    onto_source, onto_target = _membership(source_words), _membership(target_words)
    return (onto_target / np.maximum(onto_target.sum(axis=0), 1.0)).T @ np.asarray(weights, np.float64) @ onto_source


def links_of(weights):
    """The links that a matrix of weights amounts to: each target word with its most probable source word.

    Args:
        weights: (T, S), non-negative.

    Returns:
        `Links`, all sure. The first of equals counts; a target word whose weights are all 0 is linked to none.
    """
    weights = np.asarray(weights)
    # Where the largest weight is 0, so is the whole row.
    return Links((int(weights[j].argmax()), int(j)) for j in np.flatnonzero(weights.any(axis=1)))


class AlignmentScores(typing.NamedTuple):
    """Precision, recall, F1 and alignment error rate; shares between 0 and 1. A low `aer` is good."""

    precision: float
    recall: float
    f1: float
    aer: float


def alignment_scores(predicted, gold):
    """Quality of alignments over a corpus, by the counts of links A predicted, S sure and P possible.

    Precision is ``|A∩P| / |A|``, recall ``|A∩S| / |S|``, F1 their harmonic mean, and the alignment error rate
    ``1 - (|A∩S| + |A∩P|) / (|A| + |S|)`` (Och and Ney, 2003). Counts are summed over the pairs before they are divided.

    Args:
        predicted: list of `Links`; their sure and possible links count alike.
        gold: list of `Links`, as many.

    Returns:
        `AlignmentScores`. Without a predicted link precision and F1 are 0.
    """
    return _scores(_counts(predicted, gold).sum(axis=0))


def bootstrap_interval(predicted, gold, measure):
    """A score, "precision", "recall", "f1" or "aer", and its 95% percentile interval: (value, low, high).

    Pairs of sentences are drawn with replacement; `predicted` and `gold` are those of `alignment_scores`.
    """
    counts = _counts(predicted, gold)
    value, resampled = resample(lambda rows: getattr(_scores(counts[rows].sum(axis=0)), measure), len(gold))
    return value, *percentiles(resampled)


def entropy(weights):
    """Entropy (...) in nats of distributions (..., S), float64. A row of padding may be 0, and has the entropy 0."""
    weights = np.asarray(weights, np.float64)
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0.0)
    # A sum of -0.0 would print as a negative number.
    return np.abs(np.sum(weights * logarithms, axis=-1))


def _membership(words):
    """(pieces, words) of 0 and 1: which piece belongs to which word."""
    words = np.asarray(words, np.int64)
    return (words[:, None] == np.arange(int(words.max(initial=-1)) + 1)).astype(np.float64)


def _counts(predicted, gold):
    """(pairs, 4): for each pair |A|, |S|, |A∩S| and |A∩P|."""
    rows = [
        (len(a.possible), len(g.sure), len(a.possible & g.sure), len(a.possible & g.possible))
        for a, g in zip(predicted, gold, strict=True)
    ]
    return np.asarray(rows, np.int64).reshape(-1, 4)


def _scores(counts):
    predicted, sure, in_sure, in_possible = counts
    precision, recall = _ratio(in_possible, predicted), _ratio(in_sure, sure)
    f1 = _ratio(2.0 * precision * recall, precision + recall)
    return AlignmentScores(precision, recall, f1, 1.0 - _ratio(in_sure + in_possible, predicted + sure))


def _ratio(part, whole):
    return float(part / whole) if whole else 0.0
