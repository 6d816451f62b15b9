"""The weights of an attention that is neither Keras's nor ours: all come from one softmax, however it asks for it.

It holds a `keras.layers.Softmax`, or calls `keras.ops.softmax` or `keras.ops.dot_product_attention`, or has the last as
a fused path beside the first. The functions of its class are made again with other globals, in which these two ask the
softmax that the layer holds, and that layer draws. Nothing in Keras is changed, and no other class.
"""

import contextvars
import functools
import re
import types

import keras
import tensorflow as tf
from keras import ops

from keras_vattn.layers.stochastic_softmax import StochasticSoftmax
from keras_vattn.support import keras_private

# The attribute of the softmax that an attention without one is given.
PLACE = "drawn_softmax"
# How far below the largest logit of its row one is hidden.
HIDDEN = 5e3
_KEY_PROJECTION = re.compile("_?(key|key_dense|key_proj|key_projector|k|k_dense|k_proj)")
_ASKING = {"softmax", "dot_product_attention"}
_GROUPS = ("num_key_value_heads", "num_heads", "num_attention_heads", "heads")
# The softmax that is asked in this thread, and what the key projection of the attention at hand has returned.
_ASKED = contextvars.ContextVar("asked_softmax", default=None)
_KEPT = contextvars.ContextVar("kept_keys", default=None)


