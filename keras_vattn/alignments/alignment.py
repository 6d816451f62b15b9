from keras import ops


class Alignment:
    """Base class of the alignments: which distribution over source positions do the logits stand for?

    Every reparameterised alignment is a softmax of perturbed logits, in log space. All arrays are float32; `keys`, a
    `keras_vattn.Keys`, says which entries belong to one row and which are masked, whatever their layout: (B, T, S) of
    sequences, (B, H, T, S) of heads, (E,) of edges. An alignment reduces and spreads through it and looks at no axis
    itself. Constants of a row are left out of the perturbed logits: the softmax drops them.

    A subclass overrides what it needs; as it stands this class is the deterministic case. One that has a KL sets
    `is_stochastic`, and defines `prior_parameters` and both divergences; or, where the family has no closed form, sets
    `has_closed_form` to `False` and defines `log_draw`, `distribution` and `prior_distribution`: its KL is then
    log q(S) - log p(S) at the draw of the call, and the mean over 16 fixed draws where a call does not draw. It is
    serialised like every Keras object: `get_config` returns the constructor's arguments, and the class is registered
    with `keras.saving.register_keras_serializable`.

    Example:

    >>> class Sharper(keras_vattn.Alignment):
    ...     def perturb(self, logits, noise, keys):
    ...         return 2.0 * logits
    >>> layer = keras_vattn.Attention(alignment=Sharper())
    """

    is_stochastic = False
    has_closed_form = True
    # Whether q may be held to the scores by posterior logits, where it is stochastic.
    takes_posterior_logits = True
    # Whether `noise` is right with a stack of seeds (K, 2), each for a K-th part of the first axis: it is where
    # `keras_vattn.random.uniform` and `normal` make it. `keras_vattn.posterior_predictive` then puts several draws into
    # one call. It speaks for the class that sets it: a subclass that overrides one of its methods sets it again.
    takes_seed_stacks = False

    def noise(self, shape, seed):
        """Return the noise of all steps, drawn before any loop: a tensor, or a dictionary of tensors, whose first axes
        are those of `shape` but for the last, or `None` for an alignment without noise.

        Args:
            shape: That of the logits.
            seed: int32 tensor of shape (2,).
        """
        return None

    def at_step(self, step):
        """Return what changes with the count of training calls: a dictionary of scalars, which joins the noise, and is
        passed to both distributions as keyword arguments."""
        return {}

    def perturb(self, logits, noise, keys):
        """Return the perturbed logits; their softmax over `keys` are the weights. `noise=None` asks for the mean."""
        return logits

    def normalize(self, perturbed, noise, keys):
        """Return the weights of perturbed logits, on the simplex over the valid keys."""
        return keys.softmax(perturbed)

    def prior_arguments(self, prior):
        """Return which of a prior's arguments `alpha`, `beta`, `mean`, `sigma` and `scale` are read by
        `prior_parameters`: another one, unless it is at its default, is an error where the two meet. `None`, for an
        alignment that does not say, lets any pass."""
        return None

    def prior_parameters(self, prior, log_psi):
        """Return the parameters of p from a `Prior` and its log Psi, of the entries or what broadcasts to them, or
        `None` for a fixed prior.

        The result is a dictionary of scalars and tensors, `p` of `divergence_from_prior` and `prior_distribution`.
        """
        raise ValueError(f"The alignment {type(self).__name__} takes no prior. Received: prior={prior!r}")

    def divergence_from_prior(self, logits, p, keys, noise=None):
        """Return KL(q || p) in nats of each row, float32, summed over its valid keys.

        Args:
            logits: Those of q.
            p: Result of `prior_parameters`.
            keys: As everywhere.
            noise: The noise of the draw, for estimators that use it; `None` at the mean.
        """
        return self._drawn_divergence(logits, lambda: self.prior_distribution(p, logits, keys), keys, noise)

    def divergence_from_logits(self, logits, prior_logits, keys, noise=None):
        """Return KL(q || p) as `divergence_from_prior` does, for a p of this same family with logits of its own."""
        return self._drawn_divergence(logits, lambda: self.distribution(prior_logits, keys), keys, noise)

    def divergence_floor(self, p, keys, logits):
        """Return what `divergence_from_prior` is never below, whatever q and the prior's network learn: one float32
        value for each row, or `None` where that is 0. The log shows the KL above it too.

        Args:
            p: Result of `prior_parameters`.
            keys: As everywhere.
            logits: Of the entries; their values have no say.
        """
        return None

    def _drawn_divergence(self, logits, p, keys, noise):
        if self.has_closed_form:
            raise ValueError(
                f"The alignment {type(self).__name__} has no KL to this p: define `divergence_from_prior` (a prior) or "
                "`divergence_from_logits` (posterior logits), or set `has_closed_form = False` and define "
                "`log_draw` and the distributions."
            )
        draw = ops.exp(self.log_draw(logits, noise, keys))
        return keys.sum(self.distribution(logits, keys).log_prob(draw) - p().log_prob(draw))

    def log_draw(self, logits, noise, keys):
        """Return the logarithm of the drawn weights before normalisation, of which `distribution` is the distribution;
        finite at masked keys. Needed where there is no closed form."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `log_draw`.")

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
