from keras_vattn.alignments.priors import ContextualPrior, FixedPrior


class Alignment:
    """Base class of the alignments. An alignment maps logits to a distribution over source positions.

    A reparameterised alignment adds noise to the logits, in log space, and applies a softmax. All arrays are float32.
    `keys`, a `keras_vattn.Keys`, defines which logits belong to one query and which are masked, for any layout:
    (B, T, S) for sequences, (B, H, T, S) for heads, (E,) for edges. So an alignment reduces and broadcasts only with
    the methods of `keys`, never along a fixed axis. Perturbed logits may omit a constant per query, because the softmax
    cancels it.

    This base class is the deterministic alignment. A subclass overrides the methods that differ, and sets
    `is_stochastic` if it draws. An alignment with a KL defines `posterior`, which returns q, a TensorFlow Probability
    distribution of the unnormalised weights S. If a call gets posterior logits, p is the alignment of the scores;
    otherwise p is the distribution of a `Prior`. The loss is `tfd.kl_divergence(q, p)` if this KL is registered. If
    not, the KL is estimated by log q(S) - log p(S) at a draw from q, or by the mean over 16 fixed draws if the call
    does not draw.

    An alignment is serialised like every Keras object: `get_config` returns the constructor's arguments, and the class
    is registered with `keras.saving.register_keras_serializable`.

    Attributes:
        kl_estimator: `"sampled"` to estimate the KL by log q(S) - log p(S) at a draw even if a closed form exists.
        kl_of: `"weights"` for a KL of the normalised weights: q and p are distributions on the simplex, or their method
            `normalized()` (see `keras_vattn.distributions.RowDistribution`) returns such distributions.
        priors: The prior classes that the names "fixed" and "contextual" select.

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
    # Whether the alignment accepts a prior or posterior logits, and then adds a KL.
    takes_divergence = True

    def noise(self, shape, seed):
        """Return the noise of all steps, which is drawn before any loop: a tensor, a dictionary of tensors, or `None`
        for an alignment without noise. The leading axes of each tensor are the axes of `shape` without the last axis.

        Args:
            shape: Shape of the logits.
            seed: int32 tensor of shape (2,).
        """
        return None

    def at_step(self, step):
        """Return a dictionary of scalars that change with `step`, the number of training calls, such as a temperature.
        They become entries of the noise dictionary, and keyword arguments of `posterior`."""
        return {}

    def perturb(self, logits, noise, keys):
        """Add the noise to the logits, and return logits for `normalize`. `noise=None` means no noise."""
        return logits

    def normalize(self, perturbed, noise, keys):
        """Return the weights for perturbed logits, on the simplex over the valid keys."""
        return keys.softmax(perturbed)

    def posterior(self, logits, keys):
        """Return q, a TensorFlow Probability distribution of the unnormalised weights S. An event is one weight, or all
        weights of a query. The scalars of `at_step` are passed as keyword arguments."""
        raise ValueError(
            f"The alignment {type(self).__name__} has no distribution for a KL: define `posterior`, or use "
            "prior=None and no posterior logits."
        )

    def divergence_floor(self, prior, p, logits, keys):
        """Return the smallest KL that any q can reach with any prior network: one float32 value per query, or `None` if
        the value is 0 or unknown. The log also shows the KL minus this floor.

        Args:
            prior: The `Prior`.
            p: The distribution that the prior returned.
            logits: Logits of q. Only their shape is used.
            keys: The `keras_vattn.Keys` of the logits.
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