class SwappedSoftmax(StochasticSoftmax, keras.layers.Softmax):
    """The softmax of an attention that `to_bayesian` converts.

    Attributes:
        key_shape: Shape of the keys that a contextual prior reads, (None, G, None, D), of G groups of heads.
    """

    key_shape = None

    def call(self, inputs, mask=None, posterior_logits=None, key=None, training=None):
        # Some models hide keys by -1e4 in half precision: a mask, and no logit.
        logits = ops.where(inputs < ops.max(inputs, axis=-1, keepdims=True) - HIDDEN, -1e9, inputs)
        if self.reads_keys:
            key = self._key_of(logits)
        if self.reads_keys and key is None:
            # Beside a cache nothing is trained, and there is no KL.
            weights, _ = self.drawn(self._score(logits, mask, None, None), training)
        else:
            weights = super().call(logits, mask, posterior_logits, key, training)
        if mask is not None:
            return weights
        # Where a query sees no key, a mask that is added to the logits leaves an average over some.
        empty = ops.all(weights == 0.0, axis=-1, keepdims=True)
        return ops.where(empty, ops.cast(tf.nn.softmax(inputs), weights.dtype), weights)

    def _key_of(self, logits):
        """Return the projected keys as the prior reads them, before any rotation: (B, H, S, D), those of a group of
        heads for each of its heads, or (B, G, 1, S, D) where the groups have an axis; `None` beside a cache."""
        if not _KEPT.get():
            return None
        key = _KEPT.get()[0]
        _, heads, _, width = self.key_shape
        key = ops.transpose(ops.reshape(key, (-1, ops.shape(key)[1], heads, width)), (0, 2, 1, 3))
        return key[:, :, None] if len(logits.shape) == 5 else ops.repeat(key, logits.shape[1] // heads, axis=1)


class AskingAttention:
    """Mixin of a converted attention whose functions ask the softmax that it holds."""

    def __call__(self, *arguments, **options):
        # The keys of a cache are rotated, and nothing is trained with one.
        token = _KEPT.set([] if options.get("cache") is None else None)
        try:
            return super().__call__(*arguments, **options)
        finally:
            _KEPT.reset(token)


def asks_functions(layer_class):
    """Return whether a class calls a function for its weights."""
    return bool(asking_functions(layer_class))


@functools.cache
def asking_functions(layer_class):
    """Return the functions of a class that ask one for the weights, by name, made again to ask the held softmax."""
    asking = {name: x for name, x in _functions(layer_class).items() if _asks(x)}
    return {name: _bound_to_softmax(_made_again(x)) for name, x in asking.items()}


def _functions(layer_class):
    """Return the functions of a layer's class by name, but for those of all layers."""
    inherited = layer_class.__mro__[: layer_class.__mro__.index(keras.Layer)]
    members = {name: x for each in reversed(inherited) for name, x in vars(each).items()}
    return {name: x for name, x in members.items() if isinstance(x, types.FunctionType)}


def held_softmax(layer):
    """Return the softmax of an attention as one that draws, made where it holds none."""
    softmax = softmax_of(layer)
    if softmax is None:
        softmax = keras.layers.Softmax(dtype="float32", name="softmax")
        with keras_private.unlocked(layer):
            setattr(layer, PLACE, softmax)
    options = {"name": softmax.name, "dtype": softmax.dtype_policy, "trainable": layer.trainable}
    softmax.__class__ = SwappedSoftmax
    # Keras reads the arguments of a call when a layer is made.
    keras.layers.Softmax.__init__(softmax, **options)
    return softmax


def softmax_of(layer):
    """Return the softmax over the keys that an attention holds, `None` where it holds none."""
    held = [x for x in keras_private.read(layer, "_layers") if isinstance(x, keras.layers.Softmax)]
    if isinstance(layer, keras.layers.MultiHeadAttention):
        # Keras's own functions go past it, unless there is dropout; a subclass may ask it.
        names = (_names(x.__code__) for x in _functions(type(layer)).values() if not _is_of_keras(x))
        return held[0] if held and any("_masked_softmax" in each for each in names) else None
    return next((x for x in held if x.axis in (-1, [-1], (-1,))), None)


def key_projection(layer):
    """Return the layer that projects the keys of an attention that is built, and the shape of the keys by head.

    Raises:
        ValueError: If it is not known which that is.
    """
    held = [x for name, x in vars(layer).items() if _KEY_PROJECTION.fullmatch(name) and isinstance(x, keras.Layer)]
    # A sink is an entry of the softmax beside the keys.
    if len(held) != 1 or hasattr(layer, "sinks"):
        raise ValueError(
            "A contextual prior reads the projected keys, and which layer makes those of all entries of this softmax "
            f'is not known: take None, "fixed" or a fixed prior. Received: {type(layer).__name__}, path={layer.path!r}'
        )
    read = held[0].get_build_config()["input_shape"]
    *_, heads, width = made = held[0].compute_output_shape(read)
    if len(made) == len(read):
        heads = next(getattr(layer, name) for name in _GROUPS if hasattr(layer, name))
        width //= heads
    return held[0], (None, heads, None, width)


def keep_keys(layer, softmax):
    """Have an attention's key projection keep what it returns, for the prior of its softmax."""
    projection, softmax.key_shape = key_projection(layer)
    projection.__class__ = _keeping(type(projection))


@functools.cache
def _keeping(layer_class):
    def call(self, *arguments, **options):
        key = layer_class.call(self, *arguments, **options)
        if _KEPT.get() is not None:
            _KEPT.get().append(key)
        return key

    return type(layer_class.__name__, (layer_class,), {"call": call, "__module__": __name__})


def _softmax(x, axis=-1):
    if axis not in (-1, len(x.shape) - 1):
        return ops.softmax(x, axis)
    return ops.cast(_ASKED.get()(x), x.dtype)


def _dot_product_attention(
    query,
    key,
    value,
    bias=None,
    mask=None,
    scale=None,
    is_causal=False,
    flash_attention=None,
    attn_logits_soft_cap=None,
):
    """Do what `keras.ops.dot_product_attention` does, without a kernel that computes no weights."""
    key, value = (ops.repeat(x, query.shape[2] // x.shape[2], axis=2) for x in (key, value))
    logits = ops.cast(ops.einsum("btnh,bsnh->bnts", query, key), "float32")
    logits *= query.shape[-1] ** -0.5 if scale is None else ops.cast(scale, "float32")
    if attn_logits_soft_cap is not None:
        logits = attn_logits_soft_cap * ops.tanh(logits / attn_logits_soft_cap)
    if bias is not None:
        logits += ops.cast(bias, "float32")
    if is_causal:
        causal = tf.linalg.band_part(ops.ones(ops.shape(logits)[-2:], "bool"), -1, 0)
        mask = causal if mask is None else ops.logical_and(mask, causal)
    if mask is not None:
        logits = ops.where(mask, logits, -1e30)
    return ops.einsum("bnts,bsnh->btnh", ops.cast(_ASKED.get()(logits), value.dtype), value)


_ANSWERS = {
    keras.ops.softmax: _softmax,
    keras.activations.softmax: _softmax,
    keras.ops.dot_product_attention: _dot_product_attention,
}


def _answer(x):
    """Return what stands in the place of a global: a function, a module with other ones, or itself."""
    if _is_keras(x):
        return _Module(x)
    if _is_asked(x):
        return _ANSWERS[x]
    return _made_again(x) if isinstance(x, types.FunctionType) and _asks(x) else x


class _Module:
    """A module of Keras in which the functions of `_ANSWERS` are others."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return _answer(getattr(self._module, name))


def _names(code):
    """Return the global names and attributes in the code of a function and of those inside it."""
    inside = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return {*code.co_names, *(name for x in inside for name in _names(x))}


def _is_asked(x):
    return isinstance(x, types.FunctionType) and x in _ANSWERS


def _is_keras(x):
    return isinstance(x, types.ModuleType) and x.__name__.partition(".")[0] == "keras"


def _is_of_keras(function):
    return function.__module__.partition(".")[0] == "keras"


def _asks(function, asking=()):
    """Return whether a function asks for weights, or one of its module that it calls; `asking` are those on the way."""
    if _is_of_keras(function):
        return False
    names = _names(function.__code__)
    known = [function.__globals__.get(name) for name in names]
    if names & _ASKING and any(_is_asked(x) or _is_keras(x) for x in known):
        return True
    called = (x for x in known if isinstance(x, types.FunctionType) and x.__module__ == function.__module__)
    return any(_asks(x, (*asking, function)) for x in called if x not in asking and x is not function)


@functools.cache
def _made_again(function):
    known = function.__globals__
    others = {name: _answer(known[name]) for name in _names(function.__code__) if name in known}
    made = types.FunctionType(
        function.__code__, {**known, **others}, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, function)


def _bound_to_softmax(function):
    @functools.wraps(function)
    def bound(self, *arguments, **options):
        token = _ASKED.set(softmax_of(self))
        try:
            return function(self, *arguments, **options)
        finally:
            _ASKED.reset(token)

    return bound
