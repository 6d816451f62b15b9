from keras_vattn.alignments.priors import ContextualPrior, FixedPrior


class Alignment:
    """Base class of the alignments: which distribution over source positions do the logits stand for?

    Every reparameterised alignment is a softmax of perturbed logits, in log space. All arrays are float32; `keys`, a
    `keras_vattn.Keys`, says which entries belong to one row and which are masked, whatever their layout: (B, T, S) for
    sequences, (B, H, T, S) for heads, (E,) for edges. An alignment reduces and spreads through `keys` and looks at no
    axis itself. Perturbed logits may leave out what all entries of a row share: the softmax drops it.

    This class is the deterministic alignment; a subclass overrides what it needs. One with noise sets `is_stochastic`.
    One with a KL defines `posterior`, which returns q, a TensorFlow Probability distribution of the weights S before
    normalisation. p is the alignment of the scores where there are posterior logits, else what a `Prior` returns. The
    loss has `tfd.kl_divergence(q, p)` where a KL is registered for the two, else log q(S) - log p(S) at a draw of q,
    and the mean over 16 fixed draws where a call does not draw. An alignment is serialised like every Keras object:
    `get_config` returns the constructor's arguments, and the class is registered with
    `keras.saving.register_keras_serializable`.

    Attributes:
        kl_estimator: `"sampled"` for log q(S) - log p(S) at a draw although there is a closed form.
        kl_of: `"weights"` where q and p are distributions on the simplex, or are taken there by `normalized()` of
            `keras_vattn.distributions.RowDistribution`.
        priors: Which priors the names "fixed" and "contextual" stand for.

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
    # Whether q may be held to a p, by a prior or posterior logits, where it is stochastic.
    takes_divergence = True

    def noise(self, shape, seed):
        """Return the noise of all steps, drawn before any loop: a tensor or a dictionary of tensors, each with the axes
        of `shape` in front, the last one excepted, or `None` for an alignment without noise.

        Args:
            shape: Shape of the logits.
            seed: int32 tensor of shape (2,).
        """
        return None

    def at_step(self, step):
        """Return what changes with the count of training calls: a dictionary of scalars, which joins the noise and
        which `posterior` gets as keyword arguments."""
        return {}

    def perturb(self, logits, noise, keys):
        """Return the perturbed logits; their softmax over `keys` are the weights. `noise=None` asks for the mean."""
        return logits

    def normalize(self, perturbed, noise, keys):
        """Return the weights of perturbed logits, on the simplex over the valid keys."""
        return keys.softmax(perturbed)

    def posterior(self, logits, keys):
        """Return q, a TensorFlow Probability distribution of the weights S before normalisation, whose event is an
        entry, or a row as in `keras_vattn.distributions`. What `at_step` returns comes as keyword arguments."""
        raise ValueError(
            f"The alignment {type(self).__name__} has no distribution that a KL is of: define `posterior`, or take "
            "prior=None and no posterior logits."
        )

    def divergence_floor(self, prior, p, logits, keys):
        """Return the floor of the KL to a prior, which no q and no network of the prior can go below: one float32 value
        for each row, or `None` where the floor is 0 or not known. The log shows the KL above the floor too.

        Args:
            prior: The `Prior`.
            p: Its distribution.
            logits: Logits of q, one for each entry; only their shape is read.
            keys: As everywhere.
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
