"""Check the arguments of metrics that are computed from sampled predictions."""

import numpy as np

SUM_TOLERANCE = 1e-3


def probabilities(draws, min_draws=1):
    """Return sampled probabilities as float64 (M, N, C) that sum to 1, or raise ValueError."""
    draws = np.asarray(draws)
    if draws.ndim != 3 or draws.shape[0] < min_draws or draws.shape[1] < 1 or draws.shape[2] < 2:
        at_least = f"at least {min_draws} draw{'s' * (min_draws > 1)}, 1 example and 2 classes"
        raise ValueError(
            f"`draws` must have shape (num_samples, N, C) with {at_least}; pass a single prediction p as p[None]. "
            f"Received: draws.shape={draws.shape}"
        )
    draws = draws.astype("float64")
    low, high = draws.min(), draws.max()
    if not (np.isfinite(low) and np.isfinite(high) and low >= 0):
        raise ValueError(f"`draws` must be probabilities, not logits or NaN. Received: values from {low} to {high}")
    totals = draws.sum(axis=-1, keepdims=True)
    if np.abs(totals - 1.0).max() > SUM_TOLERANCE:
        raise ValueError(
            "`draws` must be probabilities that sum to 1 over the last axis. "
            f"Received: sums from {totals.min()} to {totals.max()}"
        )
    return draws / totals


def class_labels(labels, num_examples, num_classes):
    """Return labels as integers (N,) in [0, C), or raise ValueError."""
    labels = np.asarray(labels)
    if labels.shape != (num_examples,) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"`labels` must be integers of shape ({num_examples},), one for each example in `draws`. "
            f"Received: labels.shape={labels.shape}, labels.dtype={labels.dtype}"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"`labels` must be class indices in [0, {num_classes}). "
            f"Received: labels from {labels.min()} to {labels.max()}"
        )
    return labels
