"""Build a model from a pretrained transformer, with deterministic or stochastic attention, and a task head.

    logits = head(dropout(transformer(tokens))),  attention weights sampled from q
    loss = task loss + kl_weight KL(q || p)

The task loss is the cross-entropy, or the squared error if the model predicts a score. A network computes p, the prior
of the attention weights, from the keys. The model `no_kl` has no prior and no KL. `deterministic` does not sample.

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
    """The training model and its transformer. In `no_kl` and `wc`, the transformer has stochastic attention.

    The training model maps "token_ids", "segment_ids" and "padding_mask", each (B, L), to one output, which depends on
    the task: class logits (B, C), scores (B,), or logits (B, L, 2) of the first and the last token of an answer.
    """

    training: keras.Model
    backbone: keras.Model


def build(options, codec):
    """Build the `Models` from `Options` and a `Codec`."""
    backbone = bayesian(options, keras.saving.deserialize_keras_object(codec.backbone))
    kind, seed = TASKS[options.texts.task].kind, options.run.layer_seed(0)
    dropout = keras.layers.Dropout(options.backbone.classifier_dropout, seed=seed, name="classifier_dropout")
    units = {"classes": len(codec.labels or ()), "score": 1, "span": 2}[kind]
    # The head has a separate seed, so that models with the same --seed but different priors start with the same head.
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)
    head = keras.layers.Dense(units, kernel_initializer=initializer, dtype="float32", name="head")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in backbone.input}
    hidden = backbone(inputs)
    outputs = head(dropout(hidden["sequence_output" if kind == "span" else "pooled_output"]))
    if kind == "score":
        outputs = keras.ops.squeeze(outputs, -1)
    elif kind == "span":
        # Span tasks do not use the pooled output. An answer cannot start or end in padding.
        backbone.get_layer("pooled_dense").trainable = False
        outputs = keras.ops.where(inputs["padding_mask"][..., None] > 0, outputs, -1e4)
    return Models(keras.Model(inputs, outputs), backbone)


def bayesian(options, backbone):
    """Convert a transformer to stochastic attention. If the model is "deterministic", return `backbone`."""
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
    # Reset the seed, so that the initial weights of the prior do not depend on earlier random numbers.
    keras.utils.set_random_seed(seed)
    # To average the KLs, divide `kl_weight` by the number of KLs. ALBERT calls a layer repeatedly: one KL per call.
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
