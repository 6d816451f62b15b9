"""Which layers of a model draw."""

from keras_vattn.draws.request import reads_requests
from keras_vattn.support import keras_private


def stochastic_layers(model, with_kl=False):
    """Return the layers of a model that draw from a posterior or have a KL.

    Dropout is no posterior: a layer that only drops is not in the list. `LatentLogLikelihood` is in the list if its
    objective samples, because it takes draws, and so is an attention whose weights are drawn without a prior: neither
    has a KL, and their `kl_weight` has no effect.

    Args:
        model: A `keras.Model` or layer.
        with_kl: Whether to return only the layers with a KL, whose `kl_weight` can be changed. An attention whose KL
            comes from posterior logits alone has one after its first call with them. Defaults to `False`.

    Returns:
        A list of layers, each once, including layers inside layers and inside models inside the model. They are in the
        order in which they were made, which is the same for every model that the same code makes.

    Example:

    >>> inputs = keras.Input((5, 3))
    >>> attended = keras_vattn.GaussianAttention(name="attention")(inputs, inputs)
    >>> model = keras.Model(inputs, keras_vattn.GaussianLatent(2, name="latent")(keras.layers.Dropout(0.5)(attended)))
    >>> [layer.name for layer in keras_vattn.stochastic_layers(model)]
    ['attention', 'latent']
    >>> for layer in keras_vattn.stochastic_layers(model, with_kl=True):
    ...     layer.kl_weight = 0.1
    """
    layers = [
        x for x in keras_private.flatten_layers(model) if is_stochastic(x) or getattr(x, "kl_tracker", None) is not None
    ]
    return [layer for layer in layers if has_kl(layer)] if with_kl else layers


def has_kl(layer):
    """Return whether a layer, any layer of Keras, has a KL."""
    if getattr(layer, "kl_tracker", None) is None:
        return False
    return layer.name_in_the_log is not None or getattr(layer, "alignment_prior", layer) is not None


def is_stochastic(layer):
    """Return whether a layer, any layer of Keras, draws from a posterior."""
    return getattr(layer, "is_stochastic", False)


def drawing_layers(model):
    """Return the layers of a model that draw from a posterior.

    Raises:
        ValueError: If one of them cannot see that it is to draw.
    """
    layers = [layer for layer in stochastic_layers(model) if is_stochastic(layer)]
    invalid = [layer for layer in layers if not reads_requests(layer)]
    if invalid:
        raise ValueError(
            "A layer whose `is_stochastic` is True must inherit the attribute `draws` of keras_vattn.StochasticLayer, "
            "which says whether to draw at inference, and must not set it: make it a subclass, and ask `noise_seed`. "
            f"Received: {', '.join(f'{type(layer).__name__}(name={layer.name!r})' for layer in invalid)}"
        )
    return layers
