"""What the tests of the alignments share: logits, masks and every alignment beside every prior."""

import numpy as np
import tensorflow as tf
from tensorflow_probability.python import distributions

from keras_vattn import ContextualPrior, DenseKeys, Dirichlet, FixedPrior, GumbelSoftmax, LogNormal, Weibull
from keras_vattn import random as noise_of

B, T, S = 3, 2, 6
generator = np.random.default_rng(0)
MASK = np.broadcast_to((np.arange(S) < np.array([6, 4, 1])[:, None])[:, None], (B, T, S))
LOGITS = (2.0 * generator.normal(size=(B, T, S))).astype("float32")
OTHER = generator.normal(size=(B, T, S)).astype("float32")
KEY = generator.normal(size=(B, S, 4)).astype("float32")
KEYS = DenseKeys(tf.constant(MASK))

REPARAMETERISED = {
    "weibull": Weibull(3.0),
    "weibull-raw": Weibull(3.0, "raw"),
    "lognormal": LogNormal(0.7),
    "lognormal-raw": LogNormal(0.7, "raw"),
    "dirichlet": Dirichlet(),
    "gumbel": GumbelSoftmax(0.5),
}
PRIORS = {
    "fixed": lambda: FixedPrior(alpha=0.7, beta=2.0, mean=0.3, sigma=1.5),
    "rate": lambda: ContextualPrior(beta=3.0, sigma=0.6),
    "paper": lambda: ContextualPrior(beta=3.0, sigma=0.6, scale="paper"),
    "posterior": lambda: None,
}


def parameters(alignment, prior, key=KEY, keys=KEYS, other=OTHER):
    """p of `divergence`: from a prior, or the logits of a p of the same family where the prior is `None`."""
    if prior is None:
        return {"logits": tf.constant(other)}
    return alignment.prior_parameters(prior, _log_psi(prior, key, keys))


def _log_psi(prior, key, keys):
    if not prior.built:
        prior.build(key.shape)
    return prior.log_psi(tf.convert_to_tensor(key), keys)


def divergence_of(alignment, logits, p, keys, noise=None):
    """KL(q || p) for a p of `parameters`."""
    if "logits" in p:
        return alignment.divergence_from_logits(logits, p["logits"], keys, noise)
    return alignment.divergence_from_prior(logits, p, keys, noise)


def draw(alignment, logits, keys, num_samples, seed=0):
    """Weights (num_samples, B, T, S)."""
    logits = tf.convert_to_tensor(logits)
    repeated = tf.repeat(logits[None], num_samples, axis=0)
    noise = alignment.noise(tuple(repeated.shape), noise_of.as_seed(seed))
    keys = DenseKeys(None if keys.valid is None else tf.broadcast_to(keys.valid, repeated.shape))
    return alignment.normalize(alignment.perturb(repeated, noise, keys), noise, keys).numpy()


def reference_divergence(alignment, logits, p, mask=MASK):
    """KL of each row in float64 through TensorFlow Probability, row by row, over the valid keys alone."""

    def phi_of(row, parameterization):
        return row - np.logaddexp.reduce(row) if parameterization == "normalized" else row

    result = np.zeros(logits.shape[:-1])
    for index in np.ndindex(*result.shape):
        valid = mask[index]

        def at(x, index=index, valid=valid):
            full = np.broadcast_to(np.asarray(x, "float64"), logits.shape)
            return full[index][valid]

        result[index] = np.sum(_row_divergence(alignment, at(logits), {k: at(v) for k, v in p.items()}, phi_of))
    return result


def _row_divergence(alignment, row, p, phi_of):
    kind = type(alignment).__name__
    if kind == "Dirichlet":
        if len(row) == 1:
            return 0.0  # a point
        clamp = lambda x: -10 + np.logaddexp(0, x + 10) - np.logaddexp(0, x - 10)  # noqa: E731
        other = p["logits"] if "logits" in p else p["log_alpha"]
        q, p = (distributions.Dirichlet(np.exp(clamp(x))) for x in (row, other))
        return distributions.kl_divergence(q, p)
    q_phi = phi_of(row, alignment.parameterization)
    p_phi = phi_of(p["logits"], alignment.parameterization) if "logits" in p else None
    if kind == "LogNormal":
        shift = 0.5 * alignment.sigma**2
        q = distributions.LogNormal(q_phi - shift, np.float64(alignment.sigma))
        if p_phi is not None:
            return distributions.kl_divergence(q, distributions.LogNormal(p_phi - shift, np.float64(alignment.sigma)))
        return distributions.kl_divergence(q, distributions.LogNormal(p["mean"], p["sigma"]))
    from scipy.special import gamma

    scale = lambda phi: np.exp(phi) / gamma(1 + 1 / alignment.k)  # noqa: E731
    q = distributions.Weibull(np.float64(alignment.k), scale(q_phi))
    if p_phi is not None:
        return distributions.kl_divergence(q, distributions.Weibull(np.float64(alignment.k), scale(p_phi)))
    return distributions.kl_divergence(q, distributions.Gamma(np.exp(p["log_alpha"]), np.exp(p["log_beta"])))
