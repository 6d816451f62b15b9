"""Word alignments: reading gold ones, taking them from attention weights, and measuring their quality.

A link (i, j) joins source word i to target word j, both counted from 0. Matrices of weights have shape (T, S): one row
per target word or piece, one column per source word or piece. Scores are shares between 0 and 1, entropies in nats.
"""

import dataclasses
import re
import typing

import numpy as np
from scipy.special import entr

from applications.common.errors import InputError

_LINK = re.compile(r"(-?[0-9]{1,9})([-p?])(-?[0-9]{1,9})")


@dataclasses.dataclass(frozen=True)
class Links:
    """The links of one pair of sentences.

    Args:
        sure: Links (i, j) that a good alignment must have.
        possible: Links that it may have as well. The sure ones are added.
    """

    sure: frozenset
    possible: frozenset = frozenset()

    def __post_init__(self):
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", self.sure | frozenset(self.possible))


def links_of_line(path, number, line):
    """Return the `Links` of a line of a Pharaoh file; messages name its path and number."""
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


def merge_to_words(weights, source_words, target_words):
    """Return the weights between words (T_words, S_words), from weights between pieces of words.

    The weights of the source pieces of a word are summed, since they share a probability; the rows of the target
    pieces of a word are averaged, since each is a distribution. So rows that sum to 1 still do.

    Args:
        weights: (T, S), rows of probabilities.
        source_words, target_words: (S,) and (T,), int, the word of each piece, counted from 0. A word without a piece
            has weight 0.
    """
    # (pieces, words) of 0 and 1.
    onto_source, onto_target = (
        np.equal.outer(words, np.arange(max(words, default=-1) + 1)).astype(np.float64)
        for words in (source_words, target_words)
    )
    return (onto_target / np.maximum(onto_target.sum(axis=0), 1.0)).T @ np.asarray(weights, np.float64) @ onto_source


def links_of(weights):
    """Return the `Links` of target words to their most probable source words; a row (T, S) of zeros has no link."""
    weights = np.asarray(weights)
    return Links((int(weights[j].argmax()), int(j)) for j in np.flatnonzero(weights.any(axis=1)))


class AlignmentScores(typing.NamedTuple):
    """Precision, recall, F1 and alignment error rate. A low `aer` is good."""

    precision: float
    recall: float
    f1: float
    aer: float


def alignment_scores(predicted, gold):
    """Return the `AlignmentScores` of two lists of `Links`, by the counts of links A predicted, S sure and P possible.

    Precision is ``|A∩P| / |A|``, recall ``|A∩S| / |S|``, F1 their harmonic mean, and the alignment error rate
    ``1 - (|A∩S| + |A∩P|) / (|A| + |S|)`` (Och and Ney, 2003). Counts are summed over the pairs before they are divided.
    """
    counts = [
        (len(a.possible), len(g.sure), len(a.possible & g.sure), len(a.possible & g.possible))
        for a, g in zip(predicted, gold, strict=True)
    ]
    num_predicted, num_sure, in_sure, in_possible = np.sum(np.reshape(counts, (-1, 4)), axis=0)
    precision, recall = _ratio(in_possible, num_predicted), _ratio(in_sure, num_sure)
    f1 = _ratio(2.0 * precision * recall, precision + recall)
    return AlignmentScores(precision, recall, f1, 1.0 - _ratio(in_sure + in_possible, num_predicted + num_sure))


def entropy(weights):
    """Return the entropies (...) in nats of distributions (..., S), float64; 0 for a row of zeros."""
    # A sum of -0.0 would print as a negative number.
    return np.abs(entr(np.asarray(weights, np.float64)).sum(axis=-1))


def _ratio(numerator, denominator):
    return float(numerator / denominator) if denominator else 0.0
