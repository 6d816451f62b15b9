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
    """Return Dist-n: the share of different ones among the n-grams of the draws for an input, averaged over inputs.

    An input without an n-gram counts as 0. By default n-grams lie inside one draw, and are divided by the number of
    n-grams. `published` computes what the code of Bahuleyan et al. 2018 does: the tokens of all draws are one sequence,
    so n-grams cross from one draw into the next, and they are divided by the number of *tokens*.
    """

    def share(sentences):
        tokens = [sentence.split() for sentence in sentences]
        if published:
            tokens = [[token for sentence in tokens for token in sentence]]
        ngrams = [tuple(row[start : start + n]) for row in tokens for start in range(len(row) - n + 1)]
        total = len(tokens[0]) if published else len(ngrams)
        return len(set(ngrams)) / total if total else 0.0

    return float(np.mean([share(sentences) for sentences in draws]))


def unigram_entropy(draws):
    """Return the entropy, in nats, of the words drawn for an input, pooled over its draws; averaged over inputs.

    An input with empty draws only counts as 0.
    """
    counts = [collections.Counter(" ".join(sentences).split()) for sentences in draws]
    return float(np.mean([scipy.stats.entropy(list(count.values())) if count else 0.0 for count in counts]))


def self_bleu(draws):
    """Return how much the draws for an input, two or more, resemble each other: BLEU-4 of each against the others.

    The BLEU is sacrebleu's sentence BLEU (exponential smoothing, effective order): 100 for equal draws. The mean is
    over the draws of an input, then over inputs. An empty draw scores 0.
    """
    metric = sacrebleu.metrics.BLEU(tokenize="none", force=True, effective_order=True)

    def resemblance(sentences):
        references = [sentences[:index] + sentences[index + 1 :] for index in range(len(sentences))]
        return np.mean([metric.sentence_score(*pair).score for pair in zip(sentences, references, strict=True)])

    return float(np.mean([resemblance(sentences) for sentences in draws]))


class BleuResult(typing.NamedTuple):
    """A corpus BLEU, a percentage, and sacrebleu's signature with the n-gram order."""

    score: float
    signature: str


def bleu_table(hypotheses, references, lowercase=False):
    """Return the corpus BLEU-1 to BLEU-4 of tokenised hypotheses, with a list of references each, a dictionary from the
    order to a `BleuResult`.

    BLEU-n is the geometric mean of the precisions up to n. `lowercase` compares lower case, which the signature calls
    case:lc.
    """
    # sacrebleu wants one stream per reference number; a row with fewer has None in the later ones.
    streams, table = list(itertools.zip_longest(*references)), {}
    for order in range(1, 5):
        metric = sacrebleu.metrics.BLEU(lowercase=lowercase, force=True, tokenize="none", max_ngram_order=order)
        score = metric.corpus_score(hypotheses, streams).score
        table[order] = BleuResult(score, f"{metric.get_signature()}|order:{order}")
    return table


def group_references(sources, targets):
    """Return all different targets of each source: a dictionary, in the order in which both first occur."""
    # A dict serves as an ordered set.
    groups = collections.defaultdict(dict)
    for source, target in zip(sources, targets, strict=True):
        groups[source][target] = None
    return {source: list(targets) for source, targets in groups.items()}
