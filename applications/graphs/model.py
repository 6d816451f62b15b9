"""The two-layer graph attention network of Velickovic et al. 2018, its weights as they are or drawn (Fan et al. 2020).

Shapes: N nodes, D features, E edges, M nodes that are classified, H heads, C classes.
"""

import dataclasses

import keras

import keras_vattn
from applications.graphs.options import MODELS, PUBLISHED

LAYERS = ("first", "second")


@dataclasses.dataclass
class Models:
    """The model that is trained and the one that predicts; they share their layers.

    Attributes:
        training: {"features" (N, D), "edges" (E, 2), "targets" (M,)} -> logits (M, C); where neighbours are drawn, with
            "nodes_mask" (N,) and "edges_mask" (E,).
        prediction: {"features" (N, D), "edges" (E, 2)} -> logits (N, C).
        hidden: The same inputs -> what the second layer sees, (N, H F).
    """

    training: keras.Model
    prediction: keras.Model
    hidden: keras.Model


def build(options, width, num_classes):
    """Build the models.

    Args:
        options: `Options`.
        width: Number of features D.
        num_classes: Number of classes C.
    """
    network = options.network
    first = attention(options, 0, network.units, network.num_heads, activation="elu")
    second = attention(options, 1, num_classes, network.output_heads, concatenate=False)
    # Built here, so that each begins with the seed that `attention` has set.
    for index, (layer, features) in enumerate(((first, width), (second, network.num_heads * network.units))):
        keras.utils.set_random_seed(options.run.layer_seed(index))
        layer.build((None, features), (None, 2))
        regularize(layer, options)

    def logits(**masks):
        hidden = first(inputs["features"], inputs["edges"], **masks)
        return hidden, second(hidden, inputs["edges"], **masks)

    inputs = {
        "features": keras.Input((width,), name="features"),
        "edges": keras.Input((2,), dtype="int32", name="edges"),
    }
    hidden, of_nodes = logits()
    prediction, seen = keras.Model(inputs, of_nodes), keras.Model(inputs, hidden)
    masks = {}
    if options.sampling.neighbors:
        masks = {name: keras.Input((), dtype="bool", name=name) for name in ("nodes_mask", "edges_mask")}
        _, of_nodes = logits(**masks)
    targets = keras.Input((), dtype="int32", name="targets")
    # The loss is float32 where the rest is computed in half precision.
    of_targets = keras.ops.cast(keras.ops.take(of_nodes, targets, axis=0), "float32")
    training = keras.Model(inputs | masks | {"targets": targets}, of_targets)
    return Models(training, prediction, seen)


def attention(options, index, units, num_heads, **kwargs):
    """Return a layer of the network."""
    network, given, model, published = options.network, options.alignment, MODELS[options.model], _published(options)
    values = given.of_model(published)
    kwargs |= {"units": units, "num_heads": num_heads, "name": LAYERS[index], "seed": options.run.layer_seed(index)}
    kwargs |= {"feature_dropout": network.feature_dropout, "dropout": network.coefficient_dropout}
    # The initializers' seeds are drawn here, the prior's before them, in another stream: models of one seed have the
    # same initial weights.
    prior = prior_of(model, values, given, published, num_heads)
    keras.utils.set_random_seed(options.run.layer_seed(index))
    if model.distribution is None:
        return keras_vattn.GraphAttention(**kwargs)
    kl_weight = values.kl_weight
    if given.kl_reduction == "mean":
        # The published mean is one over the edges and heads of both layers.
        kl_weight *= num_heads / (network.num_heads + network.output_heads)
    return keras_vattn.GraphAttention(
        alignment=values.alignment(model.distribution),
        prior=prior,
        prior_over=given.prior_over if prior is not None and prior.reads_keys else "neighbourhood",
        kl_weight=kl_weight,
        kl_annealing=values.annealing(),
        kl_reduction=given.kl_reduction,
        **kwargs,
    )


def values_of(options):
    """Return the values of a model's attention, its own or those that `published` has: a dictionary."""
    own = dataclasses.asdict(options.alignment)
    return {name: value if own.get(name) is None else own[name] for name, value in _published(options).items()}


def _published(options):
    return PUBLISHED[options.alignment.published].get(options.model, {})


def prior_of(model, values, given, published, num_heads):
    """Return the prior of a model, or `None`."""
    if model.prior is None:
        return None
    heads = num_heads if given.per_head_prior else None
    # Initialization after He, head by head: Keras takes an axis of heads for part of what comes in.
    initializer = keras.initializers.VarianceScaling(2.0 * (heads or 1))
    alpha = published.get("prior_alpha", 1.0)
    return values.prior(model.distribution, model.prior, alpha, num_heads=heads, kernel_initializer=initializer)


def regularize(layer, options):
    """Give weights half the sum of their squares as a loss."""
    for weight in layer.trainable_weights:
        if options.network.l2 and (options.network.l2_of == "all" or "bias" not in weight.name):
            weight.regularizer = keras.regularizers.L2(options.network.l2 / 2.0)
