"""Word alignments: read from text, computed from attention weights, and scored.

A link (i, j) joins source word i to target word j, both counted from 0. Matrices of weights have shape (T, S): one row
per target word or piece, one column per source word or piece. Scores are shares between 0 and 1, entropies in nats.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Links:
    """The links (i, j) of one pair of sentences: those that a good alignment must have, and those that it may have.
    Sure links are possible too.
    """

    sure: frozenset
    possible: frozenset = frozenset()

    def __post_init__(self):
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", self.sure | frozenset(self.possible))


def links_of_text(text):
    """Return the `Links` of a text such as "0-0 1p2": i-j is sure, ipj is possible."""
    sure, possible = set(), set()
    for field in text.split():
        links, mark = (sure, "-") if "-" in field else (possible, "p")
        links.add(tuple(map(int, field.split(mark))))
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
    """Return the `Links` of each target word to its most probable source word, the first of equals.

    A target word whose weights (T, S) are all 0 has no link.
    """
    weights = np.asarray(weights)
    return Links((int(weights[j].argmax()), int(j)) for j in np.flatnonzero(weights.any(axis=1)))


def alignment_scores(predicted, gold):
    """Return "precision", "recall", "f1" and "aer" of two lists of `Links`: A predicted, S sure and P possible.

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
    error_rate = 1.0 - _ratio(in_sure + in_possible, num_predicted + num_sure)
    return {"precision": precision, "recall": recall, "f1": f1, "aer": error_rate}


def _ratio(numerator, denominator):
    return float(numerator / denominator) if denominator else 0.0
