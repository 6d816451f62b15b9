"""Provides models with attention in various places, for the tests of `to_bayesian`."""

import warnings

import keras
import numpy as np
from keras import layers

import keras_vattn

with warnings.catch_warnings():
    # KerasHub imports packages that raise warnings.
    warnings.simplefilter("ignore")
    import keras_hub

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(3, 5, 8)).astype("float32")
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "dropout": 0.0}
TOKENS = {
    "token_ids": GENERATOR.integers(1, 30, size=(3, 6)).astype("int32"),
    "segment_ids": np.zeros((3, 6), "int32"),
    "padding_mask": (np.arange(6) < np.array([6, 4, 2])[:, None]).astype("int32"),
}


def bayesian_of(model, alignment="weibull", prior="contextual", layers=None, **options):
    """Convert every attention layer and add a KL. By default, `to_bayesian` converts some layers and adds none."""
    return keras_vattn.to_bayesian(model, alignment, prior, layers=layers, **options)


def functional_model():
    """Return a model with masks and all three Keras attention layers, one of which is called twice."""
    inputs = keras.Input((None, 8))
    x = layers.Masking()(inputs)
    heads = layers.MultiHeadAttention(2, 4, name="heads")
    x = heads(x, heads(x, x))
    x = layers.Attention(use_scale=True, name="scores")([x, x])
    x = layers.AdditiveAttention(name="additive")([x, inputs, x], use_causal_mask=True)
    return randomized(keras.Model(inputs, layers.Dense(2)(x)))


def randomized(model):
    generator = np.random.default_rng(1)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * generator.normal(size=weight.shape))
    return model


@keras.saving.register_keras_serializable(package="tests")
class Block(layers.Layer):
    """Creates an attention layer in `build`. A list and a dictionary contain further attention layers."""

    def __init__(self, units=8, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.listed = [layers.MultiHeadAttention(2, 4)]
        self.named = {"own": layers.MultiHeadAttention(1, 3)}

    def build(self, shape):
        self.inner = layers.MultiHeadAttention(2, 4, dropout=0.1, name="inner")
        for attention in (self.inner, *self.listed, *self.named.values()):
            attention.build(shape, shape)

    def call(self, x, training=None):
        for attention in (self.inner, *self.listed, *self.named.values()):
            x = attention(x, x, training=training)
        return x

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="tests")
class WithoutBuild(layers.Layer):
    """A layer without `build`: its first call builds the attention layers inside."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.heads = layers.MultiHeadAttention(2, 4)
        self.scores = layers.Attention(use_scale=True)

    def call(self, x):
        return self.scores([x, self.heads(x, x)])


class Subclassed(keras.Model):
    """An unregistered model. It can be converted, and loaded with `custom_objects`."""

    def __init__(self, width=8, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.block = Block(width)
        self.dense = layers.Dense(2)

    def call(self, x, training=None):
        return self.dense(self.block(x, training=training))

    def get_config(self):
        return {**super().get_config(), "width": self.width}


def subclassed_model():
    model = Subclassed()
    model(X)
    return randomized(model)


def nested_model():
    inputs = keras.Input((None, 8))
    inner = keras.Model(inputs, Block()(inputs), name="encoder")
    sequential = keras.Sequential([keras.Input((None, 8)), Block(), layers.Dense(8)])
    x = keras.Input((None, 8))
    return randomized(keras.Model(x, layers.Dense(2)(sequential(inner(x)))))


def model_without_build():
    inputs = keras.Input((None, 8))
    return randomized(keras.Model(inputs, WithoutBuild()(inputs)))


def backbone(name):
    constructors = {
        "bert": lambda: keras_hub.models.BertBackbone(30, max_sequence_length=6, **SIZES),
        "albert": lambda: keras_hub.models.AlbertBackbone(30, embedding_dim=4, max_sequence_length=6, **SIZES),
        "gpt2": lambda: keras_hub.models.GPT2Backbone(30, max_sequence_length=6, **SIZES),
    }
    return randomized(constructors[name]())


def outputs_of(model, inputs, **options):
    names = [x.name for x in getattr(model, "inputs", None) or []]
    inputs = {name: inputs[name] for name in names} if isinstance(inputs, dict) else inputs
    outputs = model(inputs, **options)
    return np.asarray(outputs["sequence_output"] if isinstance(outputs, dict) else outputs)


MODELS = {
    "functional": (functional_model, X, 3),
    "subclassed": (subclassed_model, X, 3),
    "nested": (nested_model, X, 6),
    "bert": (lambda: backbone("bert"), TOKENS, 2),
    "albert": (lambda: backbone("albert"), TOKENS, 1),
    "gpt2": (lambda: backbone("gpt2"), TOKENS, 2),
}


@keras.saving.register_keras_serializable(package="tests")
class LinearAttention(layers.Layer):
    def call(self, x):
        return x
