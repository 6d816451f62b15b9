import keras
from keras import ops

from keras_vattn.alignments import AlignmentInputs, DenseKeys, VariationalAlignment
from keras_vattn.alignments.variational_alignment import as_finite_float32
from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.support.masks import both, check_shape
from keras_vattn.support.sublayers import claim, serialize_sublayer


@keras.saving.register_keras_serializable(package="keras_vattn")
class StochasticSoftmax(AlignmentLayer):
    """`keras.layers.Softmax(axis=-1)` whose weights are random variables, for use in any attention layer.

    If an attention layer computes its weights with a softmax layer, replace the softmax layer with `StochasticSoftmax`.
    The layer draws the weights in training, and at inference under `keras_vattn.posterior_draws`. All axes between the
    first axis and the last two axes count as heads. Each head has its own draws, and the KL is summed over heads.

    In the formula, phi are the logits, q is the distribution of the weights w, and p is the prior.

    Formula:
        w_t ~ q = "alignment"(phi_t) quad "(training)", quad w_(t,s) = "softmax"_s(phi_(t,s)) quad "(inference)"
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,t) "KL"(q || p)

    Args:
        alignment: As in `keras_vattn.Attention`. Defaults to `"weibull"`.
        prior: As in `keras_vattn.Attention`. A contextual prior reads the call argument `key`. Defaults to `None`.
        axis: Must be -1. The argument exists because `keras.layers.Softmax` has an `axis`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...) and of every Keras layer.

    Call arguments:
        inputs: Logits phi, (B, ..., T, S), or (B, S).
        mask: Boolean mask, `True` for valid logits, or `None`. As in Keras, numbers above 0.5 mean `True`. The mask has
            all axes of the logits, or only the last axes. Each axis has the same length as in the logits, or length 1.
            Masked entries have weight, gradient and KL exactly 0, even if all entries of a query are masked. Logits
            below -1e8 (-2e4 in float16) also count as masked, because additive masks produce such values.
        posterior_logits: Logits of an inference network, of the shape of the inputs, or `None`.
        key: Keys (B, ..., S, Dk) for a contextual prior, or `None` for other priors. Each axis before the last two has
            the same length as in the logits, or length 1.
        training: Whether to draw samples.

    Returns:
        Weights of the shape of the logits.

    Raises:
        ValueError: If the logits have only one axis, or `axis` is not -1.
        ValueError: If the mask or the key has the wrong shape.
        ValueError: If a contextual prior gets no key.
        ValueError: As in `keras_vattn.Attention`, for the alignment, the prior and the posterior logits.

    Example:

    >>> softmax = keras_vattn.StochasticSoftmax(prior="fixed", seed=1)
    >>> logits = keras.ops.zeros((2, 8, 3, 5))
    >>> weights = softmax(logits, training=True)
    >>> weights.shape, len(softmax.losses), float(softmax(logits)[0, 0, 0, 0])
    (TensorShape([2, 8, 3, 5]), 1, 0.20000000298023224)
    """

    dropout = 0.0
    feature_arguments = ("key",)

    def __init__(self, alignment="weibull", prior=None, *, axis=-1, **kwargs):
        if axis != -1:
            raise ValueError(f"`axis` must be -1: the keys are the last axis of the logits. Received: axis={axis!r}")
        super().__init__(**kwargs)
        self.axis = axis
        self.supports_masking = True
        self.add_alignment(alignment, prior)

    def add_alignment(self, alignment, prior, per_head_prior=False, name=None):
        """Set the alignment and the prior. `name` is the name in the log, or `None` for the name of the layer."""
        self.set_alignment(VariationalAlignment(alignment, prior, dtype=self.dtype_policy))
        if self.is_stochastic:
            self.track_divergence(self.prior is not None, name)

    @property
    def reads_keys(self):
        """Whether the prior reads the `key` of a call."""
        return self.prior is not None and self.prior.reads_keys

    def build(self, inputs_shape, key_shape=None, posterior_logits_shape=None):
        if len(inputs_shape) < 2:
            raise ValueError(f"Logits must have shape (B, ..., T, S) or (B, S). Received: inputs.shape={inputs_shape}")
        claim(self, "prior", self.alignment_prior)
        self.build_prior(key_shape)

    def build_prior(self, key_shape=None):
        """Create the weights of the prior. `key_shape` may be `None` if the prior reads no keys."""
        if self.alignment_prior is not None and not self.alignment_prior.built:
            self._require_key(key_shape)
            self.alignment_prior.build(key_shape)

    def call(self, inputs, mask=None, posterior_logits=None, key=None, training=None):
        self._require_key(key)
        scored = self._score(inputs, mask, posterior_logits, key)
        weights, noise = self.draw_weights(scored, training)
        heads = tuple(range(1, len(inputs.shape) - 2)) or None
        divergence = self.divergence_terms(scored, noise, scored.keys, None, training, head_axis=heads)
        self.add_divergence(**divergence, training=training)
        return weights

    def draw_weights(self, scored, training):
        """Return the weights and the noise dictionary, which is empty if the call does not draw."""
        noise = self.draw_alignment(ops.shape(scored.logits), self.draw_seeds(training))
        return ops.cast(self.variational.weights(scored, noise), self.compute_dtype), noise

    def _require_key(self, key):
        if self.reads_keys and key is None:
            raise ValueError(
                "A contextual prior reads the keys: pass `key`, (B, ..., S, Dk), in the call. "
                f"Received: prior={type(self.prior).__name__}, key=None"
            )

    def _check(self, inputs, mask, posterior_logits, key):
        if mask is not None:
            expected = tuple(inputs.shape)[-max(len(mask.shape), 1) :]
            check_shape("mask", mask, expected, "(B, ..., T, S), or 1 in any axis", broadcast=True)
        if posterior_logits is not None:
            self.variational.require_place_for_posterior_logits(posterior_logits)
            check_shape("posterior_logits", posterior_logits, tuple(inputs.shape), "(B, ..., T, S)")
        if key is not None:
            *batch_shape, _, length = tuple(inputs.shape)
            expected = (*batch_shape, length, key.shape[-1])
            check_shape("key", key, expected, "(B, ..., S, Dk), or 1 before the last two axes", broadcast=True)

    def _score(self, inputs, mask, posterior_logits, key):
        self._check(inputs, mask, posterior_logits, key)
        if keras.backend.is_int_dtype(inputs.dtype):
            inputs = ops.cast(inputs, "float32")
        if mask is not None and keras.backend.standardize_dtype(mask.dtype) != "bool":
            mask = ops.cast(mask, "float32") > 0.5
        keys = DenseKeys(both(mask, self._is_unmasked(inputs)))
        log_psi = None if key is None else self.variational.log_psi(key, keys)
        posterior_logits = as_finite_float32(posterior_logits)
        return AlignmentInputs(ops.cast(inputs, "float32"), keys, log_psi, posterior_logits)

    def _is_unmasked(self, inputs):
        """Return `False` for logits to which a mask has been added."""
        return inputs > (-2e4 if keras.backend.standardize_dtype(inputs.dtype) == "float16" else -1e8)

    def _scored(self, arguments, options):
        call_arguments = self._bind(arguments, options)
        inputs = ops.cast(call_arguments["inputs"], self.compute_dtype)
        return self._score(inputs, *(call_arguments[name] for name in ("mask", "posterior_logits", "key")))

    def compute_output_shape(self, inputs_shape, key_shape=None, posterior_logits_shape=None):
        return inputs_shape

    def compute_output_spec(self, inputs, mask=None, posterior_logits=None, key=None, training=None):
        self._require_key(key)
        self._check(inputs, mask, posterior_logits, key)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "axis": self.axis,
            "alignment": keras.saving.serialize_keras_object(self.alignment),
            "prior": serialize_sublayer(self.alignment_prior),
        }
