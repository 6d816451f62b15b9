"""Build the language models of Chien and Wang 2019 (VRAE-SA).

    h_t = LSTM(h_{t-1}, [x_{t-1}; z_enc; z_t; c~_t]),  log p(x | z) = sum_t log softmax(W h_t)[x_t]
    loss = -log p(x | z) + a(step) KL(q(z_enc | x) || N(0, I))
           + b(step) sum_t KL(q(z_t | h_{t-1}, c_t) || p(z_t | h_{t-1})) - alpha sum_t log p(c_t | z_t)

The formulas describe the model `vrae_sa_aux`. c_t is the attended context, c~_t is a sample of p(c | z_t), and a and b
are annealing schedules. `vrae_sa` has no alpha term, `vrae` has no z_t, and `lstm` has neither z_enc nor z_t. Here,
p(x | z) is a softmax, because words are categorical. Equations 14 and 17 of the paper use a Gaussian.

With `--informed both`, c~_t is sampled from q(c~_t | c_t) = N(c_t, sigma_t^2), where sigma_t is the standard deviation
of p(c | z_t). The last term of the loss becomes b(step) sum_t KL(q(c~_t | c_t) || p(c~_t | z_t)). Without this KL, the
decoder could read future words from c_t without a penalty, and the loss would not be a bound on the likelihood.

Shapes: B sentences, T words with the end token, S words without it, Z latent units, V words in the vocabulary.
"""

import dataclasses
import math

import keras
from keras import ops

import keras_vattn
from applications.common.seeds import draw_initial_weights
from applications.text.text import PAD, START, UNKNOWN


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of Chien and Wang 2019.

    Attributes:
        latent: Whether z_enc encodes the sentence.
        attention: Whether the decoder attends to the sentence and samples z_t.
        auxiliary: Whether an additional loss trains z_t to predict the attended vector.
    """

    title: str
    latent: bool = True
    attention: bool = False
    auxiliary: bool = False


MODELS = {
    "lstm": Model("LSTM", latent=False),
    "vrae": Model("VRAE"),
    "vrae_sa": Model("VRAE-SA w/o aux", attention=True),
    "vrae_sa_aux": Model("VRAE-SA w aux", attention=True, auxiliary=True),
}


@dataclasses.dataclass
class Models:
    """The layers of a model, and the training model built from these layers.

    Attributes:
        embedding: The word embedding, shared by encoder and decoder.
        word_dropout, input_dropout: Dropout of the decoder's input.
        encoder, latent: The encoder, and the layer that samples z_enc; `None` for the model `lstm`.
        decoder: A `StochasticDecoder` or, for models without attention, a plain `AttentionDecoder`.
        words: A `TokenLogLikelihood`.
        training: Maps "source" (B, S), "target_input" (B, T) and "target" (B, T) to log p of each target word in nats,
            (B, T). "source" is the target without the end token. "target_input" is the target, shifted by one step.
    """

    embedding: keras.Layer
    word_dropout: keras.Layer
    input_dropout: keras.Layer
    encoder: keras.Layer | None
    latent: keras.Layer | None
    decoder: keras.Layer
    words: keras.Layer
    training: keras.Model | None = None

    @property
    def attends(self):
        return isinstance(self.decoder, keras_vattn.StochasticDecoder)

    def encode(self, source):
        """Return all encoder states (B, S, units) and the last state (B, units)."""
        memory, last, _ = self.encoder(self.embedding(source), mask=ops.not_equal(source, PAD))
        return memory, last

    def inputs(self, target_input, z=None):
        """Return the decoder's inputs (B, T, D): word vectors, followed by z_enc (B, Z) if `z` is given."""
        embedded = self.input_dropout(self.embedding(self.word_dropout(target_input)))
        if z is None:
            return embedded
        # T may be unknown, so multiply z by T ones.
        z = ops.expand_dims(ops.cast(z, embedded.dtype), 1)
        return ops.concatenate([embedded, z * ops.ones_like(embedded[..., :1])], axis=-1)

    def decode(self, target_input, target, z=None, memory=None, source=None, **options):
        """Run the decoder over `target_input` (B, T). Without `memory`, z_t and c~_t use their priors."""
        context = {}
        if self.attends and memory is not None:
            context = {"memory": memory, "memory_mask": ops.not_equal(source, PAD)}
        return self.decoder(self.inputs(target_input, z), **context, inputs_mask=ops.not_equal(target, PAD), **options)

    @property
    def parameters(self):
        """Parameter counts: "generative" for p, "inference" for the parameters that only q uses."""
        total, inference = (
            sum(math.prod(weight.shape) for weight in weights)
            for weights in (self.training.trainable_weights, self.inference_weights)
        )
        return {"generative": total - inference, "inference": inference}

    @property
    def inference_weights(self):
        """Trainable weights of the inference network q."""
        layers = [self.encoder, self.latent]
        if self.attends:
            layers += [self.decoder.attention, self.decoder.latent]
        return [weight for layer in layers if layer is not None for weight in layer.trainable_weights]


