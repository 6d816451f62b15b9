import keras

from keras_vattn.draws.stochastic_layers import has_kl, stochastic_layers
from keras_vattn.support import keras_private
from keras_vattn.support.sublayers import path_of

_HEAD = ("layer", "draws", "prior", "KL weight", "KL is a", "seed")


def summary(model, print_fn=print):
    """Print a table of the stochastic layers of a model, with their distributions, priors and KL options.

    Args:
        model: A `keras.Model` or layer.
        print_fn: Function that prints one line. Defaults to `print`.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> options = {"alignment": "weibull", "prior": "fixed", "kl_weight": 0.1}
    >>> attention = keras_vattn.Attention(**options, name="attention")
    >>> keras_vattn.summary(keras.Model(inputs, attention(inputs, inputs)))
    layer      draws    prior       KL weight  KL is a  seed
    attention  Weibull  GammaPrior  0.1        sum      None
    """
    layers = stochastic_layers(model)
    if not layers:
        return print_fn("no stochastic layer")
    lines = [_HEAD, *(_line_of(layer, model) for layer in layers)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print_fn("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _path_of(layer, model):
    flatten = keras_private.flatten_layers
    if layer.path or not isinstance(layer, keras.layers.Softmax):
        return path_of(layer)
    # A softmax created by `to_bayesian` has no path.
    owners = [x for x in flatten(model) if x.path and layer in flatten(x)]
    return path_of(min(owners, key=lambda x: len(flatten(x)), default=layer))


def _line_of(layer, model):
    sampled = [getattr(layer, name, None) for name in ("alignment", "context")]
    sampled = [type(x).__name__ for x in sampled if getattr(x, "is_stochastic", False)] or [type(layer).__name__]
    prior = getattr(layer, "prior", None) or getattr(getattr(layer, "context", None), "prior", None)
    prior = prior if isinstance(prior, (str, type(None))) else type(prior).__name__
    kl_options = (layer.kl_weight, layer.kl_reduction) if has_kl(layer) else ("-", "-")
    return _path_of(layer, model), ", ".join(sampled), str(prior), *map(str, kl_options), str(layer.seed)
