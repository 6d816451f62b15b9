class Alignment:
    """Base class of the alignments: which distribution over source positions do the logits stand for?

    Every reparameterised alignment is a softmax of perturbed logits, in log space. All arrays are float32, of shape (B,
    T, S) unless said otherwise; `keys` (for instance `DenseKeys`) says which entries belong to one row and which are
    masked.

    A subclass overrides what it needs; as it stands this class is the deterministic case.

    Example:

    >>> class Sharper(keras_vattn.Alignment):
    ...     def perturb(self, logits, noise, keys):
    ...         return 2.0 * logits
    >>> layer = keras_vattn.Attention(alignment=Sharper())
    """

    is_stochastic = False

    def noise(self, shape, seed):
        """Return the noise of all steps, drawn before any loop, or `None` for an alignment without noise."""
        return None

    def perturb(self, logits, noise, keys):
        """Return the perturbed logits; their softmax over `keys` are the weights. `noise=None` asks for the mean."""
        return logits

    def distribution(self, logits, keys):
        """Return the TensorFlow Probability distribution of the weights before normalisation."""
        raise ValueError(f"The alignment {type(self).__name__} has no distribution: its weights are deterministic.")

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)
