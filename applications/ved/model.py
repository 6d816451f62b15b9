"""The variational encoder-decoder of Bahuleyan et al. 2018, all models from one builder, by the functional API."""

import dataclasses

import keras
from keras import ops

import keras_vattn
from applications.text.text import PAD, START, UNKNOWN
from applications.ved.options import MODELS


@dataclasses.dataclass
class Models:
    """The training model and the pieces of it that decoding uses; all share their layers.

    Attributes:
        training: {"source" (B, S), "target_input" (B, T)} -> logits (B, T, V).
        encoder: source (B, S) -> dictionary with memory (B, S, D), and where the row has them z (B, Z) and the initial
            state's h, c.
        decoder: The `AttentionDecoder`.
    """

    training: keras.Model
    encoder: keras.Model
    decoder: keras_vattn.AttentionDecoder
    target_embedding: keras.layers.Embedding
    logits: object

    def set_embeddings(self, source_matrix, target_matrix):
        """Put pretrained vectors, (V, D) each, in the place of the initial ones."""
        self.encoder.get_layer("source_embedding").embeddings.assign(source_matrix)
        self.target_embedding.embeddings.assign(target_matrix)

    def prepare(self, source, encoded):
        """Return the decoder's memory for encoded sources: what every step needs of them."""
        if self.decoder.attention is None:
            return self.decoder.prepare_memory()
        return self.decoder.prepare_memory(encoded["memory"], ops.not_equal(source, PAD))

    def start(self, source, encoded, memory):
        """Return the decoder's first state."""
        initial_state = [encoded[name] for name in sorted(encoded) if name.startswith("state_")] or None
        return self.decoder.start(ops.shape(source)[0], memory, initial_state)

    def step_inputs(self, ids, encoded):
        """Return the decoder's input (B, D) of one step: the embedded word, and z."""
        embedded = self.target_embedding(ids)
        return ops.concatenate([embedded, encoded["z"]], axis=-1) if "z" in encoded else embedded


def build(options, source_vocabulary_size, target_vocabulary_size):
    """Build the models.

    Args:
        options: `Options`.
        source_vocabulary_size: Number of source ids.
        target_vocabulary_size: Number of target ids.

    Returns:
        `Models`. q(z | x) sees the source alone.
    """
    parts = MODELS[options.model]
    attention = _attention(options, parts)
    source = keras.Input((None,), dtype="int32", name="source")
    encoder = keras.Model(source, _encode(options, parts, source, source_vocabulary_size), name="encoder")

    target_input = keras.Input((None,), dtype="int32", name="target_input")
    words = keras_vattn.WordDropout(
        options.network.word_dropout,
        UNKNOWN,
        protected_ids=(PAD, START),
        seed=options.run.layer_seed(1),
        name="word_dropout",
    )(target_input)
    target_embedding = _embedding(options, target_vocabulary_size, "target_embedding")
    encoded = encoder(source)
    inputs = target_embedding(words)
    if parts.latent:
        # z is part of every step's input; a product with ones repeats it over a length that is not known here. A sum
        # with zeros does not always: Keras 3.15 takes (1, T, 1) for a bias if T is the width of z.
        repeated = ops.expand_dims(encoded["z"], 1) * ops.ones_like(inputs[..., :1])
        inputs = ops.concatenate([inputs, repeated], axis=-1)
    decoder = _decoder(options, parts, attention)
    decoded = decoder(
        inputs,
        encoded["memory"] if attention is not None else None,
        initial_state=[encoded[name] for name in sorted(encoded) if name.startswith("state_")] or None,
        inputs_mask=ops.not_equal(target_input, PAD),
        memory_mask=ops.not_equal(source, PAD) if attention is not None else None,
    )
    logits = _output(options, attention, target_vocabulary_size)
    model = keras.Model({"source": source, "target_input": target_input}, logits(decoded), name=options.model)
    return Models(model, encoder, decoder, target_embedding, logits)


def _encode(options, parts, source, vocabulary_size):
    embedded = _embedding(options, vocabulary_size, "source_embedding")(source)
    if options.network.encoder_dropout:
        embedded = keras_vattn.fast.Dropout(
            options.network.encoder_dropout, seed=options.run.layer_seed(2), name="encoder_dropout"
        )(embedded)
    recurrent = keras_vattn.fast.LSTM(
        options.network.encoder_units, return_sequences=True, return_state=True, name="encoder_lstm"
    )
    outputs = keras.layers.Bidirectional(recurrent, name="bidirectional")(embedded, mask=ops.not_equal(source, PAD))
    memory, forward_hidden, forward_cell, backward_hidden, backward_cell = outputs
    hidden = ops.concatenate([forward_hidden, backward_hidden], axis=-1)
    cell = ops.concatenate([forward_cell, backward_cell], axis=-1)
    encoded = {"memory": memory}
    if parts.latent:
        encoded["z"] = keras_vattn.GaussianLatent(
            options.network.latent_units,
            free_bits=options.variational.free_bits,
            kl_annealing=_annealing(options),
            seed=options.run.layer_seed(3),
            name="latent",
        )(hidden)
    if parts.initial_state:
        for index in range(3 if parts.residual_stack else 1):
            names = (f"state_{index}_0_hidden", f"state_{index}_1_cell")
            for name, final in zip(names, (hidden, cell), strict=True):
                encoded[name] = keras.layers.Dense(options.network.units, activation="tanh", name=name)(final)
    return encoded


def _embedding(options, vocabulary_size, name):
    layer = keras.layers.Embedding(vocabulary_size, options.network.embedding_width, name=name)
    layer.trainable = options.text.train_embeddings or options.text.embeddings is None
    return layer


def _annealing(options):
    return keras_vattn.LogisticAnnealing(
        options.variational.annealing_center,
        options.variational.annealing_slope,
        final_value=options.variational.annealing_end,
    )


def _attention(options, parts):
    if parts.attention is None:
        return None
    score = "additive" if parts.residual_stack else "bilinear"
    if parts.attention == "deterministic":
        return keras_vattn.DeterministicAttention(score, name="attention")
    return keras_vattn.GaussianAttention(
        score,
        context_prior=parts.prior,
        kl_weight=options.variational.gamma_a,
        kl_annealing=_annealing(options),
        seed=options.run.layer_seed(4),
        name="attention",
    )


def _decoder(options, parts, attention):
    previous = parts.residual_stack or options.network.decoder_form == "printed"
    return keras_vattn.AttentionDecoder(
        options.network.units,
        attention,
        num_layers=3 if parts.residual_stack else 1,
        residual=parts.residual_stack,
        query="previous" if previous else "current",
        feeding="sampled",
        name="decoder",
    )


def _output(options, attention, vocabulary_size):
    """Return the function from the decoder's result to logits: W_out W_att [h; a], or W_out h for the printed form."""
    out = keras.layers.Dense(vocabulary_size, name="out")
    if options.network.decoder_form == "printed":
        return lambda decoded: out(decoded["hidden"])
    hidden_projection = keras.layers.Dense(options.network.attention_size, use_bias=False, name="hidden_projection")
    context_projection = keras.layers.Dense(options.network.attention_size, use_bias=False, name="context_projection")

    def logits(decoded):
        joined = hidden_projection(decoded["hidden"])
        if attention is not None:
            joined = joined + context_projection(decoded["context"])
        return out(joined)

    return logits
