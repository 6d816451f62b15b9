class Alignment:
    """Base class of the alignments: which distribution over source positions do the logits stand for?

    Every reparameterised alignment is a softmax of perturbed logits, in log space. All arrays are float32, of shape (B,
    T, S) unless said otherwise; `keys` (for instance `DenseKeys`) says which entries belong to one row and which are
    masked. Constants of a row are left out of the perturbed logits: the softmax drops them.

    A subclass overrides what it needs; as it stands this class is the deterministic case. One that has a KL sets
    `is_stochastic`, and defines `divergence` and `prior_parameters`. It is serialised like every Keras object:
    `get_config` returns the constructor's arguments, and the class is registered with
    `keras.saving.register_keras_serializable`.

    Example:

    >>> class Sharper(keras_vattn.Alignment):
    ...     def perturb(self, logits, noise, keys):
    ...         return 2.0 * logits
    >>> layer = keras_vattn.Attention(alignment=Sharper())
    """

    is_stochastic = False

    def noise(self, shape, seed):
        """Return the noise of all steps, drawn before any loop: a tensor, or a dictionary of tensors, whose first axes
        are those of `shape` but for the last, or `None` for an alignment without noise.

        Args:
            shape: (B, T, S).
            seed: int32 tensor of shape (2,).
        """
        return None

    def at_step(self, step):
        """Return what changes with the count of training calls, a dictionary of scalars that joins the noise."""
        return {}

    def perturb(self, logits, noise, keys):
        """Return the perturbed logits; their softmax over `keys` are the weights. `noise=None` asks for the mean."""
        return logits

    def normalize(self, perturbed, noise, keys):
        """Return the weights of perturbed logits, on the simplex over the valid keys."""
        return keys.softmax(perturbed)

    def prior_parameters(self, prior, log_psi):
        """Return the parameters of p from a `Prior` and its log Psi, (B, T or 1, S) or `None` for a fixed prior.

        The result is a dictionary of scalars and tensors, `p` of `divergence` and `prior_distribution`.
        """
        raise ValueError(f"The alignment {type(self).__name__} takes no prior. Received: prior={prior!r}")

    def divergence(self, logits, p, keys, noise=None):
        """Return KL(q || p) in nats of each query, float32 (B, T), summed over its valid keys.

        Args:
            logits: Those of q.
            p: Result of `prior_parameters`, or `{"logits": ...}`, the logits of a p of this same family.
            keys: As everywhere.
            noise: The noise of the draw, for estimators that use it; `None` at the mean.
        """
        raise ValueError(f"The alignment {type(self).__name__} has no KL.")

    def distribution(self, logits, keys):
        """Return the TensorFlow Probability distribution of the weights before normalisation."""
        raise ValueError(f"The alignment {type(self).__name__} has no distribution.")

    def prior_distribution(self, p, logits, keys):
        """Return p, the TensorFlow Probability distribution of the weights before normalisation under the prior; the
        logits, those of q, tell its shape."""
        raise ValueError(f"The alignment {type(self).__name__} has no prior.")

    def __repr__(self):
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)
