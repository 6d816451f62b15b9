"""Convert the names of alignments and priors to objects."""

from keras_vattn.alignments.alignment import Alignment
from keras_vattn.alignments.dirichlet import Dirichlet
from keras_vattn.alignments.gumbel_softmax import GumbelSoftmax
from keras_vattn.alignments.hard import Hard
from keras_vattn.alignments.log_normal import LogNormal
from keras_vattn.alignments.priors import Prior
from keras_vattn.alignments.softmax import Softmax
from keras_vattn.alignments.weibull import Weibull
from keras_vattn.support.identifiers import resolve

ALIGNMENTS = {
    "softmax": Softmax,
    "weibull": Weibull,
    "lognormal": LogNormal,
    "dirichlet": Dirichlet,
    "gumbel_softmax": GumbelSoftmax,
    "hard": Hard,
}
SYNONYMS = {"log_normal": "lognormal", "gumbel": "gumbel_softmax"}


def get(identifier):
    """Return an `Alignment` from a name in `ALIGNMENTS`, a class, a config dictionary or an instance."""
    if isinstance(identifier, str):
        identifier = SYNONYMS.get(identifier, identifier)
    return resolve(identifier, ALIGNMENTS, Alignment, "alignment")


def get_prior(identifier, alignment, **kwargs):
    """Return a `Prior` for `alignment` from a name, class, config dictionary or instance, or `None`."""
    return None if identifier is None else resolve(identifier, alignment.priors, Prior, "prior", **kwargs)
