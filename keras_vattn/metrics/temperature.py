"""Fit the temperature of logits to held-out labels."""

import math

import numpy as np

from keras_vattn.metrics import _draws

_LOG_TEMPERATURES = np.linspace(math.log(0.01), math.log(100.0), 64)
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def fit_temperature(logits, labels):
    """Return the temperature T that makes held-out labels most likely under softmax(logits / T).

    Fit T on examples that were not used in training, and divide the logits of new examples by T. T above 1 makes the
    probabilities less confident. With a single sample, T does not change the predicted class. With several samples, the
    likelihood may have several maxima, and T is not always the best of them.

    Formula:
        T = "argmax"_(0.01 <= T <= 100) 1/N sum_i log (1/M sum_m p_m(y_i | x_i))
        p_m(c | x_i) = "softmax"_c("logits"_(m,i,c) / T)

    Args:
        logits: (N, C), or samples (num_samples, N, C). The probabilities of the samples are averaged.
        labels: Integers (N,).

    Returns:
        A float from 0.01 to 100: 0.01 if every label has the largest logit, 100 if every label has the smallest logit.

    Raises:
        ValueError: If the logits are not finite, or a label is not in [0, C).

    Reference:
        Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 4.2.

    Example:

    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)  # 98 % confidence, 3 of 4 correct
    >>> round(keras_vattn.metrics.fit_temperature(logits, [0, 0, 0, 1]), 3)  # 4 / log 3
    3.641
    """
    logits = np.asarray(logits, "float64")
    if logits.ndim not in (2, 3) or 0 in logits.shape or logits.shape[-1] < 2 or not np.isfinite(logits).all():
        raise ValueError(
            "`logits` must be finite numbers of shape (N, C) or (num_samples, N, C) with at least 2 classes. "
            f"Received: logits.shape={logits.shape}, {np.sum(~np.isfinite(logits))} values are not finite"
        )
    logits = logits if logits.ndim == 3 else logits[None]
    labels = _draws.class_labels(labels, *logits.shape[1:])
    # Now log p(label) is -logsumexp(logits).
    logits = logits - logits[:, np.arange(len(labels)), labels, None]

    def loss(log_temperature):
        log_likelihoods = -np.logaddexp.reduce(logits * np.exp(-log_temperature), axis=-1)
        return -np.mean(np.logaddexp.reduce(log_likelihoods, axis=0))

    best = int(np.argmin([loss(x) for x in _LOG_TEMPERATURES]))
    if best in (0, len(_LOG_TEMPERATURES) - 1):
        return float(np.exp(_LOG_TEMPERATURES[best]))
    low, high = _LOG_TEMPERATURES[best - 1], _LOG_TEMPERATURES[best + 1]
    # After 40 steps, the losses differ only by rounding errors.
    for _ in range(40):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    return float(np.exp((low + high) / 2.0))
