from keras_vattn.alignments.priors import ContextualPrior, FixedPrior


class Alignment:
    """Base class of the alignments. An alignment maps logits to a distribution over source positions.

    A reparameterised alignment adds noise to the logits, in log space, and applies a softmax. All arrays are float32.
    The argument `keys`, a `keras_vattn.Keys`, defines which logits belong to the same query and which are masked. The
    shape of the logits is (B, T, S), (B, H, T, S) with heads, or (E,) for the edges of a graph. An alignment therefore
    reduces and broadcasts with the methods of `keys`, not along a fixed axis.

    This base class is deterministic. A subclass overrides some methods, and sets `is_stochastic` if it draws. To
    support a KL(q || p), it defines `posterior`, which maps logits to a TensorFlow Probability distribution of the
    unnormalised weights S. If a call gets posterior logits, `posterior` computes q from these logits, and p from the
    scores. Otherwise, `posterior` computes q from the scores, and a `Prior` defines p. The loss is
    `tfd.kl_divergence(q, p)` if TensorFlow Probability has registered this KL. If not, the loss is log q(S) - log p(S)
    at a draw from q. If the call does not sample, the loss is the mean of this difference over 16 fixed draws from q.

    An alignment is serialised like every Keras object: `get_config` returns the constructor's arguments, and the class
    is registered with `keras.saving.register_keras_serializable`.

    Attributes:
        kl_estimator: `"sampled"` to estimate the KL as log q(S) - log p(S) at a draw, even if a closed form exists.
        kl_of: `"weights"` for a KL of the normalised weights. Then q and p must be distributions on the simplex, or
            instances of `keras_vattn.distributions.RowDistribution` that define `normalized()`.
        priors: Dictionary from the names "fixed" and "contextual" to prior classes.

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
    # Whether a KL is defined for the alignment. If not, the alignment accepts neither a prior nor posterior logits.
    takes_divergence = True

    def noise(self, shape, seed):
        """Return the noise for all steps of a loop: a tensor, a dictionary of tensors, or `None` if the alignment has
        no noise. The shape of each tensor begins with `shape[:-1]`.

        Args:
            shape: Shape of the logits.
            seed: int32 tensor of shape (2,).
        """
        return None

    def at_step(self, step):
        """Return a dictionary of scalars, such as a temperature, that depend on `step`, the number of training calls.
        The scalars are added to the noise dictionary and passed to `posterior`."""
        return {}

    def perturb(self, logits, noise, keys):
        """Return the logits with the noise added, as input for `normalize`. If `noise` is `None`, add no noise."""
        return logits

    def normalize(self, perturbed, noise, keys):
        """Convert perturbed logits to weights, which sum to one over the valid keys of each query."""
        return keys.softmax(perturbed)

    def posterior(self, logits, keys):
        """Return q, a TensorFlow Probability distribution of the unnormalised weights S. An event is one weight, or all
        weights of a query. The scalars from `at_step` are passed as additional keyword arguments."""
        raise ValueError(
            f"A KL needs the method `posterior`, which {type(self).__name__} does not define: define it, or use "
            "prior=None and pass no posterior logits."
        )

    def divergence_floor(self, prior, p, logits, keys):
        """Return the smallest KL that any q and any prior network can reach: one float32 value per query, or `None` if
        this value is 0 or unknown. The log also shows the KL minus this floor.

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
