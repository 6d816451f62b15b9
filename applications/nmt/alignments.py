"""Read gold word alignments, extract links from attention weights, and score these links.

A link (i, j) connects source word i and target word j, counted from 0. Matrices of weights have shape (T, S): T target
tokens and S source tokens (words or pieces). Scores lie between 0 and 1, entropies are in nats.
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
    """Word alignment of one sentence pair, for instance a gold alignment.

    Args:
        sure: Links (i, j) that a good alignment must contain.
        possible: Links that a good alignment may contain. The attribute `possible` also includes all sure links.
    """

    sure: frozenset
    possible: frozenset = frozenset()

    def __post_init__(self):
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", self.sure | frozenset(self.possible))


def links_of_line(path, number, line):
    """Parse a line of a Pharaoh file into `Links`. Error messages name the file and the line number."""
    sure, possible = set(), set()
    for field in line.split():
        match = _LINK.fullmatch(field)
        if not match:
            raise InputError(
                f"{path}:{number}: expected links as '0-2' (sure), '0p2' or '0?2' (possible). Received: {field!r}"
            )
        i, j = int(match[1]), int(match[3])
        if i < 0 or j < 0:
            raise InputError(f"{path}:{number}: expected nonnegative word indices, counted from 0. Received: {field!r}")
        (sure if match[2] == "-" else possible).add((i, j))
    return Links(sure, possible)


def merge_to_words(weights, source_words, target_words):
    """Return word-to-word weights (T_words, S_words) from piece-to-piece weights.

    The weight of a source word is the sum of the weights of its pieces. The row of a target word is the mean of its
    pieces' rows. If the rows of `weights` sum to 1, the returned rows also sum to 1.

    Args:
        weights: (T, S); each row contains probabilities.
        source_words: int (S,), the word index of each source piece. A word without pieces receives weight 0.
        target_words: int (T,), the word index of each target piece. A word without pieces receives weight 0.
    """
    onto_source, onto_target = (
        np.equal.outer(words, np.arange(max(words, default=-1) + 1)).astype(np.float64)
        for words in (source_words, target_words)
    )
    return (onto_target / np.maximum(onto_target.sum(axis=0), 1.0)).T @ np.asarray(weights, np.float64) @ onto_source


def links_of(weights):
    """Link each target word to the most probable source word. Zero rows in `weights` (T, S) get no link."""
    weights = np.asarray(weights)
    return Links((int(weights[j].argmax()), int(j)) for j in np.flatnonzero(weights.any(axis=1)))


class AlignmentScores(typing.NamedTuple):
    """Precision, recall, F1 and the alignment error rate `aer`, which is lower for better alignments."""

    precision: float
    recall: float
    f1: float
    aer: float


def alignment_scores(predicted, gold):
    """Score predicted `Links` A against the sure gold links S and the possible gold links P.

    - precision: ``|A∩P| / |A|``
    - recall: ``|A∩S| / |S|``
    - f1: the harmonic mean of precision and recall
    - aer: ``1 - (|A∩S| + |A∩P|) / (|A| + |S|)`` (Och and Ney, 2003)

    Each count is the sum over all sentence pairs.
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
    """Return the float64 entropies (...) of distributions (..., S), in nats. A row of zeros has entropy 0."""
    # Without `abs`, -0.0 would print a minus sign.
    return np.abs(entr(np.asarray(weights, np.float64)).sum(axis=-1))


def _ratio(numerator, denominator):
    return float(numerator / denominator) if denominator else 0.0
