"""Variational attention for Keras 3 on TensorFlow."""

from keras_vattn.support.backend import require_tensorflow

require_tensorflow()
del require_tensorflow

from keras_vattn import annealing, decoding, distributions, fast, layers, losses, metrics, plots, random, recurrent  # noqa: E402
from keras_vattn.alignments import (  # noqa: E402
    Alignment,
    ContextualPrior,
    DenseKeys,
    Dirichlet,
    DirichletPrior,
    FixedPrior,
    GammaPrior,
    GumbelSoftmax,
    Hard,
    Keys,
    LogNormal,
    LogNormalPrior,
    Prior,
    SegmentKeys,
    Softmax,
    Weibull,
)
from keras_vattn.annealing import CyclicalAnnealing, LinearAnnealing, LogisticAnnealing  # noqa: E402
from keras_vattn.contexts import Context, GaussianContext, WeightedSum  # noqa: E402
from keras_vattn.conversion import to_bayesian, to_deterministic  # noqa: E402
from keras_vattn.draws import (  # noqa: E402
    ModelNoise,
    export_draws,
    posterior_draws,
    posterior_predictive,
    stochastic_layers,
)
from keras_vattn.latent_alignment import (  # noqa: E402
    CategoricalAttention,
    LatentLogLikelihood,
    LatentObjective,
    RewardToGo,
    TokenLogLikelihood,
)
from keras_vattn.layers import (  # noqa: E402
    Attention,
    BayesianAttention,
    DeterministicAttention,
    DirichletAttention,
    GaussianAttention,
    GaussianLatent,
    GraphAttention,
    MultiHeadAttention,
    MultiHeadMixin,
    PredictedContext,
    StochasticLayer,
    StochasticSoftmax,
    WordDropout,
    divergences,
)
from keras_vattn.losses import NegativeBound, SequenceCrossentropy  # noqa: E402
from keras_vattn.metrics import Perplexity  # noqa: E402
from keras_vattn.recurrent import (  # noqa: E402
    AttentionDecoder,
    GRUCell,
    LSTMCell,
    MaxOutLSTMCell,
    RecurrentCell,
    StochasticDecoder,
)
from keras_vattn.scores import Additive, Bilinear, DotProduct, Local, Location, LocationSensitive, Score  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Additive",
    "Alignment",
    "Attention",
    "AttentionDecoder",
    "BayesianAttention",
    "Bilinear",
    "CategoricalAttention",
    "Context",
    "ContextualPrior",
    "CyclicalAnnealing",
    "DenseKeys",
    "DeterministicAttention",
    "Dirichlet",
    "DirichletAttention",
    "DirichletPrior",
    "DotProduct",
    "FixedPrior",
    "GRUCell",
    "GammaPrior",
    "GaussianAttention",
    "GaussianContext",
    "GaussianLatent",
    "GraphAttention",
    "GumbelSoftmax",
    "Hard",
    "Keys",
    "LSTMCell",
    "LatentLogLikelihood",
    "LatentObjective",
    "LinearAnnealing",
    "Local",
    "Location",
    "LocationSensitive",
    "LogNormal",
    "LogNormalPrior",
    "LogisticAnnealing",
    "MaxOutLSTMCell",
    "ModelNoise",
    "MultiHeadAttention",
    "MultiHeadMixin",
    "NegativeBound",
    "Perplexity",
    "PredictedContext",
    "Prior",
    "RecurrentCell",
    "RewardToGo",
    "Score",
    "SegmentKeys",
    "SequenceCrossentropy",
    "Softmax",
    "StochasticDecoder",
    "StochasticLayer",
    "StochasticSoftmax",
    "TokenLogLikelihood",
    "Weibull",
    "WeightedSum",
    "WordDropout",
    "annealing",
    "decoding",
    "distributions",
    "divergences",
    "export_draws",
    "fast",
    "layers",
    "losses",
    "metrics",
    "plots",
    "posterior_draws",
    "posterior_predictive",
    "random",
    "recurrent",
    "stochastic_layers",
    "to_bayesian",
    "to_deterministic",
]
