"""The language models of the paper, from one builder.

Shapes: B sentences, T words with the end, S words without, Z units of a latent variable, V words of the vocabulary.
"""

import dataclasses

import keras
from keras import ops

import keras_vattn
from applications.text.text import PAD, START, UNKNOWN
from applications.vrae.options import MODELS


@dataclasses.dataclass
class Models:
    """The training model, and its layers.

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

    embedding: keras.layers.Embedding
    word_dropout: keras_vattn.WordDropout
    input_dropout: keras_vattn.fast.Dropout
    encoder: keras_vattn.fast.LSTM | None
    latent: keras_vattn.GaussianLatent | None
    decoder: object
    words: keras_vattn.TokenLogLikelihood
    training: keras.Model | None = None

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


def build(options, vocabulary_size):
    """Build the models.

    Args:
        options: `Options`.
        vocabulary_size: V.

    Returns:
        `Models`.
    """
    kind, network, given = MODELS[options.model], options.network, options.variational
    sentence = {name: keras.Input((None,), dtype="int32", name=name) for name in ("source", "target_input", "target")}
    source, target_input, target = sentence.values()
    encoder, latent = None, None
    if kind.latent:
        encoder = keras_vattn.fast.LSTM(network.units, return_sequences=True, return_state=True, name="encoder")
        latent = _latent(
            options,
            "z_enc",
            3,
            given.annealing,
            hold=given.kl_hold,
            start=given.kl_start,
            steps=given.kl_steps,
            free_bits=given.free_bits,
        )
    models = Models(
        # The noise of latent variables is not to hide the words.
        keras.layers.Embedding(
            vocabulary_size,
            network.embedding_width,
            embeddings_initializer=keras.initializers.RandomUniform(-1.0, 1.0),
            name="words_embedded",
        ),
        keras_vattn.WordDropout(
            network.word_dropout,
            UNKNOWN,
            protected_ids=(PAD, START),
            seed=options.run.layer_seed(1),
            name="word_dropout",
        ),
        keras_vattn.fast.Dropout(network.input_dropout, seed=options.run.layer_seed(2), name="input_dropout"),
        encoder,
        latent,
        _decoder(options, kind),
        keras_vattn.TokenLogLikelihood(vocabulary_size, ignore_class=PAD, name="words"),
    )
    z, memory = None, None
    if kind.latent:
        memory, last = models.encode(source)
        z = latent(last)
    decoded = models.decode(target_input, target, z, memory, source)
    log_likelihood = models.words(decoded["hidden"][:, :, None], target)[..., 0]
    models.training = keras.Model(sentence, log_likelihood, name=options.model)
    return models


def _decoder(options, kind):
    network, given = options.network, options.variational
    if not kind.attention:
        return keras_vattn.AttentionDecoder(network.units, name="decoder")
    held = given.auxiliary_hold
    return keras_vattn.StochasticDecoder(
        network.units,
        _latent(
            options,
            "z",
            4,
            given.step_annealing,
            hold=0,
            start=given.step_kl_start,
            steps=given.step_kl_steps,
            free_bits=given.step_free_bits,
            initial_log_scale=given.step_log_scale,
        ),
        keras_vattn.DeterministicAttention("additive", name="attention"),
        keras_vattn.PredictedContext(
            network.units,
            min_log_scale=given.context_floor,
            kl_weight=given.auxiliary_weight if kind.auxiliary else 0.0,
            kl_annealing=keras_vattn.LinearAnnealing(1, start_step=held) if held else None,
            seed=options.run.layer_seed(5),
            name="context",
        ),
        name="decoder",
    )


def _latent(options, name, index, annealing, hold, start, steps, **values):
    schedule = {
        "none": lambda: None,
        "linear": lambda: keras_vattn.LinearAnnealing(steps, hold, initial_value=start),
        "logistic": lambda: keras_vattn.LogisticAnnealing(hold + steps, 10.0 / steps),
        "cyclical": lambda: keras_vattn.CyclicalAnnealing(steps),
    }[annealing]()
    return keras_vattn.GaussianLatent(
        options.network.latent_units, kl_annealing=schedule, seed=options.run.layer_seed(index), name=name, **values
    )
