"""A pretrained transformer with a head, its attention as it is or drawn.

    logits = head(dropout(transformer(tokens))),  weights of the attention drawn from q
    loss = cross-entropy(logits) + kl_weight KL(q || p), or the squared error of a score

p is the prior of the weights, which a network reads off the keys. The model no_kl has none; the deterministic one draws
nothing.

Shapes: B examples, L tokens, C classes.
"""

import dataclasses

import keras

import keras_vattn
from applications.finetuning.options import TASKS

# The models, and their names in Table 5 of Fan et al. 2020.
MODELS = {"deterministic": "deterministic", "no_kl": "BAM (NO KL)", "wc": "BAM-WC"}


@dataclasses.dataclass
class Models:
    """The model that is trained, and the transformer inside it, converted where its attention is drawn.

    {"token_ids", "segment_ids", "padding_mask"} (B, L) -> logits (B, C), scores (B,), or logits of the first and the
    last token of an answer (B, L, 2).
    """

    training: keras.Model
    backbone: keras.Model


def build(options, codec):
    """Return the `Models` of `Options` and a `Codec`."""
    # Layers.
    backbone = bayesian(options, keras.saving.deserialize_keras_object(codec.backbone))
    kind, seed = TASKS[options.texts.task].kind, options.run.layer_seed(0)
    dropout = keras.layers.Dropout(options.backbone.classifier_dropout, seed=seed, name="classifier_dropout")
    units = {"classes": len(codec.labels or ()), "score": 1, "span": 2}[kind]
    # Seeds of its own: models of one seed have the same head, whatever the priors draw.
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)
    head = keras.layers.Dense(units, kernel_initializer=initializer, dtype="float32", name="head")
    # The functional graph.
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in backbone.input}
    hidden = backbone(inputs)
    outputs = head(dropout(hidden["sequence_output" if kind == "span" else "pooled_output"]))
    if kind == "score":
        outputs = keras.ops.squeeze(outputs, -1)
    elif kind == "span":
        # Nothing reads the pooled output, and no answer begins or ends in padding.
        backbone.get_layer("pooled_dense").trainable = False
        outputs = keras.ops.where(inputs["padding_mask"][..., None] > 0, outputs, -1e4)
    return Models(keras.Model(inputs, outputs), backbone)


def bayesian(options, backbone):
    """Return the transformer with the attention of the model."""
    if options.model == "deterministic":
        return backbone
    values, seed = options.alignment, options.run.layer_seed(1)
    alignment = keras_vattn.Weibull(values.weibull_k, values.parameterization, values.kl_estimator)
    layers = None if values.drawn_share == 1 else values.drawn_share
    if options.model == "no_kl":
        return keras_vattn.to_bayesian(backbone, alignment, seed=seed, layers=layers)
    initializer = keras.initializers.VarianceScaling(distribution="untruncated_normal")
    if values.prior_stddev is not None:
        initializer = keras.initializers.RandomNormal(stddev=values.prior_stddev)
    prior = keras_vattn.GammaPrior(
        beta=values.prior_beta, hidden_units=values.prior_hidden_units, kernel_initializer=initializer, name="prior"
    )
    # The weights of the prior depend on the seed alone.
    keras.utils.set_random_seed(seed)
    # The KL of a layer that is called many times, as ALBERT's, is divided by its calls, too.
    count = getattr(backbone, "num_groups", backbone.num_layers)
    num_calls = max(1, round(values.drawn_share * count)) * backbone.num_layers / count
    num_layers = num_calls if values.kl_reduction == "mean" else 1
    return keras_vattn.to_bayesian(
        backbone,
        alignment,
        prior,
        per_head_prior=values.per_head_prior,
        kl_weight=values.kl_weight / num_layers,
        kl_reduction=values.kl_reduction,
        seed=seed,
        layers=layers,
    )
