"""Build Att2in (Rennie et al. 2017), with attention as in Xu et al. 2015, Deng et al. 2018 or Fan et al. 2020.

For word y_t of a caption, h_t is the state of the LSTM, x_r are the features of region r, and p(r) is the attention:

    p(r) = softmax_r w^T tanh(W_1 h_{t-1} + W_2 x_r)

Each model maximises one of these objectives:

    soft         sum_t log p(y_t | h_t), h_t = LSTM(y_{t-1}, E_p[x])
    hard         E sum_t log p(y_t | h_t), h_t = LSTM(y_{t-1}, x_r), r ~ p (score-function gradient)
    categorical  sum_t log sum_r p(r) p(y_t | h_t, x_r), h_t = LSTM(y_{t-1}, E_p[x])
    wc, lc       E_q sum_t log p(y_t | h_t) - KL(q || prior), h_t = LSTM(y_{t-1}, E_w[x]), w ~ q, Weibull or lognormal
    gaussian     E sum_t log p(y_t | h_t), h_t = LSTM(y_{t-1}, sum_r w_r x_r), w_r ~ Normal(p(r), sigma^2)

E_p[x] is the mean of x_r with the weights p(r). In wc and lc, the weights w are sampled from the distribution q.

The model returns the objective of each word, (B, T), without the KL. The attention layer adds the KL to the loss.

Shapes: B captions, T words with the end token, R regions of width D, K candidates for the latent region, V words in the
vocabulary.
"""

import dataclasses
import math

import keras
from keras import ops

import keras_vattn
from applications.common.seeds import draw_initial_weights
from applications.text.text import PAD
from applications.vision.regions import region_mask


@dataclasses.dataclass(frozen=True)
class Model:
    """A model in Table 3 of Fan et al. 2020, or a variant with the latent region of Deng et al. 2018.

    Attributes:
        title: Name of the model in the paper.
        alignment: Distribution of the decoder's attention weights: "hard", "weibull", "lognormal" or "gaussian";
            `None` for softmax.
        feeding: Context vector that the decoder reads: "sampled", or "expected" (the mean over the regions).
        is_marginal: Whether the likelihood of a word is a sum over regions.
        published: Values of `AlignmentOptions` that the paper states for this model.
    """

    title: str
    alignment: str | None = None
    feeding: str = "sampled"
    is_marginal: bool = False
    published: dict = dataclasses.field(default_factory=dict)


# From appendix B.3.2 of Fan et al. 2020; sigma_1 in the paper is `prior_sigma`.
_LC = {"lognormal_sigma": 0.1, "prior_sigma": 1e3, "annealing_rate": 1.0}
_WC = {"weibull_k": 10.0, "prior_beta": 1e-6, "annealing_rate": 1.0}
MODELS = {
    "soft": Model("Soft"),
    "hard": Model("Hard", "hard"),
    "categorical": Model("Categorical", feeding="expected", is_marginal=True),
    "lc": Model("BAM-LC", "lognormal", published=_LC),
    "wc": Model("BAM-WC", "weibull", published=_WC),
    # An ablation in section 4.3 of Fan et al. 2020.
    "gaussian": Model("Gaussian weights", "gaussian"),
}


