"""Build the variational encoder-decoders of Bahuleyan et al. 2018 with the functional API.

Training minimises the loss of eq. 8:

    -E_q[sum_j log p(y_j | y_<j, z, a_<=j)] + lambda_KL (KL(q(z | x) || p(z)) + gamma_a sum_j KL(q(a_j | x) || p(a_j)))

x is the source, y_j a target word, and z the latent variable of the sentence. a_j is the context vector that attention
computes for y_j. The KLs have the weights lambda_KL and gamma_a.

The model `ved_position` attends to a latent source position s (Deng et al. 2018). Its loss has no attention KL. x_s is
the encoder output at s, and the decoder reads the expected x_s. log p(y_j | ...) is

    log sum_s p(s) p(y_j | ..., x_s)    with `--objective marginal`
    sum_s p(s) log p(y_j | ..., x_s)    with `--objective hard`
"""

import dataclasses
import typing

import keras
from keras import ops

import keras_vattn
from applications.common.seeds import draw_initial_weights
from applications.text.text import PAD, START, UNKNOWN
from keras_vattn.losses import sequence_log_likelihood


class Model(typing.NamedTuple):
    """A model of Bahuleyan et al. 2018, or a variant with a different attention mechanism.

    Attributes:
        latent: Whether the model has a latent variable z.
        attention: Kind of attention:
            `None`: no attention.
            "deterministic": attention without random variables.
            "standard", "mean": a Gaussian context vector with this prior.
            "weibull", "lognormal", "dirichlet": random weights with this distribution.
            "position": a latent source position.
    """

    latent: bool
    attention: str | None


MODELS = {
    "ded": Model(False, None),
    "ded_dattn": Model(False, "deterministic"),
    "ved": Model(True, None),
    "ved_dattn": Model(True, "deterministic"),
    "ved_vattn_0": Model(True, "standard"),
    "ved_vattn_mean": Model(True, "mean"),
    "ved_wc": Model(True, "weibull"),
    "ved_lc": Model(True, "lognormal"),
    "ved_dirichlet": Model(True, "dirichlet"),
    "ved_position": Model(True, "position"),
}


class Output:
    """Computes logits = W_out W_att [h; a] from the decoder state h and the context vector a.

    W_att is stored as two kernels, one for h and one for a.
    """

    def __init__(self, options, vocabulary_size, attention):
        self.latent = None
        if attention != "position":
            self.out = keras.layers.Dense(vocabulary_size, name="out")
        else:
            # Training uses `latent`. Reports and decoding use `exact`, which sums over all positions.
            self.latent, self.exact = (
                keras_vattn.CategoricalAttention(objective=objective, seed=options.run.layer_seed(4), name=name)
                for objective, name in ((options.variational.objective, "position"), ("marginal", "exact"))
            )
            self.out = keras_vattn.TokenLogLikelihood(vocabulary_size, ignore_class=PAD, name="out")
            self.value = keras_vattn.LatentLogLikelihood(self.latent.objective, name="bound")
        self.projections = {
            name: keras.layers.Dense(options.network.attention_size, use_bias=False, name=f"{name}_projection")
            for name in (["hidden"] if attention is None else ["hidden", "context"])
        }

    def __call__(self, decoded):
        hidden, *context = (project(decoded[name]) for name, project in self.projections.items())
        return self.out(sum(context, hidden))

    def candidates(self, latent, decoded, values, mask):
        """Return W_att [h; x_s] (B, T, K, A) for K candidate positions s, and the outputs of `latent`.

        `latent` is a `CategoricalAttention`. `values` (B, S, A) is the projected memory.
        """
        latent_outputs = latent(decoded["hidden"], values, value_mask=mask, logits=decoded["logits"])
        return self.projections["hidden"](decoded["hidden"])[:, :, None] + latent_outputs["candidates"], latent_outputs

    def bound(self, decoded, memory, mask, target):
        """Return the training objective of each target word in nats, (B, T)."""
        hidden, latent_outputs = self.candidates(self.latent, decoded, self.projections["context"](memory), mask)
        is_enumerated = self.latent.objective.in_training.estimator == "enumerate"
        log_likelihood = self.out(hidden, target, candidates_mask=mask[:, None] if is_enumerated else None)
        return self.value(log_likelihood, latent_outputs["log_prior"], latent_outputs["log_posterior"])


