"""Neural machine translation with a latent alignment (Deng et al. 2018, section 5), every model from one builder."""

import dataclasses

import keras
from keras import ops

import keras_vattn
from applications.nmt.options import MODELS
from applications.text.text import PAD


@dataclasses.dataclass
class Models:
    """The training model and the pieces of it that decoding uses; all share their layers.

    Attributes:
        training: {"source" (B, S), "target_input" (B, T), "target" (B, T)} -> bound (B, T) in nats of the words of
            `target`.
        encoder: source (B, S) -> memory (B, S, D).
        decoder: The `AttentionDecoder`, whose attention scores, and feeds the context expected under p.
        latent: The `CategoricalAttention`, or `None` for a model whose decoder draws weights.
        posterior: {"source", "target"} -> posterior logits (B, T, S), or `None` without an inference network.
        target_embedding: The words' embeddings, dropout not included.
        emission: The `Emission`.
    """

    training: keras.Model
    encoder: keras.Model
    decoder: keras_vattn.AttentionDecoder
    latent: keras_vattn.CategoricalAttention | None
    posterior: keras.Model | None
    target_embedding: keras.layers.Embedding
    emission: object

    @property
    def parameters(self):
        """Numbers of generative and of inference parameters; shared ones are generative."""
        own = set() if self.posterior is None else {weight.path for weight in self._inference_weights()}
        weights = self.training.trainable_weights
        inference = sum(weight.value.shape.num_elements() for weight in weights if weight.path in own)
        total = sum(weight.value.shape.num_elements() for weight in weights)
        return {"generative": total - inference, "inference": inference}

    def _inference_weights(self):
        shared = {weight.path for weight in (*self.encoder.weights, *self.target_embedding.weights)}
        return [weight for weight in self.posterior.trainable_weights if weight.path not in shared]


class Emission:
    """p(y | h, x) = softmax W_v dropout(tanh(W_h h + W_x x + b)), one for every model and every candidate.

    W [h; x] is split, so that the source is projected once and not once a candidate; the dropout mask is that of a
    word, shared by its candidates.
    """

    def __init__(self, options, vocabulary_size):
        units = options.network.units
        self.query_projection = keras.layers.Dense(units, name="query_projection", **_drawn(options, "kernel", "bias"))
        self.value_projection = keras.layers.Dense(
            units, use_bias=False, name="value_projection", **_drawn(options, "kernel")
        )
        self.dropout = keras_vattn.fast.Dropout(
            options.network.dropout,
            noise_shape=(None, None, 1, None),
            seed=options.run.layer_seed(5),
            name="emission_dropout",
        )
        self.words = keras_vattn.TokenLogLikelihood(
            vocabulary_size, ignore_class=PAD, name="words", **_drawn(options, "kernel", "bias")
        )

    def hidden(self, query, candidates):
        """Return what the words are read off, (B, T, K, units).

        Args:
            query: (B, T, units), h of the decoder.
            candidates: (B, T, K, units), projected already.
        """
        return self.dropout(ops.tanh(self.query_projection(query)[:, :, None] + candidates))


