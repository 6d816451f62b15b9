import math

import keras
from keras import ops

from keras_vattn.losses.sequence_crossentropy import token_log_likelihood
from keras_vattn.support.validation import integer, one_of

KINDS = ("plug-in", "predictive", "exact", "elbo", "iw")


@keras.saving.register_keras_serializable(package="keras_vattn")
class Perplexity(keras.metrics.Metric):
    """Perplexity per token over a whole data set. Its kind is the likelihood that it is computed from.

    T_b counts every step that is not masked, including the end-of-sentence token. Perplexities of different kinds are
    not comparable, except "predictive" with "exact"; "elbo" and "iw" are upper bounds.

    | kind | log p(y given x) |
    |---|---|
    | "plug-in" | under mean attention weights, as in the output of the model at inference |
    | "predictive" | log-mean over draws of a posterior that does not see y, see `predictive_log_likelihood` |
    | "exact" | latent alignments enumerated |
    | "elbo" | evidence lower bound |
    | "iw" | importance-weighted bound |

    Formula:
        "perplexity" = exp(- (sum_b log p(y_b | x_b)) / (sum_b T_b))

    Args:
        kind: One of the kinds above. Defaults to `"plug-in"`.
        from_logits: Whether `y_pred` holds logits or probabilities. Defaults to `True`.
        ignore_class: Integer label whose steps do not count, for instance the padding. Defaults to `None`.
        name: Name of the metric. Defaults to the kind and "perplexity", as in `"plug_in_perplexity"`. In training,
            draws and dropout are active, so the likelihood belongs to no kind.
        dtype: Dtype of the result. Defaults to float32 under every dtype policy; the sums are float64.

    Call arguments:
        y_true: Integer labels, (B, T).
        y_pred: (B, T, V). Its Keras mask removes steps.
        sample_weight: Scalar, (B,) or (B, T); weights both the log-likelihood and the count.

    Returns:
        Scalar, no unit: at least 1; NaN before the first token.

    Raises:
        ValueError: If `kind` is unknown, or `y_true` holds weights of all words.

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
        # A float32 sum of ones cannot exceed 2**24.
        self.negative_log_likelihood, self.num_tokens = (
            self.add_weight(initializer="zeros", name=name, dtype="float64")
            for name in ("negative_log_likelihood", "num_tokens")
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true)
        if len(y_true.shape) != 2:
            raise ValueError(
                "A perplexity counts words: `y_true` must be integer labels of shape (batch, time). "
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
        """Add sequences whose log-likelihood, or bound on it, is known.

        Args:
            log_likelihood: (B,), in nats.
            num_tokens: (B,), the number of tokens of each sequence, end-of-sentence included.

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
    """Return the log-likelihood of each sequence under the posterior predictive, from draws of the model.

    Formula:
        log bar(p)(y_b | x_b) = log (1/M sum_m p_m(y_b | x_b)), quad log p_m(y_b | x_b) = "log_likelihoods"_(m,b)

    Args:
        log_likelihoods: (M, B), in nats: one row per joint draw of all attention weights.

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
            "Expected log-likelihoods of shape (draws, batch). "
            f"Received: log_likelihoods.shape={tuple(log_likelihoods.shape)}"
        )
    num_draws = ops.cast(ops.shape(log_likelihoods)[0], log_likelihoods.dtype)
    return ops.logsumexp(log_likelihoods, axis=0) - ops.log(num_draws)
