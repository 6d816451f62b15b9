"""Att2in on region features (Rennie et al. 2017), every model from one builder.

Shapes: B captions, T words with the end, R regions, D their width, K candidates of a latent region, V words.
"""

import dataclasses

import keras
from keras import ops

import keras_vattn
from applications.captioning.options import MODELS
from applications.text.text import PAD


@keras.saving.register_keras_serializable(package="applications.captioning")
class SelfCriticalDecoder(keras_vattn.AttentionDecoder):
    """A decoder that also gives `"expected"`, (B, T, units): its states where nothing is drawn.

    Keras gives every layer of a functional model the model's own `training`: a second call of one decoder with
    another one has to be made by the decoder itself.
    """

    def build(self, inputs_shape, memory_shape):
        # Keras compares its arguments with those of `call`.
        super().build(inputs_shape, memory_shape)

    def call(
        self,
        inputs,
        memory,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        return_logits=False,
        training=None,
    ):
        masks = {"inputs_mask": inputs_mask, "memory_mask": memory_mask}
        asked = {"return_attention_scores": return_attention_scores, "return_logits": return_logits}
        decoded = super().call(inputs, memory, **masks, **asked, training=training)
        at_mean = super().call(inputs, memory, **masks, training=False) if training else decoded
        return {**decoded, "expected": at_mean["hidden"]}

    def compute_output_spec(self, inputs, memory, **options):
        spec = super().compute_output_spec(inputs, memory, **options)
        # Of its own: Keras knows a tensor by its object.
        return {**spec, "expected": keras.KerasTensor(spec["hidden"].shape, dtype=self.compute_dtype)}


@dataclasses.dataclass
class Models:
    """The training model and the pieces of it that decoding uses; all share their layers.

    Attributes:
        training: {"regions" (B, R, D), "num_regions" (B,), "target_input" (B, T), "target" (B, T)} -> bound (B, T)
            in nats of the words of `target`, which are those of `target_input` one step earlier.
        encoder: regions (B, R, D) -> memory (B, R, units).
        embedding: target_input (B, T) -> (B, T, word_width).
        decoder: The `AttentionDecoder`.
        emission: The `Emission`.
    """

    training: keras.Model
    encoder: keras.Model
    embedding: keras.Model
    decoder: keras_vattn.AttentionDecoder
    emission: object

    @property
    def parameters(self):
        """Number of parameters, all of them generative."""
        weights = self.training.trainable_weights
        return {"generative": sum(weight.value.shape.num_elements() for weight in weights)}


class Emission:
    """p(y | h) = softmax W_v dropout(h); with a latent region p(y | h, x) = softmax W_v dropout(tanh(W_h h + W_x x)).

    The dropout mask is that of a word, shared by its candidates.
    """

    def __init__(self, options, vocabulary_size):
        self.latent = None
        if MODELS[options.model].is_marginal:
            units = options.network.units
            self.latent = keras_vattn.CategoricalAttention(objective="marginal", name="latent")
            self.hidden_projection = keras.layers.Dense(units, name="hidden_projection")
            self.region_projection = keras.layers.Dense(units, use_bias=False, name="region_projection")
        self.dropout = keras_vattn.fast.Dropout(
            options.network.dropout,
            noise_shape=(None, None, 1, None),
            seed=options.run.layer_seed(4),
            name="emission_dropout",
        )
        self.words = keras_vattn.TokenLogLikelihood(vocabulary_size, ignore_class=PAD, name="words")

    def candidates(self, decoded, memory, mask):
        """Return what the words are read off, (B, T, K, units), and log p of the K regions, (B, T, K); `None` where the
        decoder's state says all, and K is 1.

        Args:
            decoded: Result of the decoder for T steps, its logits among it.
            memory: (B, R, units).
            mask: Boolean (B, R).
        """
        hidden = decoded["hidden"]
        if self.latent is None:
            return self.dropout(hidden[:, :, None]), None
        found = self.latent(hidden, self.region_projection(memory), value_mask=mask, logits=decoded["logits"])
        hidden = ops.tanh(self.hidden_projection(hidden)[:, :, None] + found["candidates"])
        return self.dropout(hidden), found["log_prior"]

    def log_words(self, decoded, memory, mask):
        """Return log p of every word, (B, T, V), the latent region summed over."""
        hidden, log_prior = self.candidates(decoded, memory, mask)
        log_weights = ops.zeros_like(hidden[..., 0], "float32") if log_prior is None else log_prior
        return self.words(hidden, log_weights=log_weights)


