"""The language models of the paper.

Shapes: B sentences, T words with the end, S words without, Z units of a latent variable, V words of the vocabulary.
"""

import keras
from keras import ops

import keras_vattn
from applications.text.text import PAD, START, UNKNOWN
from applications.vrae.options import MODELS


class Models:
    """The training model, and its layers.

    Args:
        options: `Options`.
        vocabulary_size: V.

    Attributes:
        training: {"source" (B, S), "target_input" (B, T), "target" (B, T)} -> log p (B, T) in nats of the words of
            `target`, which are those of `target_input` one step earlier, and those of `source` with their end.
        embedding: The words' vectors, of encoder and decoder.
        word_dropout, input_dropout: Of what the decoder reads.
        encoder: The LSTM, or `None` of the model lstm.
        latent: The `GaussianLatent` of z_enc, or `None`.
        decoder: `StochasticDecoder`, or an `AttentionDecoder` without attention.
        words: `TokenLogLikelihood`.
    """

    def __init__(self, options, vocabulary_size):
        # Layers.
        kind, network, given, seed = MODELS[options.model], options.network, options.variational, options.run.layer_seed
        self.encoder = self.latent = None
        if kind.latent:
            self.encoder = keras_vattn.fast.LSTM(
                network.units, return_sequences=True, return_state=True, name="encoder"
            )
            schedule = annealed(given.annealing, given.kl_start, given.kl_hold, given.kl_steps)
            self.latent = keras_vattn.GaussianLatent(
                network.latent_units, free_bits=given.free_bits, kl_annealing=schedule, seed=seed(3), name="z_enc"
            )
        # The noise of latent variables is not to hide the words.
        uniform = keras.initializers.RandomUniform(-1.0, 1.0)
        self.embedding = keras.layers.Embedding(
            vocabulary_size, network.embedding_width, embeddings_initializer=uniform, name="words_embedded"
        )
        self.word_dropout = keras_vattn.WordDropout(
            network.word_dropout, UNKNOWN, protected_ids=(PAD, START), seed=seed(1), name="word_dropout"
        )
        self.input_dropout = keras_vattn.fast.Dropout(network.input_dropout, seed=seed(2), name="input_dropout")
        self.decoder = _decoder(options, kind)
        self.words = keras_vattn.TokenLogLikelihood(vocabulary_size, ignore_class=PAD, name="words")
        # The functional graph.
        sentence = {x: keras.Input((None,), dtype="int32", name=x) for x in ("source", "target_input", "target")}
        source, target_input, target = sentence.values()
        z = memory = None
        if kind.latent:
            memory, last = self.encode(source)
            z = self.latent(last)
        decoded = self.decode(target_input, target, z, memory, source)
        log_likelihood = self.words(decoded["hidden"][:, :, None], target)[..., 0]
        self.training = keras.Model(sentence, log_likelihood, name=options.model)

    def encode(self, source):
        """Return the encoder's states of source (B, S): all of them (B, S, units), and the last (B, units)."""
        memory, last, _ = self.encoder(self.embedding(source), mask=ops.not_equal(source, PAD))
        return memory, last

    def inputs(self, target_input, z=None):
        """Return what the decoder reads, (B, T, D): words, and z_enc (B, Z) beside each where the model has it."""
        read = self.input_dropout(self.embedding(self.word_dropout(target_input)))
        if z is None:
            return read
        # A product with ones repeats it over a length that is not known here.
        z = ops.expand_dims(ops.cast(z, read.dtype), 1)
        return ops.concatenate([read, z * ops.ones_like(read[..., :1])], axis=-1)

    def decode(self, target_input, target, z=None, memory=None, source=None, **asked):
        """Return what the decoder gives of target_input and target (B, T), z_enc, and the encoder's states of source,
        where it attends; without these it goes by its priors."""
        attended = {}
        if self.attends and memory is not None:
            attended = {"memory": memory, "memory_mask": ops.not_equal(source, PAD)}
        return self.decoder(self.inputs(target_input, z), **attended, inputs_mask=ops.not_equal(target, PAD), **asked)

    @property
    def attends(self):
        return isinstance(self.decoder, keras_vattn.StochasticDecoder)

    @property
    def parameters(self):
        """Numbers of parameters: of p, and of q alone."""
        found, own = {"generative": 0, "inference": 0}, {id(weight) for weight in self.inference_weights}
        for weight in self.training.trainable_weights:
            found["inference" if id(weight) in own else "generative"] += weight.value.shape.num_elements()
        return found

    @property
    def inference_weights(self):
        """The weights of q alone."""
        layers = [self.encoder, self.latent]
        if self.attends:
            layers += [self.decoder.attention, self.decoder.latent]
        return [weight for layer in layers if layer is not None for weight in layer.trainable_weights]


def _decoder(options, kind):
    network, given, seed = options.network, options.variational, options.run.layer_seed
    if not kind.attention:
        return keras_vattn.AttentionDecoder(network.units, name="decoder")
    latent = keras_vattn.GaussianLatent(
        network.latent_units,
        free_bits=given.step_free_bits,
        initial_log_scale=given.step_log_scale,
        kl_annealing=annealed(given.step_annealing, given.step_kl_start, 0, given.step_kl_steps),
        seed=seed(4),
        name="z",
    )
    attention, held = keras_vattn.DeterministicAttention("additive", name="attention"), given.auxiliary_hold
    context = keras_vattn.PredictedContext(
        network.units,
        min_log_scale=given.context_floor,
        kl_weight=given.auxiliary_weight if kind.auxiliary else 0.0,
        kl_annealing=keras_vattn.LinearAnnealing(1, start_step=held) if held else None,
        seed=seed(5),
        name="context",
    )
    return keras_vattn.StochasticDecoder(network.units, latent, attention, context, name="decoder")


def annealed(form, start, hold, steps):
    """Return the weight of a KL over the steps, or `None` for 1."""
    if form == "linear":
        return keras_vattn.LinearAnnealing(steps, hold, initial_value=start)
    if form == "logistic":
        return keras_vattn.LogisticAnnealing(hold + steps, 10.0 / steps)
    return keras_vattn.CyclicalAnnealing(steps) if form == "cyclical" else None
