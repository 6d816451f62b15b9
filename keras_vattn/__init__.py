"""Variational attention for Keras 3 on TensorFlow."""

from keras_vattn._backend import require_tensorflow

require_tensorflow()

from keras_vattn import decoding, plots, random  # noqa: E402
from keras_vattn.alignments import Alignment, DenseKeys, Softmax  # noqa: E402
from keras_vattn.annealing import CyclicalAnnealing, LinearAnnealing, LogisticAnnealing  # noqa: E402
from keras_vattn.contexts import Context, GaussianContext, WeightedSum  # noqa: E402
from keras_vattn.inference import posterior_draws  # noqa: E402
from keras_vattn.layers import (  # noqa: E402
    Attention,
    AttentionDecoder,
    DeterministicAttention,
    GaussianAttention,
    GaussianLatent,
    WordDropout,
)
from keras_vattn.losses import SequenceCrossentropy  # noqa: E402
from keras_vattn.metrics import Perplexity  # noqa: E402
from keras_vattn.scores import Additive, Bilinear, DotProduct, Score  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Additive",
    "Alignment",
    "Attention",
    "AttentionDecoder",
    "Bilinear",
    "Context",
    "CyclicalAnnealing",
    "DenseKeys",
    "DeterministicAttention",
    "DotProduct",
    "GaussianAttention",
    "GaussianContext",
    "GaussianLatent",
    "LinearAnnealing",
    "LogisticAnnealing",
    "Perplexity",
    "Score",
    "SequenceCrossentropy",
    "Softmax",
    "WeightedSum",
    "WordDropout",
    "decoding",
    "plots",
    "posterior_draws",
    "random",
]
