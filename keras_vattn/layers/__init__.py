"""Stochastic attention layers, and other layers for variational models."""

from keras_vattn.layers.attention import Attention
from keras_vattn.layers.bayesian_attention import BayesianAttention
from keras_vattn.layers.deterministic_attention import DeterministicAttention
from keras_vattn.layers.dirichlet_attention import DirichletAttention
from keras_vattn.layers.divergences import divergences
from keras_vattn.layers.gaussian_attention import GaussianAttention
from keras_vattn.layers.gaussian_latent import GaussianLatent
from keras_vattn.layers.graph_attention import GraphAttention
from keras_vattn.layers.multi_head_attention import MultiHeadAttention
from keras_vattn.layers.multi_head_mixin import MultiHeadMixin
from keras_vattn.layers.predicted_context import PredictedContext
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.layers.stochastic_softmax import StochasticSoftmax
from keras_vattn.layers.word_dropout import WordDropout

__all__ = [
    "Attention",
    "BayesianAttention",
    "DeterministicAttention",
    "DirichletAttention",
    "GaussianAttention",
    "GaussianLatent",
    "GraphAttention",
    "MultiHeadAttention",
    "MultiHeadMixin",
    "PredictedContext",
    "StochasticLayer",
    "StochasticSoftmax",
    "WordDropout",
    "divergences",
]
