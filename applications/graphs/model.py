"""Build the two-layer graph attention network of Velickovic et al. 2018, deterministic or Bayesian (Fan et al. 2020).

    h = elu(first(x)),  logits = second(h)
    loss = -mean_m log softmax(logits_m)[label_m] + kl_weight a(t) KL(q || p) + l2 / 2 sum w^2

q is the distribution of the attention weights, p their prior, and a(t) the annealing factor at step t. The model no_kl
has no prior, and the attention of the model gat is deterministic. These two models have no KL.

Shapes: N nodes, D features, E edges, M classified nodes, H heads, C classes.
"""

import dataclasses

import keras

import keras_vattn
from applications.graphs.options import PUBLISHED

LAYERS = ("first", "second")


@dataclasses.dataclass(frozen=True)
class Model:
    """A model from Table 1 of Fan et al. 2020. `distribution` of the attention weights is "weibull", "lognormal", or
    `None` for softmax. `prior` is "fixed", "contextual" or `None`."""

    title: str
    distribution: str | None = None
    prior: str | None = None


MODELS = {
    "gat": Model("GAT"),
    "no_kl": Model("BAM (NO KL)", "weibull"),
    "lf": Model("BAM-LF", "lognormal", "fixed"),
    "lc": Model("BAM-LC", "lognormal", "contextual"),
    "wf": Model("BAM-WF", "weibull", "fixed"),
    "wc": Model("BAM-WC", "weibull", "contextual"),
}


@dataclasses.dataclass
class Models:
    """The training model and the model for prediction. These models share layers.

    Attributes:
        training: Maps "features" (N, D), "edges" (E, 2) and "targets" (M,), the indices of M nodes, to logits (M, C).
            If neighbours are sampled, the inputs also include "nodes_mask" (N,) and "edges_mask" (E,).
        prediction: Maps "features" (N, D) and "edges" (E, 2) to logits (N, C).
    """

    training: keras.Model
    prediction: keras.Model


def build(options, codec):
    """Return the `Models` for the number of features and the list of classes in `codec`."""
    network, width, num_classes = options.network, codec["width"], len(codec["classes"])
    first = attention(options, 0, network.units, network.num_heads, activation="elu")
    second = attention(options, 1, num_classes, network.output_heads, concatenate=False)
    # Each layer has its own seed, and initialises its prior last. Models with and without a prior therefore start with
    # the same other weights.
    for index, (layer, features) in enumerate(((first, width), (second, network.num_heads * network.units))):
        keras.utils.set_random_seed(options.run.layer_seed(index))
        layer.build((None, features), (None, 2))
        for weight in layer.trainable_weights:
            if network.l2 and (network.l2_of == "all" or "bias" not in weight.name):
                weight.regularizer = keras.regularizers.L2(network.l2 / 2.0)
    features, edges = keras.Input((width,), name="features"), keras.Input((2,), dtype="int32", name="edges")
    targets = keras.Input((), dtype="int32", name="targets")
    inputs, masks = {"features": features, "edges": edges}, {}
    logits = second(first(features, edges), edges)
    prediction = keras.Model(inputs, logits)
    if options.sampling.neighbors:
        masks = {name: keras.Input((), dtype="bool", name=name) for name in ("nodes_mask", "edges_mask")}
        logits = second(first(features, edges, **masks), edges, **masks)
    # Without this cast, mixed precision would compute the loss in half precision.
    logits = keras.ops.cast(keras.ops.take(logits, targets, axis=0), "float32")
    return Models(keras.Model(inputs | masks | {"targets": targets}, logits), prediction)


def attention(options, index, units, num_heads, **kwargs):
    """Return the graph attention layer `LAYERS[index]`."""
    network, alignment, model = options.network, options.alignment, MODELS[options.model]
    kwargs |= {"name": LAYERS[index], "seed": options.run.layer_seed(index)}
    kwargs |= {"feature_dropout": network.feature_dropout, "dropout": network.coefficient_dropout}
    if model.distribution is not None:
        published = _published(options)
        bayesian = alignment.with_published(published)
        kwargs |= {"alignment": bayesian.alignment(model.distribution), "kl_annealing": bayesian.annealing()}
        kwargs |= {"kl_weight": bayesian.kl_weight, "kl_reduction": alignment.kl_reduction}
        if alignment.kl_reduction == "mean":
            # The published code averages the KL over the heads of both layers. Each layer therefore multiplies its
            # weight by its share of the heads.
            kwargs["kl_weight"] *= num_heads / (network.num_heads + network.output_heads)
    if model.prior is not None:
        heads = num_heads if alignment.per_head_prior else None
        # He initialization of each head. Without the factor `heads`, Keras would count the heads as inputs.
        initializer = keras.initializers.VarianceScaling(2.0 * (heads or 1))
        alpha = published.get("prior_alpha", 1.0)
        prior = bayesian.prior(model.distribution, model.prior, alpha, num_heads=heads, kernel_initializer=initializer)
        kwargs |= {"prior": prior, "prior_over": alignment.prior_over if prior.reads_keys else "neighbourhood"}
    return keras_vattn.GraphAttention(units, num_heads, **kwargs)


def values_of(options):
    """Return the attention options of a model with their values. Unset options have the published values."""
    values = dataclasses.asdict(options.alignment)
    return {name: value if values.get(name) is None else values[name] for name, value in _published(options).items()}


def _published(options):
    return PUBLISHED[options.alignment.published].get(options.model, {})
