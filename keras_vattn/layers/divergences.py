import collections

from keras_vattn.draws.stochastic_layers import stochastic_layers


def divergences(model, weighted=False):
    """Return the KL that each layer added in the last call of a model, for example to compute your own ELBO.

    By default, this function returns the unweighted KLs of the formula below, where q is the posterior and p is the
    prior. In `model.losses`, the KLs include free bits, `kl_reduction`, `kl_weight` and annealing. `model.losses` also
    contains regularization losses. If you call the model in a `tf.function`, call `divergences` there, too.

    Formula:
        "KL of a layer" = 1/B sum_(b=1)^B sum_t "KL"(q_(b,t) || p_(b,t))

    Args:
        model: A `keras.Model` or layer that has been called.
        weighted: Whether to return the KLs as they are in `model.losses`. Defaults to `False`.

    Returns:
        A dictionary from the name of the layer in the log (`"attention_kl"`) to the KL in nats, a float32 scalar. The
        KL is summed over valid queries and over keys or dimensions, and averaged over the batch. If the model calls a
        layer several times, the KLs of the calls are added. If layers share a name, the second and later names get a
        number (`"attention_kl_1"`). In the log, these layers share one entry.

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