def build(options, codec):
    """Build the `Models` for the options and the codec of a run."""
    kind, network, seed, kl = MODELS[options.model], options.network, options.run.layer_seed, options.variational
    encoder = latent = None
    if kind.latent:
        states = {"return_sequences": True, "return_state": True, "use_cudnn": options.fit.use_cudnn}
        encoder = keras_vattn.fast.LSTM(network.units, name="encoder", **states)
        schedule = annealed(kl.annealing, kl.kl_start, kl.kl_hold, kl.kl_steps)
        latent = keras_vattn.GaussianLatent(
            network.latent_units, free_bits=kl.free_bits, kl_annealing=schedule, seed=seed(3), name="z_enc"
        )
    # Smaller word vectors would be hard to tell from the noise of the latent variables.
    uniform = keras.initializers.RandomUniform(-1.0, 1.0)
    embedding = keras.layers.Embedding(
        codec.vocabulary_size, network.embedding_width, embeddings_initializer=uniform, name="words_embedded"
    )
    word_dropout = keras_vattn.WordDropout(
        network.word_dropout, UNKNOWN, protected_ids=(PAD, START), seed=seed(1), name="word_dropout"
    )
    input_dropout = keras_vattn.fast.Dropout(network.input_dropout, seed=seed(2), name="input_dropout")
    plain = keras_vattn.AttentionDecoder
    decoder = stochastic_decoder(options) if kind.attention else plain(network.units, name="decoder")
    words = keras_vattn.TokenLogLikelihood(codec.vocabulary_size, ignore_class=PAD, name="words")
    models = Models(embedding, word_dropout, input_dropout, encoder, latent, decoder, words)
    sentence = {name: keras.Input((None,), dtype="int32", name=name) for name in ("source", "target_input", "target")}
    source, target_input, target = sentence.values()
    z = memory = None
    if kind.latent:
        memory, last = models.encode(source)
        z = latent(last)
    decoded = models.decode(target_input, target, z, memory, source)
    log_likelihood = words(decoded["hidden"][:, :, None], target)[..., 0]
    if memory is None:
        # Keras 3.12 rejects a model with an unused input, so add zeros that depend on `source`.
        log_likelihood += ops.cast(ops.zeros_like(source[:, :1]), log_likelihood.dtype)
    models.training = keras.Model(sentence, log_likelihood, name=options.model)
    draw_initial_weights(models.training.layers, options.run.seed)
    return models


def stochastic_decoder(options):
    """Build the decoder that samples z_t at every step."""
    network, variational, seed = options.network, options.variational, options.run.layer_seed
    informs_latent, informs_context = variational.informed != "none", variational.informed == "both"
    schedule = annealed(variational.step_annealing, variational.step_kl_start, 0, variational.step_kl_steps)
    latent = keras_vattn.GaussianLatent(
        network.latent_units,
        free_bits=variational.step_free_bits,
        free_nats=variational.step_free_nats,
        initial_log_scale=variational.step_log_scale,
        kl_annealing=schedule,
        seed=seed(4),
        name="z",
    )
    attention, hold = keras_vattn.DeterministicAttention("additive", name="attention"), variational.auxiliary_hold
    # With `--informed none`, the loss has no gradient for the attention.
    attention.trainable = informs_latent
    weight = variational.auxiliary_weight if MODELS[options.model].auxiliary else 0.0
    if informs_context:
        weight = 1.0
    else:
        schedule = keras_vattn.LinearAnnealing(1, start_step=hold) if hold else None
    context = keras_vattn.PredictedContext(
        network.units,
        min_log_scale=variational.context_floor,
        kl_weight=weight,
        kl_annealing=schedule,
        informed=informs_context,
        seed=seed(5),
        name="context",
    )
    return keras_vattn.StochasticDecoder(
        network.units, latent, attention, context, informed=informs_latent, name="decoder"
    )


def annealed(form, start, hold, steps):
    """Return the annealing schedule of a KL weight, or `None` for a constant weight of 1."""
    return keras_vattn.LinearAnnealing(steps, hold, initial_value=start) if form == "linear" else None
