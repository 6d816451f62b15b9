import math

import keras
from keras import ops

from keras_vattn.losses.sequence_crossentropy import token_log_likelihood
from keras_vattn.support.validation import integer, one_of

KINDS = ("plug-in", "predictive", "exact", "elbo", "iw")


@keras.saving.register_keras_serializable(package="keras_vattn")
class Perplexity(keras.metrics.Metric):
    """Perplexity per token of a data set. The argument `kind` names the likelihood from which it is computed.

    Compare only perplexities of the same kind, or "predictive" with "exact". With "elbo" and "iw", the value is an
    upper bound on the perplexity. A value computed during training is of none of these kinds, because noise and dropout
    are active. In the formula, T_b is the number of unmasked steps of sequence y_b, including the end of the sentence.

    | kind | log p(y given x) |
    |---|---|
    | "plug-in" | log-likelihood with mean attention weights, as the model computes it at inference |
    | "predictive" | log of the mean of p over samples that do not depend on y (`predictive_log_likelihood`) |
    | "exact" | log of the sum over all latent alignments |
    | "elbo" | evidence lower bound |
    | "iw" | importance-weighted bound |

    Formula:
        "perplexity" = exp(- (sum_b log p(y_b | x_b)) / (sum_b T_b))

    Args:
        kind: A kind in the table. Defaults to `"plug-in"`.
        from_logits: Whether `y_pred` contains logits (`True`) or probabilities. Defaults to `True`.
        ignore_class: Integer label that marks steps to exclude, such as the padding id. Defaults to `None`.
        name: Name of the metric. Defaults to the kind and "perplexity", as in `"plug_in_perplexity"`.
        dtype: Dtype of the result. Defaults to float32 for every dtype policy. The internal sums are float64.

    Call arguments:
        y_true: Integer labels, (B, T).
        y_pred: (B, T, V). Steps that the Keras mask of `y_pred` excludes do not count.
        sample_weight: Scalar, (B,) or (B, T). Multiplies the log-likelihood and the count of each step.

    Returns:
        A scalar without unit, at least 1; NaN before the first token.

    Raises:
        ValueError: If `kind` is unknown, or `y_true` does not have the two axes (B, T).

    Example:

    >>> import numpy as np
    >>> metric = keras_vattn.Perplexity()
    >>> round(float(metric(np.zeros((2, 5), "int32"), np.zeros((2, 5, 10), "float32"))), 3)
    10.0
    """

    def __init__(self, kind="plug-in", from_logits=True, ignore_class=None, name=None, dtype=None):
        kind = one_of("kind", kind, KINDS)
        super().__init__(name=name or f"{kind.replace('-', '_')}_perplexity", dtype=dtype or "float32")
        self.kind = kind
        self.from_logits = from_logits
        self.ignore_class = integer("ignore_class", ignore_class, optional=True)
        # In float32, the counter would stop growing at 2**24.
        self.negative_log_likelihood, self.num_tokens = (
            self.add_weight(initializer="zeros", name=name, dtype="float64")
            for name in ("negative_log_likelihood", "num_tokens")
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true)
        if len(y_true.shape) != 2:
            raise ValueError(
                "`Perplexity` averages over words: `y_true` must be integer labels of shape (batch, time). "
                f"Received: y_true.shape={tuple(y_true.shape)}"
            )
        log_likelihood, valid = token_log_likelihood(
            y_true, y_pred, from_logits=self.from_logits, ignore_class=self.ignore_class
        )
        counts = ops.cast(valid, "float32")
        if sample_weight is not None:
            weight = ops.convert_to_tensor(sample_weight, "float32")
            if len(weight.shape) == 1:
                weight = weight[:, None]
            log_likelihood = ops.where(valid, log_likelihood * weight, 0.0)
            counts = counts * weight
        self._add(log_likelihood, counts)

    def update_log_likelihood(self, log_likelihood, num_tokens):
        """Add sequences with known log-likelihoods, or bounds on the log-likelihoods.

        Args:
            log_likelihood: (B,), in nats.
            num_tokens: (B,), the number of tokens of each sequence, including the end-of-sentence token.

        Example:

        >>> metric = keras_vattn.Perplexity(kind="elbo")
        >>> metric.update_log_likelihood([-6.9078], [3])
        >>> round(float(metric.result()), 3), metric.name
        (10.0, 'elbo_perplexity')
        """
        self._add(ops.convert_to_tensor(log_likelihood), ops.convert_to_tensor(num_tokens))

    def result(self):
        mean = ops.divide_no_nan(self.negative_log_likelihood, self.num_tokens)
        return ops.cast(ops.where(self.num_tokens > 0, ops.exp(mean), math.nan), self.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "kind": self.kind,
            "from_logits": self.from_logits,
            "ignore_class": self.ignore_class,
        }

    def _add(self, log_likelihood, counts):
        self.negative_log_likelihood.assign_sub(ops.cast(ops.sum(log_likelihood), "float64"))
        self.num_tokens.assign_add(ops.cast(ops.sum(counts), "float64"))


def predictive_log_likelihood(log_likelihoods):
    """Return the posterior predictive log-likelihood of each sequence from M samples of the model.

    Formula:
        log bar(p)(y_b | x_b) = log (1/M sum_m p_m(y_b | x_b)), quad log p_m(y_b | x_b) = "log_likelihoods"_(m,b)

    Args:
        log_likelihoods: (M, B), in nats. Row m uses one joint sample of all attention weights.

    Returns:
        (B,), in nats.

    Raises:
        ValueError: If `log_likelihoods` does not have two axes.

    Example:

    >>> import numpy as np
    >>> log_p = keras_vattn.metrics.predictive_log_likelihood(np.log([[0.5], [0.25]]))
    >>> log_p.numpy().round(4).tolist()  # log(0.375)
    [-0.9808]
    """
    log_likelihoods = ops.convert_to_tensor(log_likelihoods)
    if len(log_likelihoods.shape) != 2:
        raise ValueError(
            "Expected log-likelihoods of shape (samples, batch). "
            f"Received: log_likelihoods.shape={tuple(log_likelihoods.shape)}"
        )
    num_draws = ops.cast(ops.shape(log_likelihoods)[0], log_likelihoods.dtype)
    return ops.logsumexp(log_likelihoods, axis=0) - ops.log(num_draws)
