"""Metrics of generated text.

Sentences are strings of tokens joined by spaces, as `TextEncoder.decode` returns them. *Draws* are a list with one
entry per input, each a list of sentences sampled for this input. Entropy is in nats; BLEU is between 0 and 100.
"""

import collections
import itertools
import typing

import numpy as np
import sacrebleu.metrics
import scipy.stats


def distinct(draws, n, published=False):
    """Return Dist-n: the fraction of distinct n-grams in the draws for an input, averaged over inputs.

    An input without n-grams counts as 0. By default n-grams lie inside one draw, and are divided by the number of
    n-grams. `published` is the computation in the code of Bahuleyan et al. 2018: the tokens of all draws are one
    sequence, so that n-grams cross draws, and they are divided by the number of *tokens*.
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

    An input whose draws are all empty counts as 0.
    """
    counts = [collections.Counter(" ".join(sentences).split()) for sentences in draws]
    return float(np.mean([scipy.stats.entropy(list(count.values())) if count else 0.0 for count in counts]))


def self_bleu(draws):
    """Return the similarity of the draws for an input, two or more: the BLEU-4 of each draw against the others.

    The BLEU is the sentence BLEU of sacrebleu (exponential smoothing, effective order): 100 for equal draws. It is
    averaged over the draws of an input, then over inputs. An empty draw scores 0.
    """
    metric = sacrebleu.metrics.BLEU(tokenize="none", force=True, effective_order=True)

    def resemblance(sentences):
        references = [sentences[:index] + sentences[index + 1 :] for index in range(len(sentences))]
        return np.mean([metric.sentence_score(*pair).score for pair in zip(sentences, references, strict=True)])

    return float(np.mean([resemblance(sentences) for sentences in draws]))


class BleuResult(typing.NamedTuple):
    """A corpus BLEU in per cent, and sacrebleu's signature with the n-gram order."""

    score: float
    signature: str


def bleu_table(hypotheses, references, lowercase=False):
    """Return BLEU-1 to BLEU-4 of tokenised hypotheses with lists of references: a dictionary from orders to
    `BleuResult`s.

    BLEU-n is the geometric mean of the precisions up to order n. `lowercase` compares in lower case, in the signature
    case:lc.
    """
    # sacrebleu expects one list per reference number, with None for hypotheses that have fewer references.
    streams, table = list(itertools.zip_longest(*references)), {}
    for order in range(1, 5):
        metric = sacrebleu.metrics.BLEU(lowercase=lowercase, force=True, tokenize="none", max_ngram_order=order)
        score = metric.corpus_score(hypotheses, streams).score
        table[order] = BleuResult(score, f"{metric.get_signature()}|order:{order}")
    return table


def group_references(sources, targets):
    """Return all distinct targets of each source: a dictionary, in the order of first occurrence."""
    # A dict serves as an ordered set.
    groups = collections.defaultdict(dict)
    for source, target in zip(sources, targets, strict=True):
        groups[source][target] = None
    return {source: list(targets) for source, targets in groups.items()}