def build(options, source_vocabulary_size, target_vocabulary_size):
    """Build the models.

    Args:
        options: `Options`.
        source_vocabulary_size: Number of source ids.
        target_vocabulary_size: Number of target ids.

    Returns:
        `Models`.
    """
    kind = MODELS[options.model]
    source = keras.Input((None,), dtype="int32", name="source")
    target_input = keras.Input((None,), dtype="int32", name="target_input")
    target = keras.Input((None,), dtype="int32", name="target")
    inputs = {"source": source, "target_input": target_input, "target": target}
    source_mask, target_mask = ops.not_equal(source, PAD), ops.not_equal(target, PAD)

    source_embedding = _embedding(options, source_vocabulary_size, "source_embedding")
    target_embedding = _embedding(options, target_vocabulary_size, "target_embedding")
    source_dropout, target_dropout = (
        keras_vattn.fast.Dropout(options.network.dropout, seed=options.run.layer_seed(index), name=name)
        for index, name in ((1, "source_dropout"), (2, "target_dropout"))
    )
    memory = _recurrent_stack(options, "encoder", source_dropout(source_embedding(source)), source_mask, 7)
    # The training model is made of layers alone: Keras loses what two models inside of one share when it loads a file.
    encoder = keras.Model(source, memory, name="encoder")

    posterior, posterior_logits = None, None
    if kind.needs_posterior:
        of_source = _recurrent_stack(
            options, "inference_source", source_dropout(source_embedding(source)), source_mask, 9
        )
        # The target as it is, end included and not shifted: row j belongs to word j, which p has yet to predict.
        of_target = _recurrent_stack(
            options, "inference_target", target_dropout(target_embedding(target)), target_mask, 11
        )
        bilinear = keras_vattn.Bilinear(name="posterior_score", **_drawn(options, "kernel"))
        posterior_logits = bilinear(of_target, of_source)
        posterior = keras.Model({"source": source, "target": target}, posterior_logits, name="posterior")

    decoder = keras_vattn.AttentionDecoder(
        options.network.units,
        _attention(options, kind),
        num_layers=options.network.num_layers,
        query="current",
        feeding=kind.feeding,
        dropout=options.network.dropout,
        seed=options.run.layer_seed(3),
        name="decoder",
        **_drawn(options, "kernel", "recurrent", "bias"),
    )
    in_decoder = posterior_logits if kind.alignment is not None else None
    decoded = decoder(
        target_dropout(target_embedding(target_input)),
        memory,
        inputs_mask=target_mask,
        memory_mask=source_mask,
        posterior_logits=in_decoder,
        return_logits=True,
    )
    emission = Emission(options, target_vocabulary_size)
    latent = None
    if kind.objective is None:
        candidates = emission.value_projection(decoded["context"])[:, :, None]
        bound = emission.words(emission.hidden(decoded["query"], candidates), target)[..., 0]
    else:
        baseline = None if options.alignment.baseline == "none" else options.alignment.baseline
        objective = keras_vattn.LatentObjective(
            kind.objective, num_samples=kind.num_samples, baseline=baseline, tau=options.alignment.tau
        )
        latent = keras_vattn.CategoricalAttention(
            objective=objective,
            kl_annealing=_annealing(options, kind),
            seed=options.run.layer_seed(4),
            name="latent",
        )
        found = latent(
            decoded["query"],
            emission.value_projection(memory),
            query_mask=target_mask,
            value_mask=source_mask,
            posterior_logits=posterior_logits,
            logits=decoded["logits"],
        )
        log_likelihood = emission.words(
            emission.hidden(decoded["query"], found["candidates"]),
            target,
            candidates_mask=source_mask[:, None] if objective.in_training.estimator == "enumerate" else None,
        )
        value = keras_vattn.LatentLogLikelihood(objective, name="bound")
        bound = value(log_likelihood, found["log_prior"], found["log_posterior"])
    training = keras.Model(inputs, bound, name=options.model)
    return Models(training, encoder, decoder, latent, posterior, target_embedding, emission)


def _attention(options, kind):
    """Return the decoder's attention: it scores, and its weights are the distribution of a model that has one."""
    score = keras_vattn.Additive(
        options.network.attention_units, use_bias=False, name="score", **_drawn(options, "kernel")
    )
    if kind.alignment is None:
        return keras_vattn.DeterministicAttention(score, name="attention")
    drawn = options.alignment
    return keras_vattn.Attention(
        score,
        drawn.alignment(drawn.relaxed if kind.alignment == "relaxed" else kind.alignment, drawn.tau),
        prior=drawn.prior(kind.alignment) if kind.is_bayesian else None,
        warm_start_steps=drawn.warm_start if kind.needs_posterior else 0,
        kl_weight=drawn.kl_weight,
        kl_annealing=_annealing(options, kind),
        seed=options.run.layer_seed(4),
        name="attention",
    )


def _annealing(options, kind):
    """Return the annealing of the KL, or `None`: logistic for BAM, linear for models with a posterior."""
    if kind.is_bayesian:
        return options.alignment.annealing()
    steps = options.alignment.annealing_steps
    return keras_vattn.LinearAnnealing(steps) if kind.needs_posterior and steps else None


def _embedding(options, vocabulary_size, name):
    width = options.network.embedding_width
    return keras.layers.Embedding(vocabulary_size, width, name=name, **_drawn(options, "embeddings"))


def _recurrent_stack(options, name, embedded, mask, index):
    """Return the outputs (B, L, 2 * encoder_units) of stacked bidirectional LSTMs, with dropout between them."""
    outputs = embedded
    for number in range(options.network.num_layers):
        if number:
            seed = options.run.layer_seed(32 * number + index)
            dropout = keras_vattn.fast.Dropout(options.network.dropout, seed=seed, name=f"{name}_dropout_{number}")
            outputs = dropout(outputs)
        recurrent = keras_vattn.fast.LSTM(
            options.network.encoder_units,
            return_sequences=True,
            name=f"{name}_{number}",
            **_drawn(options, "kernel", "recurrent", "bias"),
        )
        outputs = keras.layers.Bidirectional(recurrent, name=f"{name}_bidirectional_{number}")(outputs, mask=mask)
    return outputs


def _drawn(options, *names):
    """Return the arguments `NAME_initializer` of a layer: U[-r, r], each with draws of its own, or none for r = 0, so
    that the layer's own hold."""
    limit = options.network.initial_range
    return {f"{name}_initializer": keras.initializers.RandomUniform(-limit, limit) for name in names} if limit else {}
