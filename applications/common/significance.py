"""Intervals and tests: of scores of a corpus over its sentences, and of figures over seeds."""

import typing
import warnings

import numpy as np
import scipy.stats

NUM_RESAMPLES = 1000


class Interval(typing.NamedTuple):
    """A mean with its 95% confidence interval; `low` and `high` are NaN for a single value, which supports no claim."""

    mean: float
    low: float
    high: float


class Difference(typing.NamedTuple):
    """A difference of two corpus scores: its 95% percentile interval over resamples, and its two-sided p."""

    value: float
    low: float
    high: float
    p: float


def resample(score, num_rows):
    """Return the score of all rows, a function of an array of their indices, and SciPy's `BootstrapResult`."""
    # SciPy refuses a single row; two equal ones have the same scores.
    rows, percentile = np.arange(max(2, num_rows)) % num_rows, {"vectorized": False, "method": "percentile"}
    # One resample at a time: all indices at once would need gigabytes for long corpora.
    result = scipy.stats.bootstrap((rows,), score, n_resamples=NUM_RESAMPLES, batch=1, rng=0, **percentile)
    return float(score(np.arange(num_rows))), result


def bootstrap_difference(first, second, num_rows):
    """Return the `Difference` of two systems' scores, functions of the indices of rows (Koehn 2004).

    Both systems have the same resamples. p is the share of resamples whose difference is as far from the measured one
    as that is from 0.
    """
    value, result = resample(lambda rows: first(rows) - second(rows), num_rows)
    as_far = np.abs(result.bootstrap_distribution - value) >= abs(value)
    p = (1 + as_far.sum()) / (1 + NUM_RESAMPLES)
    return Difference(value, *map(float, (*result.confidence_interval, p)))


def compare_translations(metric, hypotheses, others, references):
    """Return the `bootstrap_difference` of two systems' translations, lists of str, by a metric of sacrebleu, whose own
    test is one-sided, and finds systems with the same sentences different."""
    scores = (corpus_score(metric, sentences, references) for sentences in (hypotheses, others))
    return bootstrap_difference(*scores, len(references))


def corpus_score(metric, hypotheses, references):
    """Return the function of an array of rows that returns the corpus score of these translations; arguments as for
    `compare_translations`."""
    # Counts of each sentence; the score of a corpus is computed from their sums. sacrebleu resamples the same way.
    counts = np.asarray(metric._extract_corpus_statistics(hypotheses, [references]), np.float64)
    return lambda rows: metric._compute_score_from_stats(counts[rows].sum(axis=0).tolist()).score


def mean_with_error(nats):
    """Return the mean of an array of nats, and its standard error, as reports have them."""
    return {"nats": float(np.mean(nats)), "standard_error": float(scipy.stats.sem(nats))}


def mean_interval(values):
    """Return the `Interval` of the values of several seeds, a list of numbers: Student's t."""
    with warnings.catch_warnings():
        # A single value has no interval, equal values have one without a width.
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = scipy.stats.ttest_1samp(values, 0.0).confidence_interval()
    return Interval(*map(float, (np.mean(values), *interval)))


def paired_interval(first, second):
    """Return the `Interval` of the differences first - second of two rows trained with the same seeds."""
    if len(first) != len(second):
        raise ValueError(f"Pairs need the same seeds. Received: {len(first)} and {len(second)} values")
    return mean_interval(np.subtract(first, second))


def paired_p(first, second):
    """Return the two-sided p of the paired t-test over seeds: 1 if all differences are 0, NaN for a single difference
    and for equal ones, which have no spread."""
    differences = np.subtract(first, second)
    if len(differences) < 2 or np.ptp(differences) < 1e-12:
        return 1.0 if len(differences) > 1 and not differences.any() else float("nan")
    return float(scipy.stats.ttest_rel(first, second).pvalue)


def holm(p_values):
    """Return p-values corrected for their number (Holm 1979), in their order; NaN stays NaN and is not counted."""
    p_values = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    corrected = p_values.copy()
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)))
    return corrected.tolist()
