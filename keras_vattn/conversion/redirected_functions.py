"""Redirect calls to Keras's softmax in attention layers to a softmax layer that samples.

Most attention layers are classes of Keras or have a `keras.layers.Softmax`, and do not need this module. Other classes
call `keras.ops.softmax` or `keras.ops.dot_product_attention` in their functions, and this module redirects these calls.
In KerasHub 0.32 these classes are:

Attention2d, DFineMultiheadAttention, DFineMultiscaleDeformableAttention, DINOV3Attention, EsmSelfAttention,
FluxRoPEAttention, Gemma3VisionAttention, Gemma3nAudioAttention, Gemma3nTextAttention, Gemma4AudioAttention,
GptOssAttention, MultiHeadAttentionWithDownsampling, MultiHeadAttentionWithRelativePE, MultiQueryAttention2d,
PaliGemmaVitAttention, Qwen3_5VisionAttention, RoformerAttention, SAM3Attention, SAM3RoPEAttention,
SegFormerMultiheadAttention, T5MultiHeadAttention, VideoPrismAttention, WindowAttention.

The module copies each function that calls a softmax or an attention function of Keras. In the globals of the copy,
functions that call the softmax layer replace the Keras functions. Keras itself and other classes do not change.

Only globals are replaced. A softmax that an attention layer reads from a closure or an attribute is not redirected, and
`_calls_softmax` follows calls only within one module. If a call never reaches the softmax layer, the attention does not
sample, and `SwappedSoftmaxAttention` warns. The tests are tests/test_softmax_swaps.py and, for all backbones of
KerasHub, tests/test_hub_models.py.
"""

import contextvars
import functools
import types

import keras
import tensorflow as tf
from keras import ops

# Attribute of the softmax layer that the conversion adds.
SOFTMAX_NAME = "drawn_softmax"
_NAMES = {"softmax", "dot_product_attention"}
# The softmax layer that the copied functions call. All layers of a class share the functions, in all threads.
_SUBSTITUTE = contextvars.ContextVar("substitute_softmax", default=None)


@functools.cache
def redirected_functions(layer_class):
    """Return copies of all methods that call Keras's softmax. The copies call a softmax layer instead."""
    functions = {name: x for name, x in non_keras_functions(layer_class).items() if _calls_softmax(x)}
    return {name: _with_substitute(_with_replaced_globals(x)) for name, x in functions.items()}


def non_keras_functions(layer_class):
    """Return a dictionary of the functions of a layer class, except functions that Keras defines."""
    members = {name: x for each in reversed(layer_class.__mro__) for name, x in vars(each).items()}
    functions = {name: x for name, x in members.items() if isinstance(x, types.FunctionType)}
    return {name: x for name, x in functions.items() if not _is_keras_function(x)}


def _softmax(x, axis=-1):
    # Only a softmax over the last axis of two or more axes can be attention.
    if axis not in (-1, len(x.shape) - 1) or len(x.shape) < 2:
        return ops.softmax(x, axis)
    return ops.cast(_SUBSTITUTE.get()(x), x.dtype)


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
    """Compute `keras.ops.dot_product_attention` without a fused kernel."""
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
    return ops.einsum("bnts,bsnh->btnh", ops.cast(_SUBSTITUTE.get()(logits), value.dtype), value)


_REPLACEMENTS = {
    keras.ops.softmax: _softmax,
    keras.activations.softmax: _softmax,
    keras.ops.dot_product_attention: _dot_product_attention,
}


def _replacement(x):
    if _is_keras_module(x):
        return _Module(x)
    if _is_replaced(x):
        return _REPLACEMENTS[x]
    return _with_replaced_globals(x) if isinstance(x, types.FunctionType) and _calls_softmax(x) else x


class _Module:
    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return _replacement(getattr(self._module, name))


def names_in(code):
    """Return the names of globals and attributes used by the code of a function and of its inner functions."""
    nested = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return {*code.co_names, *(name for x in nested for name in names_in(x))}


def _is_replaced(x):
    return isinstance(x, types.FunctionType) and x in _REPLACEMENTS


def _is_keras_module(x):
    return isinstance(x, types.ModuleType) and x.__name__.partition(".")[0] == "keras"


def _is_keras_function(function):
    return function.__module__.partition(".")[0] == "keras"


@functools.cache
def _calls_softmax(function, callers=()):
    """Return whether a function calls Keras's softmax, directly or through other functions of the same module."""
    if _is_keras_function(function):
        return False
    names = names_in(function.__code__)
    values = [function.__globals__.get(name) for name in names]
    if names & _NAMES and any(_is_replaced(x) or _is_keras_module(x) for x in values):
        return True
    callees = (x for x in values if isinstance(x, types.FunctionType) and x.__module__ == function.__module__)
    return any(_calls_softmax(x, (*callers, function)) for x in callees if x not in callers and x is not function)


@functools.cache
def _with_replaced_globals(function):
    values, names, new_globals = function.__globals__, names_in(function.__code__), {}
    copied = types.FunctionType(
        function.__code__, new_globals, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__

    @functools.wraps(function)
    def redirected(*arguments, **options):
        # The module may have assigned its globals since the last call.
        new_globals.update({**values, **{name: _replacement(values[name]) for name in names if name in values}})
        return copied(*arguments, **options)

    return redirected


def _with_substitute(function):
    @functools.wraps(function)
    def method(self, *arguments, **options):
        token = _SUBSTITUTE.set(vars(self)[SOFTMAX_NAME])
        try:
            return function(self, *arguments, **options)
        finally:
            _SUBSTITUTE.reset(token)

    return method