@dataclasses.dataclass
class Models:
    """The training model and the submodels for decoding. These models share layers.

    Attributes:
        encoder: Maps source ids (B, S) to a dictionary with "memory" (B, S, D). Latent models add "z" (B, Z).
            Some models add the initial states of the decoder.
        decoder: The `AttentionDecoder`.
        target_embedding: The embedding of the target words.
        logits: The `Output` layer.
        training: Maps "source" (B, S) and "target_input" (B, T) to logits (B, T, V). For `ved_position`, the
            model also reads "target" (B, T), and returns the objective of each word in nats, (B, T).
    """

    encoder: keras.Model
    decoder: keras_vattn.AttentionDecoder
    target_embedding: keras.layers.Embedding
    logits: Output
    training: keras.Model | None = None

    def prepare(self, source, encoded):
        """Return the `memory` argument of the decoder's `step`, for all steps."""
        if self.decoder.attention is None:
            return self.decoder.prepare_memory()
        return self.decoder.prepare_memory(encoded["memory"], ops.not_equal(source, PAD))

    def start(self, source, encoded, memory):
        """Return the initial state of the decoder."""
        return self.decoder.start(ops.shape(source)[0], memory, initial_state_of(encoded))

    def log_likelihood(self, target_input, target, encoded, source):
        """Return log p(target | encoded) in nats, (B,). The attention ignores padding in `source` (B, S)."""
        decoded, logits = self.decode(source, encoded, self.target_embedding(target_input), target_input), self.logits
        if logits.latent is None:
            return sequence_log_likelihood(target, logits(decoded), ignore_class=PAD)
        values = logits.projections["context"](encoded["memory"])
        hidden, latent_outputs = logits.candidates(logits.exact, decoded, values, ops.not_equal(source, PAD))
        word_log_likelihoods = ops.logsumexp(latent_outputs["log_weights"] + logits.out(hidden, target), axis=-1)
        return ops.sum(ops.where(ops.not_equal(target, PAD), word_log_likelihoods, 0.0), axis=1)

    def decode(self, source, encoded, embedded, target_input):
        """Run the decoder over all target words, whose vectors are `embedded` (B, T, D)."""
        if "z" in encoded:
            # T is unknown when the model is built, so multiply z by T ones. Adding zeros (1, T, 1) could fail: Keras
            # 3.15 treats the zeros as a bias if T equals the width of z.
            repeated = ops.expand_dims(encoded["z"], 1) * ops.ones_like(embedded[..., :1])
            embedded = ops.concatenate([embedded, repeated], axis=-1)
        attends = self.decoder.attention is not None
        return self.decoder(
            embedded,
            encoded["memory"] if attends else None,
            initial_state=initial_state_of(encoded),
            inputs_mask=ops.not_equal(target_input, PAD),
            memory_mask=ops.not_equal(source, PAD) if attends else None,
            return_logits=self.logits.latent is not None,
        )

    def step_logits(self, source, encoded):
        """Return a function that maps the outputs of a decoder step to the logits (B, V) of the next word."""
        if self.logits.latent is None:
            return self.logits
        values, mask = self.logits.projections["context"](encoded["memory"]), ops.not_equal(source, PAD)

        def logits(outputs):
            decoded = {name: outputs[name][:, None] for name in ("hidden", "logits")}
            hidden, latent_outputs = self.logits.candidates(self.logits.exact, decoded, values, mask)
            return self.logits.out(hidden, log_weights=latent_outputs["log_weights"])[:, 0]

        return logits

    def step_inputs(self, ids, encoded):
        """Return the input of a decoder step, (B, D): the word vector, concatenated with z in a latent model."""
        embedded = self.target_embedding(ids)
        return ops.concatenate([embedded, encoded["z"]], axis=-1) if "z" in encoded else embedded


def initial_state_of(encoded):
    """Return the initial LSTM states of the decoder layers, or `None` to start from zeros."""
    return [encoded[name] for name in sorted(encoded) if name.startswith("state_")] or None


