"""The functions of an attention that compute its weights, made again to ask the softmax that it holds.

An attention that is neither Keras's nor ours holds a `keras.layers.Softmax`, or calls `keras.ops.softmax` or
`keras.ops.dot_product_attention`, or has the last as a fused path beside the first. Its functions are made again with
other globals, in which these two ask the layer. Nothing in Keras is changed, and no other class.

Before a change: only globals are replaced. A function that an attention finds in a closure or an attribute stays
Keras's, and `_asks` follows calls within one module alone. Globals are read at every call, because a module may assign
them later. The softmax is a context variable, because layers of one class share these functions, and threads call them.
An attention that is called and asks nothing draws nothing; `AskingAttention` warns of it. Tested in
tests/test_softmax_swaps.py, and with every backbone of KerasHub in tests/test_hub_models.py.
"""

import contextvars
import functools
import types

import keras
import tensorflow as tf
from keras import ops

_ASKING = {"softmax", "dot_product_attention"}
# The softmax that is asked in this thread.
_ASKED = contextvars.ContextVar("asked_softmax", default=None)


@functools.cache
def asking_functions(layer_class, softmax_of):
    """Return the functions of a class that compute weights, by name, made again to ask `softmax_of(layer)`."""
    asking = {name: x for name, x in own_functions(layer_class).items() if _asks(x)}
    return {name: _bound(_made_again(x), softmax_of) for name, x in asking.items()}


def own_functions(layer_class):
    """Return the functions of a layer's class by name, without Keras's own."""
    members = {name: x for each in reversed(layer_class.__mro__) for name, x in vars(each).items()}
    functions = {name: x for name, x in members.items() if isinstance(x, types.FunctionType)}
    return {name: x for name, x in functions.items() if not _is_of_keras(x)}


def _softmax(x, axis=-1):
    # Weights have queries or examples, and keys.
    if axis not in (-1, len(x.shape) - 1) or len(x.shape) < 2:
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
    """Compute `keras.ops.dot_product_attention` without a fused kernel, which has no weights."""
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
    """Return the replacement of a global: a function, a module with other functions, or the global itself."""
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


def names_in(code):
    """Return the global names and attributes in the code of a function and of the functions inside it."""
    inside = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return {*code.co_names, *(name for x in inside for name in names_in(x))}


def _is_asked(x):
    return isinstance(x, types.FunctionType) and x in _ANSWERS


def _is_keras(x):
    return isinstance(x, types.ModuleType) and x.__name__.partition(".")[0] == "keras"


def _is_of_keras(function):
    return function.__module__.partition(".")[0] == "keras"


@functools.cache
def _asks(function, asking=()):
    """Return whether a function, or a function of its module that it calls, asks for weights; `asking` is the chain of
    functions so far."""
    if _is_of_keras(function):
        return False
    names = names_in(function.__code__)
    known = [function.__globals__.get(name) for name in names]
    if names & _ASKING and any(_is_asked(x) or _is_keras(x) for x in known):
        return True
    called = (x for x in known if isinstance(x, types.FunctionType) and x.__module__ == function.__module__)
    return any(_asks(x, (*asking, function)) for x in called if x not in asking and x is not function)


@functools.cache
def _made_again(function):
    known, names, others = function.__globals__, names_in(function.__code__), {}
    made = types.FunctionType(function.__code__, others, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__

    @functools.wraps(function)
    def asking(*arguments, **options):
        # What its module has assigned until now.
        others.update({**known, **{name: _answer(known[name]) for name in names if name in known}})
        return made(*arguments, **options)

    return asking


def _bound(function, softmax_of):
    @functools.wraps(function)
    def bound(self, *arguments, **options):
        token = _ASKED.set(softmax_of(self))
        try:
            return function(self, *arguments, **options)
        finally:
            _ASKED.reset(token)

    return bound
