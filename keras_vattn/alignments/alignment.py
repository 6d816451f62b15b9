from keras_vattn.alignments.priors import ContextualPrior, FixedPrior


class Alignment:
    """Base class of the alignments. An alignment maps logits to a distribution over source positions.

    Every reparameterised alignment is a softmax of perturbed logits, in log space. All arrays are float32. `keys`, a
    `keras_vattn.Keys`, defines which entries form a row and which are masked, for any layout: (B, T, S) for sequences,
    (B, H, T, S) for heads, (E,) for edges. An alignment reduces and broadcasts only through `keys` and never refers to
    an axis. Perturbed logits may omit a constant of each row, which the softmax cancels.

    This class is the deterministic alignment; a subclass overrides the methods that differ. A stochastic alignment sets
    `is_stochastic`. An alignment with a KL defines `posterior`, which returns q, a TensorFlow Probability distribution
    of the weights S before normalisation. With posterior logits p is the alignment of the scores, otherwise the
    distribution of a `Prior`. The loss is `tfd.kl_divergence(q, p)` if a KL is registered for the two classes. If not,
    it is log q(S) - log p(S) at a draw of q, averaged over 16 fixed draws if the call does not draw. An alignment is
    serialised like every Keras object: `get_config` returns the constructor's arguments, and the class is registered
    with `keras.saving.register_keras_serializable`.

    Attributes:
        kl_estimator: `"sampled"` to use log q(S) - log p(S) at a draw even if the KL has a closed form.
        kl_of: `"weights"` if q and p are distributions on the simplex, or become such distributions through
            `normalized()` of `keras_vattn.distributions.RowDistribution`.
        priors: The priors selected by the names "fixed" and "contextual".

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
    # Whether a stochastic q may have a KL to p, from a prior or posterior logits.
    takes_divergence = True

    def noise(self, shape, seed):
        """Return the noise of all steps, drawn before any loop: a tensor, a dictionary of tensors, or `None` for an
        alignment without noise. Each tensor starts with all axes of `shape` but the last.

        Args:
            shape: Shape of the logits.
            seed: int32 tensor of shape (2,).
        """
        return None

    def at_step(self, step):
        """Return the scalars that depend on the number of training calls, a dictionary. They are added to the noise and
        passed to `posterior` as keyword arguments."""
        return {}

    def perturb(self, logits, noise, keys):
        """Return the perturbed logits, whose softmax over `keys` gives the weights. `noise=None` returns the mean."""
        return logits

    def normalize(self, perturbed, noise, keys):
        """Return the weights for perturbed logits, on the simplex over the valid keys."""
        return keys.softmax(perturbed)

    def posterior(self, logits, keys):
        """Return q, a TensorFlow Probability distribution of the weights S before normalisation. Its event is an entry,
        or a row as in `keras_vattn.distributions`. The entries of `at_step` are passed as keyword arguments."""
        raise ValueError(
            f"The alignment {type(self).__name__} has no distribution for a KL: define `posterior`, or use "
            "prior=None and no posterior logits."
        )

    def divergence_floor(self, prior, p, logits, keys):
        """Return the lower bound of the KL over all q and all prior networks: one float32 value for each row, or `None`
        if the bound is 0 or unknown. The log also shows the KL minus this floor.

        Args:
            prior: The `Prior`.
            p: The distribution of the prior.
            logits: Logits of q, one for each entry. Only their shape is used.
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
