"""Score functions compute logits from queries and keys."""

from functools import partial

from keras_vattn.scores.additive import Additive
from keras_vattn.scores.bilinear import Bilinear
from keras_vattn.scores.dot_product import DotProduct
from keras_vattn.scores.local import Local
from keras_vattn.scores.location import Location
from keras_vattn.scores.location_sensitive import LocationSensitive
from keras_vattn.scores.score import Score
from keras_vattn.support.identifiers import resolve

SCORES = {
    "dot_product": DotProduct,
    "bilinear": Bilinear,
    "additive": Additive,
    "scaled_dot_product": partial(DotProduct, scaled=True),
    "concat": partial(Additive, use_bias=False),
    "local": Local,
    "location": Location,
    "location_sensitive": LocationSensitive,
}


def get(identifier, **kwargs):
    """Return a `Score` from a name, class, config dictionary or instance. `kwargs` are constructor arguments."""
    return resolve(identifier, SCORES, Score, "score", **kwargs)


__all__ = ["SCORES", "Additive", "Bilinear", "DotProduct", "Local", "Location", "LocationSensitive", "Score", "get"]
