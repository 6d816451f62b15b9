"""A pretrained transformer with a head, its attention as it is or drawn.

Shapes: B examples, L tokens, C classes.
"""

import dataclasses

import keras

import keras_vattn
from applications.finetuning.options import TASKS
from keras_vattn.conversion import original_weights


@dataclasses.dataclass
class Models:
    """The model that is trained, and the transformer inside it.

    Attributes:
        training: {"token_ids", "segment_ids", "padding_mask"} (B, L) -> logits (B, C), scores (B,), or of the first and
            the last token of an answer (B, L, 2).
        backbone: The transformer, converted where its attention is drawn.
    """

    training: keras.Model
    backbone: keras.Model


def build(options, config, labels):
    """Build the models.

    Args:
        options: `Options`.
        config: Config of the transformer.
        labels: Names of the classes, `None` of a score or spans.
    """
    backbone = bayesian(options, keras.saving.deserialize_keras_object(config))
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in backbone.input}
    hidden = backbone(inputs)
    kind = TASKS[options.texts.task].kind
    if kind == "span":
        # Nothing reads it.
        backbone.get_layer("pooled_dense").trainable = False
    hidden = hidden["sequence_output" if kind == "span" else "pooled_output"]
    seed = options.run.layer_seed(0)
    hidden = keras.layers.Dropout(options.backbone.classifier_dropout, seed=seed, name="classifier_dropout")(hidden)
    units = {"classes": len(labels or ()), "score": 1, "span": 2}[kind]
    # Seeds of its own: models of one seed have the same head, whatever the priors draw.
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)
    head = keras.layers.Dense(units, kernel_initializer=initializer, dtype="float32", name="head")(hidden)
    if kind == "score":
        head = keras.ops.squeeze(head, -1)
    elif kind == "span":
        # No answer begins or ends in padding.
        head = keras.ops.where(inputs["padding_mask"][..., None] > 0, head, -1e4)
    return Models(keras.Model(inputs, head), backbone)


def bayesian(options, backbone):
    """Return the transformer with the attention of the model."""
    given = options.alignment
    if options.model == "deterministic":
        return backbone
    alignment = keras_vattn.Weibull(given.weibull_k)
    if options.model == "no_kl":
        return keras_vattn.to_bayesian(backbone, alignment, None, seed=options.run.layer_seed(1))
    initializer = keras.initializers.VarianceScaling(distribution="untruncated_normal")
    if given.prior_stddev is not None:
        initializer = keras.initializers.RandomNormal(stddev=given.prior_stddev)
    prior = keras_vattn.GammaPrior(
        beta=given.prior_beta, hidden_units=given.prior_hidden_units, kernel_initializer=initializer, name="prior"
    )
    # A layer that is called many times has a KL for each call: it is the mean over these, too.
    num_layers = backbone.num_layers if given.kl_reduction == "mean" else 1
    return keras_vattn.to_bayesian(
        backbone,
        alignment,
        prior,
        per_head_prior=given.per_head_prior,
        kl_weight=given.kl_weight / num_layers,
        kl_reduction=given.kl_reduction,
        seed=options.run.layer_seed(1),
    )


def initialize(models, weights):
    """Give the transformer pretrained weights, a list in the order of the original; priors keep theirs."""
    for target, weight in zip(original_weights(models.backbone), weights, strict=True):
        target.assign(weight)
