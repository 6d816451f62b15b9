"""Computes metrics of generated text: Dist-n, entropy, self-BLEU and BLEU.

A sentence is a string of tokens joined by spaces. `draws` contains, for each input, a list of sampled sentences.
Entropy is in nats. BLEU is between 0 and 100.
"""

import collections
import itertools
import typing

import numpy as np
import sacrebleu.metrics
import scipy.stats


def distinct(draws, n, published=False):
    """Return Dist-n: the fraction of distinct n-grams in the samples for an input, averaged over inputs.

    An input without n-grams counts as 0. By default, n-grams lie inside one sentence, and the divisor is the number of
    n-grams. `published` selects the computation in the code of Bahuleyan et al. 2018. That code concatenates the
    sentences of an input, so that n-grams may span two sentences, and divides by the number of *tokens*.
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
    """Return the entropy of the sampled words of an input, in nats, averaged over inputs.

    If all sentences of an input are empty, its entropy is 0.
    """
    counts = [collections.Counter(" ".join(sentences).split()) for sentences in draws]
    return float(np.mean([scipy.stats.entropy(list(count.values())) if count else 0.0 for count in counts]))


def self_bleu(draws):
    """Return the self-BLEU: how similar the sentences are that were sampled for the same input.

    A sentence is scored with sacrebleu's sentence BLEU-4, with exponential smoothing and the effective order. The
    references are the other sentences of the input. Equal sentences score 100, and an empty sentence scores 0. Scores
    are averaged over the sentences of each input, then over inputs. Each input needs at least two sentences.
    """
    metric = sacrebleu.metrics.BLEU(tokenize="none", force=True, effective_order=True)

    def resemblance(sentences):
        references = [sentences[:index] + sentences[index + 1 :] for index in range(len(sentences))]
        return np.mean([metric.sentence_score(*pair).score for pair in zip(sentences, references, strict=True)])

    return float(np.mean([resemblance(sentences) for sentences in draws]))


class BleuResult(typing.NamedTuple):
    """A corpus BLEU in per cent, and its settings: sacrebleu's signature and the n-gram order."""

    score: float
    signature: str


def bleu_table(hypotheses, references, lowercase=False):
    """Return BLEU-1 to BLEU-4, a dictionary that maps n to `BleuResult`.

    BLEU-n is the geometric mean of the n-gram precisions up to order n. `hypotheses` are tokenized sentences.
    `references` contains a list of sentences for each hypothesis. With `lowercase=True`, case is ignored.
    """
    # For each i, sacrebleu expects the i-th reference of every hypothesis, or `None`.
    streams, table = list(itertools.zip_longest(*references)), {}
    for order in range(1, 5):
        metric = sacrebleu.metrics.BLEU(lowercase=lowercase, force=True, tokenize="none", max_ngram_order=order)
        score = metric.corpus_score(hypotheses, streams).score
        table[order] = BleuResult(score, f"{metric.get_signature()}|order:{order}")
    return table


def group_references(sources, targets):
    """Return a dictionary that maps each distinct source to the list of its distinct targets, in order."""
    # The inner dictionaries serve as ordered sets.
    groups = collections.defaultdict(dict)
    for source, target in zip(sources, targets, strict=True):
        groups[source][target] = None
    return {source: list(targets) for source, targets in groups.items()}
