"""Provides inputs, masks, pairs of layers, and NumPy logits and priors for the tests of MultiHeadAttention."""

import inspect

import alignment_cases
import keras
import numpy as np
from scipy.special import log_softmax

from keras_vattn import MultiHeadAttention
from keras_vattn.alignments import ALIGNMENTS

KerasAttention = keras.layers.MultiHeadAttention
# Arguments that Keras supports since 3.14 (gate) and 3.15 (window).
GATE, WINDOW = (
    {name: value} if name in inspect.signature(KerasAttention).parameters else {}
    for name, value in (("use_gate", True), ("sliding_window", 3))
)
HEADS, WIDTH = 2, 3
GENERATOR = np.random.default_rng(1)
QUERY = GENERATOR.normal(size=(3, 4, 6)).astype("float32")
VALUE = GENERATOR.normal(size=(3, 5, 7)).astype("float32")
KEY = GENERATOR.normal(size=(3, 5, 8)).astype("float32")
QUERY_MASK = np.array([[True, True, True, True], [True, True, False, False], [True, True, True, False]])
VALUE_MASK = np.array([[True, True, True, False, True], [True, False, True, True, True], [True, True] + 3 * [False]])
KEY_MASK = np.array([[True, True, False, True, True], [True, True, True, True, True], [True, True, True, True, True]])
# Each of these two masks, applied alone, has a valid key in every row.
ATTENTION_MASK = GENERATOR.random((3, 4, 5)) < 0.8
HEAD_MASK = GENERATOR.random((3, HEADS, 4, 5)) < 0.7
ATTENTION_MASK[..., 0] = HEAD_MASK[..., 0] = True
POSTERIOR = GENERATOR.normal(size=(3, HEADS, 4, 5)).astype("float32")

STOCHASTIC = {name: ALIGNMENTS[name] for name in alignment_cases.STOCHASTIC}


def copy_keras_weights(layer, source):
    """Copy weights from the Keras layer `source` to the built layer `layer`, which may have additional weights."""
    for name in ("query_dense", "key_dense", "value_dense", "output_dense", "_gate_dense"):
        if hasattr(source, name):
            getattr(layer, name).set_weights(getattr(source, name).get_weights())


def pair(query=QUERY, value=VALUE, key=None, **options):
    """Return the Keras layer and our layer with the same weights and nonzero biases."""
    ours = {name: options.pop(name) for name in ("alignment", "prior", "query_chunk_size") if name in options}
    layers = KerasAttention(HEADS, WIDTH, **options), MultiHeadAttention(HEADS, WIDTH, **options, **ours)
    for layer in layers:
        layer.build(*(x.shape for x in (query, value, key) if x is not None))
    generator = np.random.default_rng(2)
    layers[0].set_weights([0.5 * generator.normal(size=w.shape) for w in layers[0].get_weights()])
    copy_keras_weights(layers[1], layers[0])
    return layers


def model_of(layer):
    inputs = keras.Input((None, 6)), keras.Input((None, 7))
    return keras.Model(inputs, layer(*inputs))


def assert_close(first, second, **tolerance):
    for one, two in zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True):
        np.testing.assert_allclose(one, two, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def projections(layer, query=QUERY, value=VALUE):
    """Return logits (B, H, T, S) and projected keys (B, S, H, D), computed by NumPy in float64."""
    wq, bq = (np.float64(w) for w in layer.query_dense.get_weights())
    wk, bk = (np.float64(w) for w in layer.key_dense.get_weights())
    keys = np.einsum("bsd,dhe->bshe", value, wk) + bk
    queries = np.einsum("btd,dhe->bthe", query, wq) + bq
    return np.einsum("bthe,bshe->bhts", queries, keys) / np.sqrt(WIDTH), keys


def log_psi(layer, keys, mask):
    """Return log Psi (B, H, T, S), computed by NumPy."""
    hidden, bias, output = (np.float64(w) for w in layer.prior.get_weights())
    if layer.per_head_prior:
        hidden_layer = np.maximum(np.einsum("bshe,hek->bshk", keys, hidden) + bias[:, 0], 0.0)
        logits = np.einsum("bshk,hk->bhs", hidden_layer, output[..., 0])
    else:
        logits = np.einsum("bshk,k->bhs", np.maximum(keys @ hidden + bias, 0.0), output[:, 0])
    return log_softmax(np.where(mask, logits[:, :, None], -np.inf), axis=-1)
