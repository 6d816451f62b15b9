"""Replace the softmax of a converted attention layer, and store the keys that a contextual prior reads."""

import contextvars
import functools
import re
import warnings

import keras
import tensorflow as tf
from keras import ops

from keras_vattn.conversion.redirected_functions import SOFTMAX_NAME, names_in, non_keras_functions
from keras_vattn.layers.stochastic_softmax import StochasticSoftmax
from keras_vattn.support import keras_private
from keras_vattn.support.masks import both

# A key is masked if its logit is lower than the maximum logit of the query by more than this number.
HIDDEN_GAP = 5e3
_KEY_PROJECTION = re.compile("_?(key|key_dense|key_proj|key_projector|k|k_dense|k_proj)")
_HEAD_COUNTS = ("num_key_value_heads", "num_heads", "num_attention_heads", "heads")
_KEYS = contextvars.ContextVar("projected_keys", default=None)


class SwappedSoftmax(StochasticSoftmax, keras.layers.Softmax):
    """The softmax of an attention layer that `to_bayesian` has converted.

    Attributes:
        key_shape: Shape of the keys that a contextual prior reads, (None, G, None, D), for G groups of heads.
        was_called: Whether the attention layer has called the softmax.
    """

    key_shape = None
    was_called = False

    def call(self, inputs, mask=None, posterior_logits=None, key=None, training=None):
        self.was_called = True
        if self.reads_keys:
            key = self._projected_keys(inputs)
        if self.reads_keys and key is None:
            # The prior cannot read cached keys. Only inference uses a cache, so no KL is needed.
            weights, _ = self.draw_weights(self._score(inputs, mask, None, None), training)
        else:
            weights = super().call(inputs, mask, posterior_logits, key, training)
        if mask is not None:
            return weights
        # If an additive mask masks all keys, use the weights of the original softmax.
        empty = ops.all(weights == 0.0, axis=-1, keepdims=True)
        return ops.where(empty, ops.cast(tf.nn.softmax(inputs), weights.dtype), weights)

    def _is_unmasked(self, inputs):
        # Some models mask keys by adding -1e4 to the logits in half precision.
        hidden = inputs < ops.max(inputs, axis=-1, keepdims=True) - HIDDEN_GAP
        return both(super()._is_unmasked(inputs), ops.logical_not(hidden))

    def _projected_keys(self, logits):
        """Return the projected keys, or `None` in a call with a cache.

        The shape is (B, G, 1, S, D) for logits of rank 5. Otherwise, the shape is (B, H, S, D).
        """
        if not _KEYS.get():
            return None
        key = _KEYS.get()[0]
        _, heads, _, width = self.key_shape
        key = ops.transpose(ops.reshape(key, (-1, ops.shape(key)[1], heads, width)), (0, 2, 1, 3))
        return key[:, :, None] if len(logits.shape) == 5 else ops.repeat(key, logits.shape[1] // heads, axis=1)


class SwappedSoftmaxAttention:
    """Mixin for converted attention layers that compute their weights with a `SwappedSoftmax`."""

    def __call__(self, *arguments, **options):
        # The prior cannot read cached keys, because they contain rotary embeddings.
        token = _KEYS.set([] if options.get("cache") is None else None)
        try:
            result = super().__call__(*arguments, **options)
        finally:
            _KEYS.reset(token)
        # With symbolic inputs, Keras may not call the softmax.
        is_symbolic = any(isinstance(x, keras.KerasTensor) for x in keras.tree.flatten((arguments, options)))
        if not softmax_of(self).was_called and not is_symbolic:
            warnings.warn(
                f"{type(self).__name__}, path={self.path!r}, does not sample: `to_bayesian` converted its softmax over "
                "the last axis, but its call does not use this softmax. Exclude the layer with `layers`",
                stacklevel=2,
            )
        return result


def swap_softmax(layer):
    """Return the softmax sublayer of a layer, converted to `SwappedSoftmax`, or a new softmax sublayer."""
    softmax = softmax_of(layer)
    if softmax is None:
        softmax = keras.layers.Softmax(dtype="float32", name="softmax")
        with keras_private.unlocked(layer):
            setattr(layer, SOFTMAX_NAME, softmax)
    options = {"name": softmax.name, "dtype": softmax.dtype_policy, "trainable": layer.trainable}
    softmax.__class__ = SwappedSoftmax
    # Keras's `__init__` reads the signature of `call`, which has changed.
    keras.layers.Softmax.__init__(softmax, **options)
    return softmax


def softmax_of(layer):
    """Return the sublayer of an attention layer that computes the softmax over keys, or `None`."""
    if SOFTMAX_NAME in vars(layer):
        return vars(layer)[SOFTMAX_NAME]
    candidates = [x for x in vars(layer).values() if isinstance(x, keras.layers.Softmax)]
    if isinstance(layer, keras.layers.MultiHeadAttention):
        # Keras's own methods may bypass their softmax layer, so a subclass must call this layer.
        names = {name for x in non_keras_functions(type(layer)).values() for name in names_in(x.__code__)}
        is_called = any(name.startswith("_") and "softmax" in name for name in names)
        return candidates[0] if candidates and is_called else None
    return next((x for x in candidates if x.axis in (-1, [-1], (-1,))), None)


def key_projection(layer):
    """Return the sublayer of a built attention layer that projects the keys, and the shape of the keys per head.

    Raises:
        ValueError: If the key projection cannot be identified.
    """
    sublayers = {name: x for name, x in vars(layer).items() if isinstance(x, keras.Layer)}
    projections = [x for name, x in sublayers.items() if _KEY_PROJECTION.fullmatch(name)]
    num_heads = [getattr(layer, name) for name in _HEAD_COUNTS if hasattr(layer, name)]
    # A sink is an additional logit of the softmax. It has no key that the prior could read.
    if len(projections) == 1 and not hasattr(layer, "sinks"):
        input_shape = projections[0].get_build_config()["input_shape"]
        *_, heads, width = output_shape = projections[0].compute_output_shape(input_shape)
        if len(output_shape) > len(input_shape):
            return projections[0], (None, heads, None, width)
        if num_heads:
            return projections[0], (None, num_heads[0], None, width // num_heads[0])
    raise ValueError(
        "A contextual prior needs an attention layer without sinks. The layer must have one sublayer that projects the "
        f'keys, and one of the attributes {", ".join(_HEAD_COUNTS)}. Otherwise, use None, "fixed" or a fixed prior. '
        f"Received: {type(layer).__name__}, path={layer.path!r}"
    )


def store_keys(layer, softmax):
    """Make an attention layer store its projected keys for the prior of `softmax`."""
    projection, softmax.key_shape = key_projection(layer)
    projection.__class__ = _storing_class(type(projection))


@functools.cache
def _storing_class(layer_class):
    def call(self, *arguments, **options):
        key = layer_class.call(self, *arguments, **options)
        if _KEYS.get() is not None:
            _KEYS.get().append(key)
        return key

    return type(layer_class.__name__, (layer_class,), {"call": call, "__module__": __name__})
