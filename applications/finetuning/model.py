"""Build a model from a pretrained transformer, with deterministic or stochastic attention, and a task head.

    logits = head(dropout(transformer(tokens))),  attention weights sampled from q
    loss = task loss + kl_weight KL(q || p)

q is the distribution of the attention weights. p is their prior, which a network computes from the keys. The task loss
is the cross-entropy, or the squared error for scores. The model `no_kl` has no prior and no KL. `deterministic` does
not sample.

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
    """The training model and its transformer, with stochastic attention in `no_kl` and `wc`.

    The training model maps "token_ids", "segment_ids" and "padding_mask", (B, L) each, to one of these outputs:

    - class logits (B, C)
    - scores (B,)
    - logits (B, L, 2) of the first and the last token of an answer
    """

    training: keras.Model
    backbone: keras.Model


def build(options, codec):
    """Build the `Models` from `Options` and a `Codec`."""
    backbone = bayesian(options, keras.saving.deserialize_keras_object(codec.backbone))
    kind, seed = TASKS[options.texts.task].kind, options.run.layer_seed(0)
    dropout = keras.layers.Dropout(options.backbone.classifier_dropout, seed=seed, name="classifier_dropout")
    units = {"classes": len(codec.labels or ()), "score": 1, "span": 2}[kind]
    # With a separate seed, models with different priors start with the same head.
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)
    head = keras.layers.Dense(units, kernel_initializer=initializer, dtype="float32", name="head")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in backbone.input}
    hidden = backbone(inputs)
    outputs = head(dropout(hidden["sequence_output" if kind == "span" else "pooled_output"]))
    if kind == "score":
        outputs = keras.ops.squeeze(outputs, -1)
    elif kind == "span":
        # Span tasks do not use `pooled_dense`. An answer cannot start or end in padding.
        backbone.get_layer("pooled_dense").trainable = False
        outputs = keras.ops.where(inputs["padding_mask"][..., None] > 0, outputs, -1e4)
    return Models(keras.Model(inputs, outputs), backbone)


def bayesian(options, backbone):
    """Return a transformer with stochastic attention or, for the model "deterministic", `backbone`."""
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
    # Without this seed, the initial prior would depend on earlier random numbers.
    keras.utils.set_random_seed(seed)
    # ALBERT calls a layer several times, with one KL per call. To average the KLs, divide by the number of calls.
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
