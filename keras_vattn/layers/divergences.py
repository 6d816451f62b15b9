import collections

from keras_vattn.draws.stochastic_layers import stochastic_layers


def divergences(model, weighted=False):
    """Return the KL of each layer of a model in the call just made: the terms of an ELBO of your own.

    `model.losses` holds the same KLs times their `kl_weight` and annealing, reduced by `kl_reduction`, and the losses
    of regularizers. These KLs are neither weighted nor rescaled, and no floor is taken off. Ask in the graph, or the
    eager code, that called the model. The log stays as it is.

    Formula:
        "KL of a layer" = 1/B sum_(b=1)^B sum_t "KL"(q_(b,t) || p_(b,t))

    Args:
        model: A `keras.Model` or layer that has been called.
        weighted: Whether to return the KLs as they enter `model.losses`. Defaults to `False`.

    Returns:
        A dictionary from a layer's name in the log (`"attention_kl"`) to a float32 scalar: nats, summed over valid
        queries and keys or dimensions and over the calls of a layer that the model uses twice, averaged over the batch.
        Where layers share a name, the second and later ones have a number behind it (`"attention_kl_1"`); in the log
        they share one entry.

    Example:

    >>> layer = keras_vattn.GaussianLatent(2, kl_weight=0.0, name="z")
    >>> z = layer(keras.ops.ones((4, 3)), training=True)
    >>> {name: float(x) >= 0.0 for name, x in keras_vattn.divergences(layer).items()}
    {'z_kl': True}
    >>> [float(x) for x in keras_vattn.divergences(layer, weighted=True).values()]
    [0.0]
    """
    by_name, counts = {}, collections.Counter()
    for layer in stochastic_layers(model):
        name = getattr(layer, "name_in_the_log", None)
        if name is None:
            continue
        divergence = layer.divergence_of_last_call(weighted)
        if divergence is not None:
            by_name[f"{name}_{counts[name]}" if counts[name] else name] = divergence
        counts[name] += 1
    return by_name
