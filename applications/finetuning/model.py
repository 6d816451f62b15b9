"""Build a pretrained transformer with a head, with deterministic or random attention.

    logits = head(dropout(transformer(tokens))),  attention weights drawn from q
    loss = cross-entropy(logits) + kl_weight KL(q || p), or the squared error of a score

p is the prior of the weights, which a network computes from the keys. The model no_kl has no prior; the model
deterministic does not draw.

Shapes: B examples, L tokens, C classes.
"""

import dataclasses

import keras

import keras_vattn
from applications.finetuning.options import TASKS

# Models and their names in Table 5 of Fan et al. 2020.
MODELS = {"deterministic": "deterministic", "no_kl": "BAM (NO KL)", "wc": "BAM-WC"}


@dataclasses.dataclass
class Models:
    """The training model and its transformer, which is converted if its attention is random.

    {"token_ids", "segment_ids", "padding_mask"} (B, L) -> logits (B, C), scores (B,), or logits of the first and last
    token of an answer (B, L, 2).
    """

    training: keras.Model
    backbone: keras.Model


def build(options, codec):
    """Build the `Models` from `Options` and a `Codec`."""
    # Layers.
    backbone = bayesian(options, keras.saving.deserialize_keras_object(codec.backbone))
    kind, seed = TASKS[options.texts.task].kind, options.run.layer_seed(0)
    dropout = keras.layers.Dropout(options.backbone.classifier_dropout, seed=seed, name="classifier_dropout")
    units = {"classes": len(codec.labels or ()), "score": 1, "span": 2}[kind]
    # A separate seed gives all models of a run seed the same head, independent of the priors.
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)
    head = keras.layers.Dense(units, kernel_initializer=initializer, dtype="float32", name="head")
    # Connect the layers.
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in backbone.input}
    hidden = backbone(inputs)
    outputs = head(dropout(hidden["sequence_output" if kind == "span" else "pooled_output"]))
    if kind == "score":
        outputs = keras.ops.squeeze(outputs, -1)
    elif kind == "span":
        # The pooled output is unused, and answers do not start or end in padding.
        backbone.get_layer("pooled_dense").trainable = False
        outputs = keras.ops.where(inputs["padding_mask"][..., None] > 0, outputs, -1e4)
    return Models(keras.Model(inputs, outputs), backbone)


def bayesian(options, backbone):
    """Convert the attention of a transformer as the model requires."""
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
    # Make the weights of the prior depend only on the seed.
    keras.utils.set_random_seed(seed)
    # ALBERT calls a shared layer several times, so divide its KL by the number of calls too.
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
