"""Find the layers of a model that sample or add a KL."""

from keras_vattn.draws.request import reads_requests
from keras_vattn.support import keras_private


def stochastic_layers(model, with_kl=False):
    """Return the layers of a model that sample from a posterior or have a KL.

    Layers that only apply dropout are not in the list. Two kinds of layers in the list have no KL, so their `kl_weight`
    has no effect: `LatentLogLikelihood` with a sampling objective, and attention without a prior and without posterior
    logits.

    Args:
        model: A `keras.Model` or layer.
        with_kl: Whether to return only the layers with a KL. Attention without a prior has a KL after its first call
            with posterior logits. Defaults to `False`.

    Returns:
        A list of layers without duplicates, including layers inside layers and inner models. The layers are in the
        order of their creation, so models built by the same code have the same order.

    Example:

    >>> inputs = keras.Input((5, 3))
    >>> attended = keras_vattn.GaussianAttention(name="attention")(inputs, inputs)
    >>> latent = keras_vattn.GaussianLatent(2, name="latent")
    >>> model = keras.Model(inputs, latent(keras.layers.Dropout(0.5)(attended)))
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
    """Return whether a layer can add a KL to the loss."""
    if getattr(layer, "kl_tracker", None) is None:
        return False
    return layer.name_in_the_log is not None or getattr(layer, "alignment_prior", layer) is not None


def is_stochastic(layer):
    """Return whether a Keras layer samples from a posterior."""
    return getattr(layer, "is_stochastic", False)


def drawing_layers(model):
    """Return the layers of a model that sample from a posterior.

    Raises:
        ValueError: If one of these layers does not use the property `draws` of `StochasticLayer`.
    """
    layers = [layer for layer in stochastic_layers(model) if is_stochastic(layer)]
    invalid = [layer for layer in layers if not reads_requests(layer)]
    if invalid:
        raise ValueError(
            "A layer with `is_stochastic = True` must be a subclass of keras_vattn.StochasticLayer. It must call "
            "`noise_seed`, and must not override the property `draws`. "
            f"Received: {', '.join(f'{type(layer).__name__}(name={layer.name!r})' for layer in invalid)}"
        )
    return layers
