"""Converts distributions of the library to float64 distributions of TensorFlow Probability."""

import numpy as np
from tensorflow_probability.python import distributions as tfd

from keras_vattn import distributions, random


def twin(distribution):
    """Return the TensorFlow Probability distribution, of entries or rows, with the same parameters."""
    if isinstance(distribution, tfd.Independent):
        return tfd.Independent(twin(distribution.distribution), 1)
    if isinstance(distribution, distributions.Normal):
        scale = 1.0 if distribution.log_scale is None else np.exp(_float64(distribution.log_scale))
        return tfd.Normal(_float64(distribution.loc), np.float64(scale))
    if isinstance(distribution, distributions.Categorical):
        return tfd.Categorical(logits=_float64(distribution.logits))
    if isinstance(distribution, distributions.RelaxedCategorical):
        # The KL of relaxed categoricals is defined as the KL of the underlying categoricals.
        return tfd.Categorical(logits=_float64(distribution.keys.mask_out(distribution.log_probabilities)))
    if isinstance(distribution, distributions.Dirichlet):
        # Masked keys get a concentration that is too small to have an effect.
        return tfd.Dirichlet(_float64(distribution.keys.where_valid(distribution.concentration, 1e-30)))
    if isinstance(distribution, distributions.Weibull):
        return tfd.Weibull(np.float64(distribution.k), np.exp(_float64(distribution.log_scale)))
    if isinstance(distribution, distributions.Gamma):
        return tfd.Gamma(np.exp(_float64(distribution.log_concentration)), np.exp(np.float64(distribution.log_rate)))
    if isinstance(distribution, distributions.LogNormal):
        return tfd.LogNormal(_float64(distribution.loc), np.float64(distribution.scale))
    return distribution


def twin_divergence(q, p):
    """Return KL(q || p) of entries or rows in float64. If no KL is registered, return the mean over the sixteen fixed
    samples that inference uses."""
    try:
        return tfd.kl_divergence(twin(q), twin(p)).numpy()
    except NotImplementedError:
        draws = np.stack([q.sample(seed=random.fold_in(random.as_seed(0), i)) for i in range(16)])
        log_q, log_p = _float64(q.log_prob(draws)), _float64(p.log_prob(draws))
        if not q.event_shape.rank and p.event_shape.rank:
            # q is a distribution of entries, p of rows.
            log_q = np.sum(p.keys.where_valid(log_q, 0.0), axis=-1)
        return np.mean(log_q - log_p, axis=0)


def _float64(x):
    return np.asarray(x, "float64")
