"""Whether one system's corpus score differs from another's beyond the sentences that it was measured on."""

import typing

import numpy as np
import scipy.stats

from applications.common.progress import progress

NUM_RESAMPLES = 1000


class Difference(typing.NamedTuple):
    """A difference of two corpus scores: its 95% percentile interval over resamples, and its two-sided p."""

    value: float
    low: float
    high: float
    p: float


def resample(score, num_rows):
    """Return the score of all rows, and the scores of `NUM_RESAMPLES` draws of rows with replacement, an array.

    Args:
        score: Function of an array of the indices of rows.
        num_rows: Number of rows.
    """
    generator = np.random.default_rng(0)
    resamples = progress(range(NUM_RESAMPLES), "bootstrap")
    resampled = [score(generator.integers(num_rows, size=num_rows)) for _ in resamples]
    return score(np.arange(num_rows)), np.array(resampled)


def percentiles(resampled):
    """Return the 95% interval of scores of resamples: low, high."""
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)


def bootstrap_difference(first, second, num_rows):
    """Resample rows with replacement, the same ones for both systems (Koehn 2004).

    p is the share of resamples whose difference is as far from the measured one as that is from 0.

    Args:
        first: Function of an array of the indices of rows, the score.
        second: The same of the other system, whose score is subtracted.
        num_rows: Number of rows.

    Returns:
        `Difference`.
    """
    value, resampled = resample(lambda rows: first(rows) - second(rows), num_rows)
    as_far = np.abs(resampled - value) >= abs(value)
    return Difference(float(value), *percentiles(resampled), float((1 + as_far.sum()) / (1 + NUM_RESAMPLES)))


def compare_translations(metric, hypotheses, others, references):
    """Return the `bootstrap_difference` of two systems' translations.

    sacrebleu's own test is one-sided, and finds systems with the same sentences different.

    Args:
        metric: A metric of sacrebleu.
        hypotheses: List of str.
        others: List of str, as many. Their scores are subtracted.
        references: List of str, as many.
    """
    scores = (corpus_score(metric, sentences, references) for sentences in (hypotheses, others))
    return bootstrap_difference(*scores, len(references))


def corpus_score(metric, hypotheses, references):
    """Return the function of an array of rows that returns the corpus score of these translations; arguments as for
    `compare_translations`."""
    # Counts of each sentence; the score of a corpus is computed from their sums. sacrebleu resamples the same way.
    counts = np.asarray(metric._extract_corpus_statistics(hypotheses, [references]), np.float64)
    return lambda rows: metric._compute_score_from_stats(counts[rows].sum(axis=0).tolist()).score


class Interval(typing.NamedTuple):
    """A mean with its confidence interval; `low` and `high` are NaN for a single value, which supports no claim."""

    mean: float
    low: float
    high: float


def mean_with_error(nats):
    """Return the mean of an array of nats, and its standard error, as reports have them."""
    return {"nats": float(np.mean(nats)), "standard_error": float(scipy.stats.sem(nats))}


def mean_interval(values):
    """Mean of the values of several seeds, a list of numbers, with Student's 95% t interval: an `Interval`."""
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"mean_interval needs one number per seed. Received: an array of shape {values.shape}")
    mean = values.mean()
    if values.size == 1:
        return Interval(float(mean), float("nan"), float("nan"))
    half = scipy.stats.t.ppf(0.975, values.size - 1) * scipy.stats.sem(values)
    return Interval(float(mean), float(mean - half), float(mean + half))


def paired_interval(first, second):
    """Mean difference first - second of two rows trained with the same seeds, with Student's 95% t interval."""
    if len(first) != len(second):
        raise ValueError(f"Pairs need the same seeds. Received: {len(first)} and {len(second)} values")
    return mean_interval(np.subtract(first, second))


def paired_p(first, second):
    """Two-sided p of the paired t-test over seeds: 1 where all differences are 0; NaN for a single one, and where all
    are the same without being 0, of whose spread they say nothing."""
    differences = np.subtract(first, second)
    if len(differences) < 2:
        return float("nan")
    if not differences.any():
        return 1.0
    if np.ptp(differences) < 1e-12:
        return float("nan")
    return float(scipy.stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p_values):
    """Return p-values corrected for their number (Holm 1979), in their order; NaN stays NaN and is not counted."""
    p_values = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    corrected = p_values.copy()
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)))
    return corrected.tolist()
