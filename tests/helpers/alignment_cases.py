"""Provides logits, masks, alignments and priors for the alignment tests."""

from functools import partial

import numpy as np
import tensorflow as tf
from scipy.special import gamma
from tensorflow_probability.python import distributions

from keras_vattn import (
    ContextualPrior,
    DenseKeys,
    Dirichlet,
    DirichletPrior,
    FixedPrior,
    GammaPrior,
    GumbelSoftmax,
    LogNormal,
    LogNormalPrior,
    Weibull,
)
from keras_vattn import random as noise_of
from keras_vattn.alignments import ALIGNMENTS, AlignmentInputs, VariationalAlignment

B, T, S = 3, 2, 6
generator = np.random.default_rng(0)
MASK = np.broadcast_to((np.arange(S) < np.array([6, 4, 1])[:, None])[:, None], (B, T, S))
LOGITS = (2.0 * generator.normal(size=(B, T, S))).astype("float32")
OTHER = generator.normal(size=(B, T, S)).astype("float32")
KEY = generator.normal(size=(B, S, 4)).astype("float32")
KEYS = DenseKeys(tf.constant(MASK))

# Options of test cases that differ from the defaults of `named_rows`. Only `RewardToGo` trains the score of "hard".
NAMED_ROWS = {"hard": {"learns": False}, "lognormal": {"fits_float16": False}}
# Names of the alignments that accept a prior.
STOCHASTIC = [name for name, x in ALIGNMENTS.items() if x.is_stochastic and x.takes_divergence]
WITH_CLOSED_DIVERGENCE = [x for x in STOCHASTIC if not NAMED_ROWS.get(x, {}).get("estimates_divergence")]
REPARAMETERISED = {
    "weibull": Weibull(3.0),
    "weibull-raw": Weibull(3.0, "raw"),
    "lognormal": LogNormal(0.7),
    "lognormal-raw": LogNormal(0.7, "raw"),
    "dirichlet": Dirichlet(),
    "gumbel": GumbelSoftmax(0.5),
}
ON_THE_SIMPLEX = {
    "weibull-weights": Weibull(3.0, kl_of="weights"),
    "lognormal-weights": LogNormal(0.7, kl_of="weights"),
}
PRIORS = ("fixed", "rate", "paper", "posterior")


def named_rows():
    """Return names and options of a test case for each named alignment, with a prior if the alignment accepts it."""
    rows = {}
    for name in ALIGNMENTS:
        prior = {"prior": "contextual"} if name in STOCHASTIC else {}
        rows[f"{name}-contextual" if prior else name] = {"alignment": name, **prior, **NAMED_ROWS.get(name, {})}
    return rows


def prior_of(alignment, kind, beta=3.0, sigma=0.6):
    """Return the published prior of an alignment, or `None` for posterior logits."""
    if kind == "posterior":
        return None
    scale = {"scale": "paper"} if kind == "paper" else {}
    is_of_draws = alignment.kl_of == "draws"
    if isinstance(alignment, LogNormal):
        return LogNormalPrior(0.3 * is_of_draws, sigma=1.5) if kind == "fixed" else LogNormalPrior(sigma=sigma, **scale)
    if isinstance(alignment, Dirichlet):
        return DirichletPrior(0.7) if kind == "fixed" else DirichletPrior(**(scale or {"beta": beta}))
    if isinstance(alignment, Weibull):
        if not is_of_draws:
            return GammaPrior(0.7) if kind == "fixed" else GammaPrior(**(scale or {"beta": beta}))
        return GammaPrior(0.7, beta=2.0) if kind == "fixed" else GammaPrior(beta=beta, **scale)
    return FixedPrior() if kind == "fixed" else ContextualPrior()


def parameters(alignment, prior, key=KEY, keys=KEYS, other=OTHER):
    """Return p for `divergence_of`: a prior with its log Psi or, if `prior` is `None`, logits of the same family as
    q."""
    if prior is None:
        return {"logits": tf.constant(other)}
    return {"prior": prior, "log_psi": _log_psi(prior, key, keys)}


def _log_psi(prior, key, keys):
    if not prior.built:
        prior.build(key.shape)
    return prior.log_psi(tf.convert_to_tensor(key), keys)


