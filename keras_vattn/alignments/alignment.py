from keras_vattn.alignments.priors import ContextualPrior, FixedPrior


class Alignment:
    """Base class of the alignments. An alignment maps logits to a distribution over source positions.

    All arrays are float32. Logits have shape (B, T, S), (B, H, T, S) with heads, or (E,) for the edges of a graph. The
    keys are not always the last axis, so use the methods of the argument `keys`, a `keras_vattn.Keys`, to sum and
    broadcast.

    This base class is deterministic. A subclass that draws sets `is_stochastic` to `True`. A subclass that supports a
    KL defines `posterior`, which maps logits to a distribution of the unnormalised weights S. The KL compares the
    posterior q and the prior p, two distributions of S:

    - With posterior logits, q is computed from the posterior logits and p from the scores.
    - Without posterior logits, q is computed from the scores, and a `keras_vattn.Prior` defines p.

    The loss is `tfd.kl_divergence(q, p)` if TensorFlow Probability has registered this KL. Otherwise, the loss is
    log q(S) - log p(S) at a draw S from q. A call that does not sample uses the mean over 16 fixed draws.

    `get_config` returns the constructor's arguments. To save models with a subclass, register the subclass with
    `keras.saving.register_keras_serializable`.

    Attributes:
        kl_estimator: `"sampled"` to estimate the KL as log q(S) - log p(S) at a draw, even if a closed form exists.
        kl_of: `"weights"` for a KL of the normalised weights. This option needs distributions on the simplex, or
            instances of `keras_vattn.distributions.RowDistribution` that define `normalized()`.
        priors: Dictionary that maps the names "fixed" and "contextual" to prior classes.

    Example:

    >>> class Sharper(keras_vattn.Alignment):
    ...     def perturb(self, logits, noise, keys):
    ...         return 2.0 * logits
    >>> layer = keras_vattn.Attention(alignment=Sharper())
    """

    is_stochastic = False
    kl_estimator = "analytic"
    kl_of = "draws"
    priors = {"fixed": FixedPrior, "contextual": ContextualPrior}
    # If `False`, the alignment accepts neither a prior nor posterior logits.
    takes_divergence = True

    def noise(self, shape, seed):
        """Return random noise for the logits: a tensor, a dictionary of tensors, or `None`.

        The shape of each tensor begins with `shape[:-1]`.

        Args:
            shape: Shape of the logits.
            seed: int32 tensor of shape (2,).
        """
        return None

    def at_step(self, step):
        """Return a dictionary of scalars that change in training, such as a temperature.

        The scalars are added to the noise dictionary and passed to `posterior`. `step` is the number of training calls.
        """
        return {}

    def perturb(self, logits, noise, keys):
        """Add the noise to the logits, or nothing if `noise` is `None`."""
        return logits

    def normalize(self, perturbed, noise, keys):
        """Convert perturbed logits to weights, which sum to one over the valid keys of each query."""
        return keys.softmax(perturbed)

    def posterior(self, logits, keys):
        """Return q, a TensorFlow Probability distribution of the unnormalised weights S.

        An event is one weight, or all weights of a query. The scalars from `at_step` are passed as keyword arguments.
        """
        raise ValueError(
            f"A KL needs the method `posterior`, which {type(self).__name__} does not define: define it, or use "
            "prior=None and pass no posterior logits."
        )

    def divergence_floor(self, prior, p, logits, keys):
        """Return the smallest possible KL of each query in float32, or `None` if the minimum is 0 or unknown.

        Args:
            prior: The `Prior`.
            p: The distribution that `prior` returned.
            logits: Logits of q. Only their shape is used.
            keys: A `keras_vattn.Keys`, which defines the valid keys of each query.
        """
        return None

    def __repr__(self):
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)
