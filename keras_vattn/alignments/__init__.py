"""Alignments, which map logits to distributions over source positions, and their priors, which define the KL."""

from keras_vattn.alignments.alignment import Alignment
from keras_vattn.alignments.dense_keys import DenseKeys
from keras_vattn.alignments.dirichlet import Dirichlet
from keras_vattn.alignments.gumbel_softmax import GumbelSoftmax
from keras_vattn.alignments.hard import Hard
from keras_vattn.alignments.keys import Keys
from keras_vattn.alignments.log_normal import LogNormal
from keras_vattn.alignments.names import ALIGNMENTS, get, get_prior
from keras_vattn.alignments.priors import ContextualPrior, DirichletPrior, FixedPrior, GammaPrior, LogNormalPrior, Prior
from keras_vattn.alignments.segment_keys import SegmentKeys
from keras_vattn.alignments.softmax import Softmax
from keras_vattn.alignments.variational_alignment import AlignmentInputs, VariationalAlignment
from keras_vattn.alignments.weibull import Weibull

__all__ = [
    "ALIGNMENTS",
    "Alignment",
    "AlignmentInputs",
    "ContextualPrior",
    "DenseKeys",
    "Dirichlet",
    "DirichletPrior",
    "FixedPrior",
    "GammaPrior",
    "GumbelSoftmax",
    "Hard",
    "Keys",
    "LogNormal",
    "LogNormalPrior",
    "Prior",
    "SegmentKeys",
    "Softmax",
    "VariationalAlignment",
    "Weibull",
    "get",
    "get_prior",
]