def divergence_of(alignment, logits, p, keys, noise=None):
    """Return KL(q || p) of each row as a layer computes it, for p from `parameters`."""
    variational = VariationalAlignment(alignment)
    variational.prior = p.get("prior")
    scored = AlignmentInputs(p.get("logits", logits), keys, p.get("log_psi"), logits if "logits" in p else None)
    seed = partial(noise_of.as_seed, 1)
    return variational.divergence(scored, {} if noise is None else {"alignment": noise}, 0, seed)


def draw(alignment, logits, keys, num_samples, seed=0):
    """Return sampled weights (num_samples, B, T, S)."""
    logits = tf.convert_to_tensor(logits)
    repeated = tf.repeat(logits[None], num_samples, axis=0)
    noise = alignment.noise(tuple(repeated.shape), noise_of.as_seed(seed))
    keys = DenseKeys(None if keys.valid is None else tf.broadcast_to(keys.valid, repeated.shape))
    return alignment.normalize(alignment.perturb(repeated, noise, keys), noise, keys).numpy()


def reference_divergence(alignment, logits, p, mask=MASK):
    """Return the float64 KL of each row from TensorFlow Probability, over the valid keys only."""
    result = np.zeros(logits.shape[:-1])
    prior = {name: np.broadcast_to(x, logits.shape) for name, x in _prior_parameters(alignment, p).items()}
    for index in np.ndindex(*result.shape):
        valid = mask[index]
        at = {name: x[index][valid] for name, x in prior.items()}
        result[index] = np.sum(_row_divergence(alignment, logits[index][valid].astype("float64"), at))
    return result


def _prior_parameters(alignment, p):
    """Return the parameters of p in float64."""
    if "logits" in p:
        return {"logits": np.asarray(p["logits"], "float64")}
    prior, log_psi = p["prior"], None if p["log_psi"] is None else p["log_psi"].numpy().astype("float64")
    rate = prior.scale == "rate"
    if isinstance(alignment, LogNormal):
        mean = prior.mean if log_psi is None else log_psi if rate else np.exp(log_psi)
        return {"mean": mean, "sigma": prior.sigma}
    return {
        "alpha": prior.alpha if log_psi is None else np.exp(log_psi) * (prior.beta if rate else 1.0),
        "beta": prior.beta,
    }


def _row_divergence(alignment, row, p):
    if isinstance(alignment, Dirichlet):
        if len(row) == 1:
            return 0.0  # the only key has weight 1
        clamp = lambda x: -10 + np.logaddexp(0, x + 10) - np.logaddexp(0, x - 10)  # noqa: E731
        other = p["logits"] if "logits" in p else np.log(p["alpha"])
        q, p = (distributions.Dirichlet(np.exp(clamp(x))) for x in (row, other))
        return distributions.kl_divergence(q, p)
    normalized = alignment.parameterization == "normalized"
    phi_of = lambda row: row - np.logaddexp.reduce(row) if normalized else row  # noqa: E731
    if isinstance(alignment, LogNormal):
        sigma = np.float64(alignment.sigma)
        family = lambda row: distributions.LogNormal(phi_of(row) - 0.5 * sigma**2, sigma)  # noqa: E731
        other = None if "logits" in p else distributions.LogNormal(p["mean"], p["sigma"])
    else:
        k = np.float64(alignment.k)
        family = lambda row: distributions.Weibull(k, np.exp(phi_of(row)) / gamma(1 + 1 / k))  # noqa: E731
        other = None if "logits" in p else distributions.Gamma(p["alpha"], p["beta"])
    q, p = family(row), family(p["logits"]) if other is None else other
    if alignment.kl_of == "weights":
        if len(row) == 1:
            return 0.0
        # The log ratios of the entries to the last entry are normal.
        ratios = np.eye(len(row))[:-1] - np.eye(len(row))[-1:]
        q, p = (_normal(ratios @ np.asarray(x.loc), np.max(x.scale) ** 2 * ratios @ ratios.T) for x in (q, p))
    return distributions.kl_divergence(q, p)


def _normal(mean, covariance):
    return distributions.MultivariateNormalTriL(mean, np.linalg.cholesky(covariance))
