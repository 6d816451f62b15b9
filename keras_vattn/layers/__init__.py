"""Layers: score, alignment and context put together, and what a variational model needs beside them."""

from keras_vattn.layers.attention import Attention
from keras_vattn.layers.attention_decoder import AttentionDecoder
from keras_vattn.layers.bayesian_attention import BayesianAttention
from keras_vattn.layers.categorical_attention import CategoricalAttention
from keras_vattn.layers.deterministic_attention import DeterministicAttention
from keras_vattn.layers.dirichlet_attention import DirichletAttention
from keras_vattn.layers.gaussian_attention import GaussianAttention
from keras_vattn.layers.gaussian_latent import GaussianLatent
from keras_vattn.layers.latent_log_likelihood import LatentLogLikelihood
from keras_vattn.layers.latent_objective import LatentObjective
from keras_vattn.layers.multi_head_attention import MultiHeadAttention
from keras_vattn.layers.token_log_likelihood import TokenLogLikelihood
from keras_vattn.layers.word_dropout import WordDropout

__all__ = [
    "Attention",
    "AttentionDecoder",
    "BayesianAttention",
    "CategoricalAttention",
    "DeterministicAttention",
    "DirichletAttention",
    "GaussianAttention",
    "GaussianLatent",
    "LatentLogLikelihood",
    "LatentObjective",
    "MultiHeadAttention",
    "TokenLogLikelihood",
    "WordDropout",
]