@dataclasses.dataclass
class Models:
    """The training model and the submodels for decoding. These models share layers.

    Attributes:
        training: Computes the bound of each target word in nats, (B, T). Inputs: "regions" (B, R, D), "num_regions"
            (B,), "target" (B, T) and "target_input" (B, T), which is `target` shifted by one step.
        encoder: Maps regions (B, R, D) to the memory (B, R, units).
        embedding: Maps target_input (B, T) to word vectors (B, T, word_width).
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
        """The number of trainable parameters, as a dictionary with the key "generative"."""
        return {"generative": sum(math.prod(weight.shape) for weight in self.training.trainable_weights)}

    def decode(self, regions, num_regions, target_input, target):
        """Run the decoder over captions. Return its outputs, the memory (B, R, units) and the region mask (B, R)."""
        memory, mask = self.encoder(regions, training=False), region_mask(num_regions, regions.shape[1])
        embedded = self.embedding(target_input, training=False)
        masks = {"inputs_mask": ops.not_equal(target, PAD), "memory_mask": mask}
        decoded = self.decoder(embedded, memory, **masks, return_attention_scores=True, return_logits=True)
        return decoded, memory, mask


def build(options, codec):
    """Build the `Models`; the codec provides the vocabulary and the shape of the regions."""
    vocabulary_size, max_regions = len(codec.vocabulary), codec.regions.max_regions
    kind, network, alignment = MODELS[options.model], options.network, options.alignment

    regions_embedded = keras.layers.Dense(network.units, "relu", name="regions_embedded")
    region_dropout, word_dropout = _dropout(options, 1, "region_dropout"), _dropout(options, 2, "word_dropout")
    words_embedded = keras.layers.Embedding(vocabulary_size, network.word_width, name="words_embedded")
    score = keras_vattn.Additive(network.attention_units, name="score")
    if kind.alignment is None:
        attention = keras_vattn.DeterministicAttention(score, name="attention")
    else:
        special = {"hard": keras_vattn.Hard, "gaussian": GaussianWeights}.get(kind.alignment)
        arguments = {"alignment": special()} if special else alignment.arguments(kind.alignment, kind.published)
        attention = keras_vattn.Attention(score, seed=options.run.layer_seed(3), name="attention", **arguments)
    is_self_critical = kind.alignment == "hard" and alignment.baseline == "soft"
    decoder = (SelfCriticalDecoder if is_self_critical else keras_vattn.AttentionDecoder)(
        network.units, attention, cell="max_out_lstm", query="previous", feeding=kind.feeding, name="decoder"
    )
    emission = Emission(options, vocabulary_size)

    regions = keras.Input((max_regions, codec.regions.model_width), name="regions")
    num_regions = keras.Input((), dtype="int32", name="num_regions")
    target_input = keras.Input((None,), dtype="int32", name="target_input")
    target = keras.Input((None,), dtype="int32", name="target")
    mask = region_mask(num_regions, max_regions)
    memory = region_dropout(regions_embedded(regions))
    embedded = word_dropout(ops.relu(words_embedded(target_input)))
    masks = {"inputs_mask": ops.not_equal(target, PAD), "memory_mask": mask}
    decoded = decoder(embedded, memory, **masks, return_attention_scores=True, return_logits=True)
    if kind.is_marginal:
        hidden, log_prior = emission.candidates(decoded, memory, mask)
        log_likelihood = emission.words(hidden, target, candidates_mask=mask[:, None])
        bound = keras_vattn.LatentLogLikelihood("marginal", name="bound")(log_likelihood, log_prior)
    elif kind.alignment == "hard":
        # Without the stack, log p(y) and its baseline would get different dropout masks.
        states = [decoded["hidden"], *([ops.stop_gradient(decoded["expected"])] if is_self_critical else [])]
        log_likelihood = emission.words(emission.dropout(ops.stack(states, axis=2)), target)
        average = "moving_average" if alignment.baseline == "moving_average" else None
        reward = keras_vattn.RewardToGo(average, name="bound")
        baseline = {"baseline_log_likelihood": log_likelihood[..., 1]} if is_self_critical else {}
        draws = decoded["weights"], decoded["logits"]
        bound = reward(log_likelihood[..., 0], *draws, value_mask=mask, **baseline)
    else:
        hidden, _ = emission.candidates(decoded, memory, mask)
        bound = emission.words(hidden, target)[..., 0]

    inputs = {"regions": regions, "num_regions": num_regions, "target_input": target_input, "target": target}
    training = keras.Model(inputs, bound, name=options.model)
    draw_initial_weights(training.layers, options.run.seed)
    encoder = keras.Model(regions, memory, name="encoder")
    return Models(training, encoder, keras.Model(target_input, embedded, name="embedding"), decoder, emission)


def _dropout(options, index, name, noise_shape=None):
    seed = options.run.layer_seed(index)
    return keras_vattn.fast.Dropout(options.network.dropout, noise_shape=noise_shape, seed=seed, name=name)


@keras.saving.register_keras_serializable(package="applications.captioning")
class GaussianWeights(keras_vattn.Alignment):
    """Samples weights from Normal(softmax(scores), sigma^2). The weights may be negative and need not sum to 1."""

    is_stochastic = True
    sigma = 0.1

    def noise(self, shape, seed):
        return {"normal": keras_vattn.random.normal(shape, seed)}

    def perturb(self, logits, noise, keys):
        return logits

    def normalize(self, perturbed, noise, keys):
        weights = keys.softmax(perturbed)
        return weights if noise is None else weights + self.sigma * keys.zero_masked(noise["normal"])


class Emission:
    """Computes the probability of a word y, given the decoder's state h and, if the model has one, the latent region x.

        p(y | h) = softmax W_v dropout(h)
        p(y | h, x) = softmax W_v dropout(tanh(W_h h + W_x x))

    All candidate regions of a word share one dropout mask.
    """

    def __init__(self, options, vocabulary_size):
        network, self.latent = options.network, None
        if MODELS[options.model].is_marginal:
            self.latent = keras_vattn.CategoricalAttention(objective="marginal", name="latent")
            self.hidden_projection = keras.layers.Dense(network.units, name="hidden_projection")
            self.region_projection = keras.layers.Dense(network.units, use_bias=False, name="region_projection")
        self.dropout = _dropout(options, 4, "emission_dropout", noise_shape=(None, None, 1, None))
        self.words = keras_vattn.TokenLogLikelihood(vocabulary_size, ignore_class=PAD, name="words")

    def candidates(self, decoded, memory, mask):
        """Return the states that predict words, (B, T, K, units), and log p of K regions, (B, T, K).

        Without a latent region, K is 1, and log p is `None`. With a latent region, `decoded` must contain "logits".
        """
        hidden = decoded["hidden"]
        if self.latent is None:
            return self.dropout(hidden[:, :, None]), None
        latent = self.latent(hidden, self.region_projection(memory), value_mask=mask, logits=decoded["logits"])
        hidden = ops.tanh(self.hidden_projection(hidden)[:, :, None] + latent["candidates"])
        return self.dropout(hidden), latent["log_prior"]

    def log_words(self, decoded, memory, mask):
        """Return log p of every word in the vocabulary, (B, T, V). If the model has a latent region, p is summed over
        the regions."""
        hidden, log_prior = self.candidates(decoded, memory, mask)
        log_weights = ops.zeros_like(hidden[..., 0], "float32") if log_prior is None else log_prior
        return self.words(hidden, log_weights=log_weights)


@keras.saving.register_keras_serializable(package="applications.captioning")
class SelfCriticalDecoder(keras_vattn.AttentionDecoder):
    """A decoder that also returns "expected" (B, T, units), the states that expected contexts give.

    In training, the decoder runs a second time, with `training=False`, to compute these states. Two calls of the layer
    in a functional model would both get the same `training`.
    """

    def build(self, inputs_shape, memory_shape):
        # Keras matches the argument names of `build` and `call`, so this override names both inputs.
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
        outputs = {"return_attention_scores": return_attention_scores, "return_logits": return_logits}
        decoded = super().call(inputs, memory, **masks, **outputs, training=training)
        at_mean = super().call(inputs, memory, **masks, training=False) if training else decoded
        return {**decoded, "expected": at_mean["hidden"]}

    def compute_output_spec(self, inputs, memory, **options):
        spec = super().compute_output_spec(inputs, memory, **options)
        # If both entries were the same symbolic tensor, Keras would treat them as one output.
        return {**spec, "expected": keras.KerasTensor(spec["hidden"].shape, dtype=self.compute_dtype)}