def build(options, vocabulary_size, max_regions, width):
    """Build the models.

    Args:
        options: `Options`.
        vocabulary_size: V.
        max_regions: R.
        width: D.

    Returns:
        `Models`.
    """
    kind = MODELS[options.model]
    regions = keras.Input((max_regions, width), name="regions")
    num_regions = keras.Input((), dtype="int32", name="num_regions")
    target_input = keras.Input((None,), dtype="int32", name="target_input")
    target = keras.Input((None,), dtype="int32", name="target")
    inputs = {"regions": regions, "num_regions": num_regions, "target_input": target_input, "target": target}
    mask, target_mask = region_mask(num_regions, max_regions), ops.not_equal(target, PAD)

    memory = _dropout(options, 1, "region_dropout")(
        keras.layers.Dense(options.network.units, "relu", name="regions_embedded")(regions)
    )
    embedded = keras.layers.Embedding(vocabulary_size, options.network.word_width, name="words_embedded")(target_input)
    embedded = _dropout(options, 2, "word_dropout")(ops.relu(embedded))
    decoder, emission = _decoder(options, kind), Emission(options, vocabulary_size)
    decoded = decoder(
        embedded,
        memory,
        inputs_mask=target_mask,
        memory_mask=mask,
        return_attention_scores=True,
        return_logits=True,
    )

    if kind.is_marginal:
        hidden, log_prior = emission.candidates(decoded, memory, mask)
        log_likelihood = emission.words(hidden, target, candidates_mask=mask[:, None])
        bound = keras_vattn.LatentLogLikelihood("marginal", name="bound")(log_likelihood, log_prior)
    elif kind.alignment == "hard":
        bound = _hard(options, decoded, emission, target, mask)
    else:
        hidden, _ = emission.candidates(decoded, memory, mask)
        bound = emission.words(hidden, target)[..., 0]
    training = keras.Model(inputs, bound, name=options.model)
    encoder = keras.Model(regions, memory, name="encoder")
    return Models(training, encoder, keras.Model(target_input, embedded, name="embedding"), decoder, emission)


def region_mask(num_regions, max_regions):
    """Return which regions there are, boolean (B, R)."""
    return ops.less(ops.arange(max_regions, dtype="int32")[None], num_regions[:, None])


def _hard(options, decoded, emission, target, mask):
    """Return the bound of drawn regions, (B, T): the score function with the reward of all later words."""
    states = [decoded["hidden"]]
    if _is_self_critical(options):
        # One more candidate, so that it shares the dropout mask; without a gradient, which nobody asks for.
        states.append(ops.stop_gradient(decoded["expected"]))
    log_likelihood = emission.words(emission.dropout(ops.stack(states, axis=2)), target)
    of_baseline = {"baseline_log_likelihood": log_likelihood[..., 1]} if len(states) > 1 else {}
    value = keras_vattn.RewardToGo(
        "moving_average" if options.alignment.baseline == "moving_average" else None,
        entropy_weight=options.alignment.entropy_weight,
        name="bound",
    )
    return value(log_likelihood[..., 0], decoded["weights"], decoded["logits"], value_mask=mask, **of_baseline)


def _decoder(options, kind):
    """Return the decoder: its attention asks with the state before a word, and enters the cell's candidate."""
    score = keras_vattn.Additive(options.network.attention_units, name="score")
    if kind.alignment is None:
        attention = keras_vattn.DeterministicAttention(score, name="attention")
    else:
        attention = keras_vattn.Attention(
            score, seed=options.run.layer_seed(3), name="attention", **_alignment(options.alignment, kind)
        )
    decoder = SelfCriticalDecoder if _is_self_critical(options) else keras_vattn.AttentionDecoder
    return decoder(
        options.network.units,
        attention,
        cell="max_out_lstm",
        query="previous",
        feeding=kind.feeding,
        name="decoder",
    )


def _is_self_critical(options):
    return MODELS[options.model].alignment == "hard" and options.alignment.baseline == "soft"


def _alignment(given, kind):
    """Return the options of an attention that concern its alignment and its KL."""
    if kind.alignment == "hard":
        return {"alignment": keras_vattn.Hard()}
    drawn = given.of_model(kind.published)
    return {
        "alignment": drawn.alignment(kind.alignment),
        "prior": drawn.prior(kind.alignment),
        "kl_weight": drawn.kl_weight,
        "kl_reduction": given.kl_reduction,
        "kl_annealing": drawn.annealing(),
    }


def _dropout(options, index, name):
    return keras_vattn.fast.Dropout(options.network.dropout, seed=options.run.layer_seed(index), name=name)