def build(options, codec):
    """Build the `Models`. The posterior of z reads only the source."""
    kind, network = MODELS[options.model], options.network
    num_layers = 3 if network.residual_stack else 1
    source = keras.Input((None,), dtype="int32", name="source")
    target_input = keras.Input((None,), dtype="int32", name="target_input")
    encoder = _encoder(options, codec, source, num_layers if network.initial_state or not kind.latent else 0)
    word_dropout = keras_vattn.WordDropout(
        network.word_dropout, UNKNOWN, protected_ids=(PAD, START), seed=options.run.layer_seed(1), name="word_dropout"
    )
    target_embedding = _embedding(options, codec.target.vocabulary_size, "target_embedding")
    decoder = keras_vattn.AttentionDecoder(
        network.units,
        _attention(options, kind.attention),
        num_layers=num_layers,
        residual=network.residual_stack,
        query="previous" if network.residual_stack else "current",
        feeding="sampled",
        name="decoder",
    )
    logits = Output(options, codec.target.vocabulary_size, kind.attention)
    models = Models(encoder, decoder, target_embedding, logits)
    encoded, inputs = encoder(source), {"source": source, "target_input": target_input}
    decoded = models.decode(source, encoded, target_embedding(word_dropout(target_input)), target_input)
    if logits.latent is not None:
        inputs["target"] = keras.Input((None,), dtype="int32", name="target")
        outputs = logits.bound(decoded, encoded["memory"], ops.not_equal(source, PAD), inputs["target"])
    else:
        outputs = logits(decoded)
    models.training = keras.Model(inputs, outputs, name=options.model)
    draw_initial_weights(models.training.layers, options.run.seed)
    return models


def _encoder(options, codec, source, num_states):
    """Return the encoder, with initial states for `num_states` decoder layers."""
    network, layer_seed = options.network, options.run.layer_seed
    embedded = _embedding(options, codec.source.vocabulary_size, "source_embedding")(source)
    dropout = keras_vattn.fast.Dropout(network.encoder_dropout, seed=layer_seed(2), name="encoder_dropout")
    recurrent = keras_vattn.fast.LSTM(
        network.encoder_units,
        return_sequences=True,
        return_state=True,
        use_cudnn=options.fit.use_cudnn,
        name="encoder_lstm",
    )
    bidirectional = keras.layers.Bidirectional(recurrent, name="bidirectional")
    memory, *states = bidirectional(dropout(embedded), mask=source != PAD)
    hidden, cell = (ops.concatenate(directions, axis=-1) for directions in (states[::2], states[1::2]))
    encoded = {"memory": memory}
    if MODELS[options.model].latent:
        latent = keras_vattn.GaussianLatent(
            network.latent_units,
            free_bits=options.variational.free_bits,
            kl_annealing=_annealing(options),
            seed=layer_seed(3),
            name="latent",
        )
        encoded["z"] = latent(hidden)
    for index in range(num_states):
        for name, state in ((f"state_{index}_0_hidden", hidden), (f"state_{index}_1_cell", cell)):
            encoded[name] = keras.layers.Dense(network.units, activation="tanh", name=name)(state)
    return keras.Model(source, encoded, name="encoder")


def _embedding(options, vocabulary_size, name):
    layer = keras.layers.Embedding(vocabulary_size, options.network.embedding_width, name=name)
    layer.trainable = options.text.train_embeddings or options.text.embeddings is None
    return layer


def _annealing(options):
    variational = options.variational
    return keras_vattn.LogisticAnnealing(
        variational.annealing_center, variational.annealing_slope, final_value=variational.annealing_end
    )


def _attention(options, kind):
    score = "additive" if options.network.residual_stack else "bilinear"
    if kind is None:
        return None
    if kind in ("deterministic", "position"):
        return keras_vattn.DeterministicAttention(score, name="attention")
    arguments = {
        "kl_weight": options.variational.gamma_a,
        "kl_annealing": _annealing(options),
        "seed": options.run.layer_seed(4),
        "name": "attention",
    }
    if kind in ("standard", "mean"):
        return keras_vattn.GaussianAttention(score, context_prior=kind, **arguments)
    return keras_vattn.Attention(score, options.drawn.alignment(kind), prior=options.drawn.prior(kind), **arguments)
