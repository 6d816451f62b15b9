"""Metrics of generated text.

Sentences are strings of tokens joined by spaces, as `TextEncoder.decode` returns them. *Draws* are a list with one
entry per input, each entry the list of sentences drawn for it. Entropy is in nats; BLEU lies between 0 and 100.
"""

import collections
import itertools
import typing

import numpy as np
import sacrebleu.metrics
import scipy.stats


def distinct(draws, n, published=False):
    """Dist-n: of the n-grams drawn for an input, the share that are different; averaged over inputs.

    Args:
        draws: list of list of str.
        n: int, the length of the n-grams.
        published: bool, default False: n-grams lie inside one draw, and are divided by the number of n-grams. True is
            the computation of Bahuleyan et al. (2018)'s code: the tokens of all draws form one sequence, so n-grams
            cross from one draw into the next, and they are divided by the number of *tokens*.

    Returns:
        A float in 0 to 1. An input whose draws hold no n-gram counts as 0.
    """
    return _mean_over_inputs(draws, lambda sentences: _distinct_of_input(sentences, n, published))


def unigram_entropy(draws):
    """Entropy, in nats, of the words drawn for an input, pooled over its draws; averaged over inputs.

    An input with empty draws only counts as 0.
    """
    return _mean_over_inputs(draws, _entropy_of_input)


def self_bleu(draws):
    """How much the draws for an input resemble each other: BLEU-4 of each against the others, averaged.

    The BLEU is sacrebleu's sentence BLEU (exponential smoothing, effective order): 100 for equal draws. The mean is
    over the draws of an input, then over inputs. An empty draw scores 0.

    Raises:
        ValueError: if an input has fewer than two draws.
    """
    metric = sacrebleu.metrics.BLEU(tokenize="none", force=True, effective_order=True)

    def resemblance(sentences):
        if len(sentences) < 2:
            raise ValueError(f"self_bleu compares draws: every input needs two. Received: {len(sentences)}")
        others = [sentences[:index] + sentences[index + 1 :] for index in range(len(sentences))]
        return np.mean([metric.sentence_score(*pair).score for pair in zip(sentences, others, strict=True)])

    return _mean_over_inputs(draws, resemblance)


class BleuResult(typing.NamedTuple):
    """A corpus BLEU, a percentage, and sacrebleu's signature with the n-gram order."""

    score: float
    signature: str


def bleu(hypotheses, references, max_ngram_order=4, lowercase=False):
    """Corpus BLEU through sacrebleu, on text that is tokenised already.

    Args:
        hypotheses: list of str.
        references: list of list of str, the references of each hypothesis.
        max_ngram_order: int, default 4. BLEU-n is the geometric mean of the precisions up to n.
        lowercase: bool, default False. Compare lower case, which the signature calls case:lc.

    Returns:
        A `BleuResult`.

    Raises:
        ValueError: if the lists differ in length or are empty, or a hypothesis has no reference.
    """
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(
            "hypotheses and references need one entry per row, and there must be one. "
            f"Received: {len(hypotheses)} and {len(references)} entries"
        )
    if not all(references):
        raise ValueError(f"bleu needs a reference for every hypothesis. Received: none for row {references.index([])}")
    # sacrebleu wants one stream per reference number; a row with fewer has None in the later ones.
    streams = list(itertools.zip_longest(*references))
    metric = sacrebleu.metrics.BLEU(lowercase=lowercase, force=True, tokenize="none", max_ngram_order=max_ngram_order)
    score = metric.corpus_score(hypotheses, streams).score
    return BleuResult(score, f"{metric.get_signature()}|order:{max_ngram_order}")


def bleu_table(hypotheses, references, lowercase=False):
    """BLEU-1 to BLEU-4: a dict from order to `BleuResult`. Arguments as in `bleu`."""
    return {order: bleu(hypotheses, references, order, lowercase) for order in range(1, 5)}


def group_references(sources, targets):
    """All different targets of each source: a dict, in the order in which sources and targets first occur."""
    groups = {}
    for source, target in zip(sources, targets, strict=True):
        # A dict serves as an ordered set.
        groups.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in groups.items()}


def _mean_over_inputs(draws, measure):
    if not draws:
        raise ValueError("There are no draws to measure. Received: an empty list")
    return float(np.mean([measure(sentences) for sentences in draws]))


def _distinct_of_input(sentences, n, published):
    tokens = [sentence.split() for sentence in sentences]
    if published:
        tokens = [[token for sentence in tokens for token in sentence]]
    ngrams = [tuple(row[start : start + n]) for row in tokens for start in range(len(row) - n + 1)]
    total = len(tokens[0]) if published else len(ngrams)
    return len(set(ngrams)) / total if total else 0.0


def _entropy_of_input(sentences):
    counts = collections.Counter(token for sentence in sentences for token in sentence.split())
    return scipy.stats.entropy(list(counts.values())) if counts else 0.0
