"""Neural machine translation with a latent alignment (Deng et al. 2018, section 5); `build` builds every model.

x is the source and y_t a target word. z_t is the alignment of y_t. p is the prior of z_t. q is the inference network,
if any. Training maximises

    sum_t log p(y_t | E_p[z_t])                                                  soft
    sum_t log E_p[p(y_t | z_t)]                                                  marginal
    sum_t E_p[log p(y_t | z_t)]                                                  hard_enum, hard_sample
    sum_t E_q[log p(y_t | z_t)] - KL(q(z_t | x, y) || p(z_t | x, y_<t))          all other models

variational_wake_sleep instead maximises log p(y), by importance sampling from q. In wc, lc and dirichlet, z_t is a
weight vector. In gaussian_0 and gaussian_mean, z_t is a context vector. In these five models, q ignores y.
"""

import dataclasses
import math

import keras
from keras import ops

import keras_vattn
from applications.common.errors import InputError
from applications.common.seeds import draw_initial_weights
from applications.nmt.inference import Inference
from applications.text.text import PAD


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of Deng et al. 2018 or Fan et al. 2020, or a variant with a different attention mechanism.

    Attributes:
        title: Name of the model in the paper.
        value: Formula of the training objective, in the notation of the paper.
        expectation: Estimator of the expectation in `value`.
        objective: Name of the `keras_vattn.LatentObjective`; `None` if `alignment` is set.
        alignment: Distribution of random attention weights, or "gaussian" for random context vectors. `None` if
            `objective` is set.
        prior: Prior of the Gaussian context vector, "standard" or "mean".
        num_samples: Number of alignments that training samples for each word.
    """

    title: str
    value: str
    expectation: str
    objective: str | None = None
    alignment: str | None = None
    prior: str = "standard"
    num_samples: int = 1

    @property
    def needs_posterior(self):
        """Whether training uses an inference network that reads the target."""
        return self.alignment == "relaxed" or (self.objective or "").startswith(("elbo", "wake_sleep"))

    @property
    def is_continuous(self):
        return self.alignment is not None

    @property
    def is_bayesian(self):
        """Whether training samples the attention without an inference network. Predictions then use the mean."""
        return self.is_continuous and not self.needs_posterior

    @property
    def inference(self):
        """Default of `--inference`. Only the model `relaxed` samples (Deng et al. 2018)."""
        return "sample:10" if self.alignment == "relaxed" else self.inference_without_draws

    @property
    def inference_without_draws(self):
        """Value of `--inference` without samples, for exports and for translations during training."""
        return "soft" if self.objective == "soft" or self.is_continuous else "exact"

    def parse(self, name):
        """Return the `Inference` called `name`; raise `InputError` if the model does not support `name`."""
        if self.is_bayesian and name != "soft":
            raise InputError(f"--inference: {self.title} predicts with the mean attention; pass soft. Received: {name}")
        return Inference.parse(name, self.is_continuous)


# Title, value and expectation follow Table 1 of Deng et al. 2018 or, for BAM, eq. 6 of Fan et al. 2020. The last three
# models are in neither paper: they use Dirichlet weights, or the Gaussian context vector of Bahuleyan et al. 2018.
_ELBO, _VARIATIONAL = "E_q[log p] - KL", "Variational Attention"
_IMPORTANCE = "log p, importance sampled"
MODELS = {
    "soft": Model("Soft Attention", "log p(y | E[z])", "-", "soft"),
    "marginal": Model("Marginal Likelihood", "log E[p]", "Enum", "marginal"),
    "hard_enum": Model("Hard Attention", "E_p[log p]", "Enum", "hard/enumerate"),
    "hard_sample": Model("Hard Attention", "E_p[log p]", "Sample", "hard/sample"),
    "relaxed": Model("Variational Relaxed Attention", _ELBO, "Sample", alignment="relaxed"),
    "variational_enum": Model(_VARIATIONAL, _ELBO, "Enum", "elbo/enumerate"),
    "variational_sample": Model(_VARIATIONAL, _ELBO, "Sample", "elbo/sample"),
    "variational_gumbel": Model(_VARIATIONAL, _ELBO, "Gumbel-softmax", "elbo/gumbel"),
    "variational_wake_sleep": Model(_VARIATIONAL, _IMPORTANCE, "Wake-sleep", "wake_sleep/sample", num_samples=5),
    "wc": Model("BAM-WC", _ELBO, "Sample", alignment="weibull"),
    "lc": Model("BAM-LC", _ELBO, "Sample", alignment="lognormal"),
    "dirichlet": Model("Dirichlet Attention", _ELBO, "Sample", alignment="dirichlet"),
    "gaussian_0": Model("Gaussian Attention, prior 0", _ELBO, "Sample", alignment="gaussian"),
    "gaussian_mean": Model("Gaussian Attention, prior mean", _ELBO, "Sample", alignment="gaussian", prior="mean"),
}


class Emission:
    """Computes p(y | h, x) = softmax W_v dropout(tanh(W_h h + W_x x + b)) for each candidate x.

    h is the decoder state. A candidate x is the encoder state at a source position or, with `--emission words`, the
    vector of the source word. All candidates of a word share one dropout mask.
    """

    def __init__(self, options, vocabulary_size):
        units, kernel = options.network.units, _initializers(options, "kernel")
        # The first `embedding_width` entries of a memory vector are the source word vector.
        self._width = options.network.embedding_width if options.resolved["emission"] == "words" else None
        self.query_projection = keras.layers.Dense(
            units, name="query_projection", **_initializers(options, "kernel", "bias")
        )
        self._value_projection = keras.layers.Dense(units, use_bias=False, name="value_projection", **kernel)
        self.dropout = keras_vattn.fast.Dropout(
            options.network.dropout,
            noise_shape=(None, None, 1, None),
            seed=options.run.layer_seed(5),
            name="emission_dropout",
        )
        self.words = keras_vattn.TokenLogLikelihood(
            vocabulary_size, ignore_class=PAD, name="words", **_initializers(options, "kernel", "bias")
        )

    def projected(self, memory):
        """Multiply memory vectors or contexts (..., D) by the kernel W_x; return (..., units)."""
        return self._value_projection(memory if self._width is None else memory[..., : self._width])

    def hidden(self, query, candidates):
        """Return dropout(tanh(W_h h + b + candidates)), (B, T, K, units). h is `query`."""
        return self.dropout(ops.tanh(self.query_projection(query)[:, :, None] + candidates))


@dataclasses.dataclass
class Models:
    """The training model and the submodels for decoding. These models share layers.

    Attributes:
        training: Maps "source" (B, S), "target_input" (B, T) and "target" (B, T) to the objective of each target
            word in nats, (B, T), without the KL.
        encoder: Maps source ids (B, S) to the memory (B, S, D).
        decoder: The `AttentionDecoder`. Its attention computes the scores and the expected context under the prior p.
        latent: The `CategoricalAttention`, or `None` if the decoder samples attention weights or contexts.
        posterior: Maps "source" and "target" to posterior logits (B, T, S); `None` without an inference network.
        target_embedding: The embedding of the target words, without dropout.
        target_dropout: The dropout of the target embedding.
        emission: The `Emission`.
    """

    training: keras.Model
    encoder: keras.Model
    decoder: keras_vattn.AttentionDecoder
    latent: keras_vattn.CategoricalAttention | None
    posterior: keras.Model | None
    target_embedding: keras.layers.Embedding
    target_dropout: keras.layers.Layer
    emission: Emission

    @property
    def parameters(self):
        """Parameter counts: "generative", and "inference" for weights of only the inference network."""
        generative = sum(math.prod(weight.shape) for weight in self.generative)
        total = sum(math.prod(weight.shape) for weight in self.training.trainable_weights)
        return {"generative": generative, "inference": total - generative}

    @property
    def generative(self):
        """Trainable weights of the generative model, including weights shared with the inference network."""
        shared = {weight.path for weight in (*self.encoder.weights, *self.target_embedding.weights)}
        posterior_weights = () if self.posterior is None else self.posterior.trainable_weights
        inference = {weight.path for weight in posterior_weights} - shared
        return [weight for weight in self.training.trainable_weights if weight.path not in inference]


def build(options, codec):
    """Build the `Models`."""
    # Do not nest models in the training model. After loading from a file, nested models would not share layers.
    kind, network, alignment = MODELS[options.model], options.network, options.alignment
    layer_seed = options.run.layer_seed
    source, target_input, target = (
        keras.Input((None,), dtype="int32", name=name) for name in ("source", "target_input", "target")
    )
    source_mask, target_mask = ops.not_equal(source, PAD), ops.not_equal(target, PAD)

    source_embedding, target_embedding = (
        keras.layers.Embedding(side.vocabulary_size, network.embedding_width, name=name, **_word_initializer(options))
        for side, name in ((codec.source, "source_embedding"), (codec.target, "target_embedding"))
    )
    source_dropout, target_dropout = (
        keras_vattn.fast.Dropout(network.dropout, seed=layer_seed(index), name=name)
        for index, name in ((1, "source_dropout"), (2, "target_dropout"))
    )

    words = source_dropout(source_embedding(source))
    memory = _recurrent_stack(options, "encoder", words, source_mask, 7)
    if options.resolved["emission"] == "words":
        memory = ops.concatenate([words, memory], axis=-1)
    encoder = keras.Model(source, memory, name="encoder")

    posterior, posterior_logits = None, None
    if kind.needs_posterior:
        words = source_dropout(source_embedding(source))
        source_states = _recurrent_stack(options, "inference_source", words, source_mask, 9)
        # Do not shift the target: state j must encode word j, which p predicts at step j.
        words = target_dropout(target_embedding(target))
        target_states = _recurrent_stack(options, "inference_target", words, target_mask, 11)
        bilinear = keras_vattn.Bilinear(name="posterior_score", **_initializers(options, "kernel"))
        posterior_logits = bilinear(target_states, source_states)
        posterior = keras.Model({"source": source, "target": target}, posterior_logits, name="posterior")

    decoder = keras_vattn.AttentionDecoder(
        network.units,
        _attention(options, kind),
        num_layers=network.num_layers,
        query="current",
        # Fan et al. 2020 feed the sampled context, Deng et al. 2018 the expected context.
        feeding="sampled" if kind.is_bayesian else "expected",
        dropout=network.dropout,
        seed=layer_seed(3),
        name="decoder",
        **_initializers(options, "kernel", "recurrent", "bias"),
    )
    decoded = decoder(
        target_dropout(target_embedding(target_input)),
        memory,
        inputs_mask=target_mask,
        memory_mask=source_mask,
        posterior_logits=None if kind.alignment is None else posterior_logits,
        return_logits=True,
    )

    emission, latent = Emission(options, codec.target.vocabulary_size), None
    if kind.objective is None:
        candidates = emission.projected(decoded["context"])[:, :, None]
        bound = emission.words(emission.hidden(decoded["query"], candidates), target)[..., 0]
    else:
        baseline = None if alignment.baseline == "none" else alignment.baseline
        objective = keras_vattn.LatentObjective(
            kind.objective, num_samples=kind.num_samples, baseline=baseline, tau=alignment.tau
        )
        latent = keras_vattn.CategoricalAttention(
            objective=objective, kl_annealing=_annealing(options, kind), seed=layer_seed(4), name="latent"
        )
        latent_outputs = latent(
            decoded["query"],
            emission.projected(memory),
            query_mask=target_mask,
            value_mask=source_mask,
            posterior_logits=posterior_logits,
            logits=decoded["logits"],
        )
        log_likelihood = emission.words(
            emission.hidden(decoded["query"], latent_outputs["candidates"]),
            target,
            candidates_mask=source_mask[:, None] if objective.in_training.estimator == "enumerate" else None,
        )
        value = keras_vattn.LatentLogLikelihood(objective, name="bound")
        bound = value(log_likelihood, latent_outputs["log_prior"], latent_outputs["log_posterior"])
    inputs = {"source": source, "target_input": target_input, "target": target}
    training = keras.Model(inputs, bound, name=options.model)
    draw_initial_weights(training.layers, options.run.seed)
    return Models(training, encoder, decoder, latent, posterior, target_embedding, target_dropout, emission)


def _attention(options, kind):
    alignment, kernel = options.alignment, _initializers(options, "kernel")
    score = keras_vattn.Additive(options.network.attention_units, use_bias=False, name="score", **kernel)
    if kind.alignment is None:
        return keras_vattn.DeterministicAttention(score, name="attention")
    arguments = {
        "kl_weight": alignment.kl_weight,
        "kl_annealing": _annealing(options, kind),
        "seed": options.run.layer_seed(4),
        "name": "attention",
    }
    if kind.alignment == "gaussian":
        return keras_vattn.GaussianAttention(score, context_prior=kind.prior, **arguments)
    return keras_vattn.Attention(
        score,
        alignment.alignment(alignment.relaxed if kind.alignment == "relaxed" else kind.alignment, alignment.tau),
        prior=alignment.prior(kind.alignment) if kind.is_bayesian else None,
        warm_start_steps=alignment.warm_start if kind.needs_posterior else 0,
        **arguments,
    )


def _annealing(options, kind):
    if kind.is_bayesian:
        return options.alignment.annealing()
    return options.alignment.annealing_of_posterior() if kind.needs_posterior else None


def _recurrent_stack(options, name, outputs, mask, index):
    """Apply stacked bidirectional LSTMs with dropout between layers; return (B, L, 2 * encoder_units)."""
    for number in range(options.network.num_layers):
        if number:
            seed = options.run.layer_seed(32 * number + index)
            dropout = keras_vattn.fast.Dropout(options.network.dropout, seed=seed, name=f"{name}_dropout_{number}")
            outputs = dropout(outputs)
        recurrent = keras_vattn.fast.LSTM(
            options.network.encoder_units,
            return_sequences=True,
            use_cudnn=options.fit.use_cudnn,
            name=f"{name}_{number}",
            **_initializers(options, "kernel", "recurrent", "bias"),
        )
        outputs = keras.layers.Bidirectional(recurrent, name=f"{name}_bidirectional_{number}")(outputs, mask=mask)
    return outputs


def _word_initializer(options):
    if options.resolved["emission"] == "words" and not options.network.initial_range:
        # With Keras's small default, words with similar initial vectors can permanently swap alignments.
        return {"embeddings_initializer": keras.initializers.RandomNormal(stddev=0.3)}
    return _initializers(options, "embeddings")


def _initializers(options, *names):
    """Return arguments `NAME_initializer`, uniform up to `initial_range`, or {} if the range is 0."""
    limit = options.network.initial_range
    return {f"{name}_initializer": keras.initializers.RandomUniform(-limit, limit) for name in names} if limit else {}
