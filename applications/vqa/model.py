"""Build models that answer questions about images, with the architectures updown and mcan.

Updown is bottom-up top-down attention (Anderson et al. 2018), as in Deng et al. 2018, section 4 and appendix B. x_z are
the features of region z, q is the question, y the answer, and h_y the embedded answer:

    p(z | x, q) = softmax_z w^T tanh(W_1 x_z + W_2 q)
    p(y | x, q, z) = softmax W dropout(relu(V [x_z; q]))
    q(z | x, q, y) = softmax_z u^T tanh(U_1 (x_z * relu(V_1 h_y)) + U_2 (q * relu(V_2 h_y)))

E_p is the mean over z for p(z | x, q), and E_q for q(z | x, q, y). Each updown model maximises one of these objectives:

    soft         log p(y | x, q, E_p[x])
    marginal     log sum_z p(z) p(y | z)
    hard         E_p log p(y | z), enumerated or sampled
    variational  E_q log p(y | z) - KL(q || p), enumerated or sampled
    relaxed      as variational, but z is a vector of sampled weights, and the context is sum_r z_r x_r

Mcan is modular co-attention (Yu et al. 2019). With deterministic weights, it maximises log p(y | x, q). With sampled
weights w, as in Fan et al. 2020, it maximises E_w log p(y | x, q, w) - KL(q(w) || prior), where q(w) is the
distribution of w.

All models return the objective (B,) without the KL. The attention layers add the KL to the loss.

Shapes: B examples, R regions of width D, L words of the question, V answers.
"""

import dataclasses
import functools
import itertools
import math

import keras
import tensorflow as tf
from keras import ops

import keras_vattn
from applications.common.seeds import draw_initial_weights
from applications.common.serving import mean_of_draws
from applications.text.text import PAD
from applications.vision.regions import region_mask
from applications.vqa.options import WITH_POSTERIOR


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of Deng et al. 2018 (architecture updown) or of Fan et al. 2020 (architecture mcan).

    Attributes:
        title: Name of the model in the paper.
        objective: For updown, the name of a `keras_vattn.LatentObjective`, or "relaxed" for sampled weights.
        distribution: For mcan, "weibull", "lognormal", or `None` for softmax.
        prior: Prior of sampled weights in mcan: "fixed", "contextual" or `None`.
        value, expectation: The cells of this model in the columns "objective" and "E" of Table 1 of Deng et al. 2018.
        published: Values of `AlignmentOptions` that the paper states for this model.
    """

    title: str
    objective: str | None = None
    distribution: str | None = None
    prior: str | None = None
    value: str = "E_q[log p] - KL"
    expectation: str = "Sample"
    published: dict = dataclasses.field(default_factory=dict)


# From Table 1 of Deng et al. 2018, and from Table 7 and appendix B.2.3 of Fan et al. 2020 (sigma_1 is `prior_sigma`).
_LOGNORMAL = {"prior_sigma": 1e9, "lognormal_sigma": 1e-9, "annealing_rate": 0.2}
_WF = {"weibull_k": 1000.0, "prior_beta": 1e-2, "prior_alpha": 1e-3, "annealing_rate": 0.2}
_WC = {"weibull_k": 1000.0, "prior_beta": 1e-6, "annealing_rate": 0.1}
MODELS = {
    "soft": Model("Soft Attention", "soft", value="log p(y | E[z])", expectation="-"),
    "marginal": Model("Marginal Likelihood", "marginal", value="log E[p]", expectation="Enum"),
    "hard_enum": Model("Hard Attention", "hard/enumerate", value="E_p[log p]", expectation="Enum"),
    "hard_sample": Model("Hard Attention", "hard/sample", value="E_p[log p]"),
    "relaxed": Model("Variational Relaxed Attention", "relaxed"),
    "variational_enum": Model("Variational Attention", "elbo/enumerate", expectation="Enum"),
    "variational_sample": Model("Variational Attention", "elbo/sample"),
    "no_kl": Model("BAM, no KL", distribution="weibull", value="E_q[log p]", published={"weibull_k": 1000.0}),
    "lf": Model("BAM-LF", distribution="lognormal", prior="fixed", published=_LOGNORMAL),
    "lc": Model("BAM-LC", distribution="lognormal", prior="contextual", published=_LOGNORMAL),
    "wf": Model("BAM-WF", distribution="weibull", prior="fixed", published=_WF),
    "wc": Model("BAM-WC", distribution="weibull", prior="contextual", published=_WC),
}
# `relaxed` cannot predict without sampling (Deng et al. 2018, section 4), so it averages this many samples.
NUM_DRAWS = 10


@dataclasses.dataclass
class Models:
    """The training model and the models for prediction. These models share layers.

    Attributes:
        training: Maps "regions" (B, R, D), "num_regions" (B,), "question" (B, L) and "answer" to the objective without
            the KL, (B,) in nats. "answer" contains ids (B,) or scores (B, V).
        prediction: Maps the inputs except "answer" to "log_probabilities" (B, V) and "weights" (B, R). The
            probabilities are sums over all regions. `soft`, `relaxed` and mcan use the mean weights instead.
        drawn: Maps the same inputs to the same outputs, but samples the attention under `keras_vattn.posterior_draws`.
            If the attention is deterministic, `drawn` is `None`.
        weights: Maps the inputs of `prediction` to a list of all attention weights, (B, H, T, S) each, for H heads, T
            queries and S keys. For updown, `weights` is `None`.
        embedding: The word embedding.
        num_draws: Number of samples of `drawn` averaged in a prediction, or 0 to use `prediction`.
    """

    training: keras.Model
    prediction: keras.Model
    drawn: keras.Model | None
    weights: keras.Model | None
    embedding: keras.layers.Embedding
    num_draws: int = 0

    @functools.cached_property
    def predict(self):
        """A function (inputs, number=0) that returns predictions. `number` is the batch number, which seeds the
        draws."""
        predicted = tf.function(lambda inputs: self.prediction(inputs, training=False), reduce_retracing=True)
        if not self.num_draws:
            return lambda inputs, number=0: predicted(inputs)
        drawn = lambda inputs: self.drawn(inputs, training=False)["log_probabilities"]  # noqa: E731
        predictive = mean_of_draws(self.drawn, drawn, self.num_draws)
        return lambda inputs, number=0: predicted(inputs) | {"log_probabilities": predictive(number, inputs)}

    @property
    def parameters(self):
        """Parameter counts of the generative model, and of the weights that only the inference network uses."""
        generative = sum(math.prod(weight.shape) for weight in self.generative)
        total = sum(math.prod(weight.shape) for weight in self.training.trainable_weights)
        return {"generative": generative, "inference": total - generative}

    @property
    def generative(self):
        """The trainable weights of the generative model, including weights shared with the inference network."""
        paths = {weight.path for weight in self.prediction.weights}
        return [weight for weight in self.training.trainable_weights if weight.path in paths]


def build(options, codec):
    """Build the `Models`; the codec provides the vocabulary, the answers and the shape of the regions."""
    inputs = {
        "regions": keras.Input((codec.regions.max_regions, codec.regions.model_width), name="regions"),
        "num_regions": keras.Input((), dtype="int32", name="num_regions"),
        "question": keras.Input((None,), dtype="int32", name="question"),
    }
    embedding = keras.layers.Embedding(len(codec.vocabulary), options.network.word_width, name="words")
    network = _updown if options.architecture == "updown" else _mcan
    models = network(options, inputs, embedding, len(codec.answers))
    draw_initial_weights(models.training.layers, options.run.seed)
    return models


def _updown(options, inputs, embedding, num_answers):
    model, units, alignment = MODELS[options.model], options.network.units, options.alignment
    max_regions, width = inputs["regions"].shape[1:]

    encoder = keras_vattn.fast.LSTM(units, use_cudnn=options.fit.use_cudnn, name="question_encoder")
    score = keras_vattn.Additive(units, use_bias=False, name="score")
    # If the attention layer built the score, the paths of the score's weights would depend on the model. One model
    # could then not initialise another.
    score.build((None, 1, units), (None, max_regions, width))
    # V [x; q] is split into a kernel for x and a kernel for q, so that each region is projected only once.
    region_projection = keras.layers.Dense(units, use_bias=False, name="region_projection")
    question_projection = keras.layers.Dense(units, name="question_projection")
    dropout = keras_vattn.fast.Dropout(
        options.dropout, noise_shape=(None, None, 1, None), seed=options.run.layer_seed(1), name="answer_dropout"
    )
    answers = keras_vattn.TokenLogLikelihood(num_answers, name="answers")

    answer = keras.Input((), dtype="int32", name="answer")
    regions, mask = inputs["regions"], region_mask(inputs["num_regions"], max_regions)
    query = encoder(embedding(inputs["question"]), mask=ops.not_equal(inputs["question"], PAD))[:, None]
    values, question_hidden = region_projection(regions), question_projection(query)[:, :, None]
    hidden_of = lambda candidates: dropout(ops.relu(question_hidden + candidates))  # noqa: E731
    posterior, outputs = {}, {}
    if options.model in WITH_POSTERIOR:
        posterior["posterior_logits"] = _posterior_logits(options, regions, query, answer, num_answers)
    attention = {"seed": options.run.layer_seed(2)}
    kl = {"kl_weight": alignment.kl_weight, "kl_annealing": alignment.annealing_of_posterior()}
    if model.objective == "relaxed":
        relaxed = alignment.with_published({}).alignment(alignment.relaxed, alignment.tau)
        attention["warm_start_steps"] = alignment.warm_start
        latent = keras_vattn.Attention(score, relaxed, name="latent", **kl, **attention)
        # Both calls must request the scores. Keras drops a second output if an earlier call returned only one.
        attend = functools.partial(latent, query, values, regions, value_mask=mask, return_attention_scores=True)
        bound = answers(hidden_of(attend(**posterior)[0][:, :, None]), answer[:, None])[:, 0, 0]
        context, weights = attend()
        weights, predicted = weights[:, 0], answers(hidden_of(context[:, :, None])[:, :, 0])
        outputs["prediction"] = outputs["drawn"] = predicted[:, 0]
    else:
        baseline = None if alignment.baseline == "none" else alignment.baseline
        objective = keras_vattn.LatentObjective(model.objective, baseline=baseline)
        latent = keras_vattn.CategoricalAttention(objective=objective, name="latent", **kl, **attention)
        value = keras_vattn.LatentLogLikelihood(objective, name="bound")
        logits = score(query, regions)  # (B, 1, R)
        latent_inputs = {"value_mask": mask, "logits": logits}
        latent_outputs = latent(query, values, **latent_inputs, **posterior)
        enumerated = {"candidates_mask": mask[:, None]} if objective.in_training.estimator == "enumerate" else {}
        log_likelihood = answers(hidden_of(latent_outputs["candidates"]), answer[:, None], **enumerated)
        bound = value(log_likelihood, latent_outputs["log_prior"], latent_outputs["log_posterior"])[:, 0]
        weights = ops.softmax(ops.where(mask, logits[:, 0], -1e9), axis=-1)
        predicting = {"prediction": keras_vattn.LatentObjective("soft" if model.objective == "soft" else "marginal")}
        if model.objective != "soft":
            predicting["drawn"] = keras_vattn.LatentObjective("hard/sample", baseline=None, inference="hard/sample")
        for name, objective in predicting.items():
            layer = keras_vattn.CategoricalAttention(objective=objective, name=name, **attention)
            latent_outputs = layer(query, values, **latent_inputs)
            hidden = hidden_of(latent_outputs["candidates"])
            outputs[name] = answers(hidden, log_weights=latent_outputs["log_weights"])[:, 0]
    predictions = {
        name: keras.Model(inputs, {"log_probabilities": log_probabilities, "weights": weights}, name=name)
        for name, log_probabilities in outputs.items()
    }
    training = keras.Model({**inputs, "answer": answer}, bound, name=options.model)
    num_draws = NUM_DRAWS if model.objective == "relaxed" else 0
    return Models(training, predictions["prediction"], predictions.get("drawn"), None, embedding, num_draws)


def _posterior_logits(options, regions, query, answer, num_answers):
    """Return the logits of q(z | x, q, y), (B, 1, R), of the inference network."""
    units, dense = options.network.units, functools.partial(keras.layers.Dense, use_bias=False)
    answers = keras.layers.Embedding(num_answers, options.network.answer_width, name="posterior_answers")(answer)
    region_gate = dense(regions.shape[-1], "relu", name="posterior_regions_gate")(answers)[:, None]
    question_gate = dense(units, "relu", name="posterior_question_gate")(answers)[:, None]
    region_hidden = dense(units, name="posterior_regions")(regions * region_gate)
    question_hidden = dense(units, name="posterior_question")(query * question_gate)
    return ops.transpose(dense(1, name="posterior_score")(ops.tanh(region_hidden + question_hidden)), (0, 2, 1))


def _mcan(options, inputs, embedding, num_answers):
    network, unit = options.network, _Unit(options)
    sequences = {"return_sequences": True, "use_cudnn": options.fit.use_cudnn}
    encoder = keras_vattn.fast.LSTM(network.units, name="question_encoder", **sequences)
    region_projection = keras.layers.Dense(network.units, name="region_projection")

    mask = region_mask(inputs["num_regions"], inputs["regions"].shape[1])
    word_mask = ops.not_equal(inputs["question"], PAD)
    question = encoder(embedding(inputs["question"]), mask=word_mask)
    image = region_projection(inputs["regions"])
    for index in range(network.num_layers):
        question = unit.attention(f"words_{index}", question, question, word_mask)
        question = unit.feed_forward(f"words_{index}", question)
    for index in range(network.num_layers):
        image = unit.attention(f"regions_{index}", image, image, mask)
        image = unit.attention(f"guided_{index}", image, question, word_mask)
        image = unit.feed_forward(f"regions_{index}", image)
    image_summary, weights = unit.reduced("image", image, mask)
    question_summary, _ = unit.reduced("question", question, word_mask)
    fused = keras.layers.LayerNormalization(epsilon=1e-6, name="fused")(image_summary + question_summary)
    if options.questions.labels == "soft":
        answer = keras.Input((num_answers,), name="answer")
        logits = keras.layers.Dense(num_answers, dtype="float32", name="answers")(fused)
        bound = -ops.sum(ops.softplus(logits) - answer * logits, axis=-1)
        log_scores = ops.log_sigmoid(logits)
        log_probabilities = log_scores - ops.logsumexp(log_scores, axis=-1, keepdims=True)
    else:
        answer = keras.Input((), dtype="int32", name="answer")
        likelihood = keras_vattn.TokenLogLikelihood(num_answers, name="answers")
        bound = likelihood(fused[:, None], answer)[:, 0]
        log_probabilities = likelihood(fused[:, None])[:, 0]
    training = keras.Model({**inputs, "answer": answer}, bound, name=options.model)
    outputs = {"log_probabilities": log_probabilities, "weights": weights}
    prediction = keras.Model(inputs, outputs, name=f"{options.model}_prediction")
    drawn = None if MODELS[options.model].distribution is None else prediction
    return Models(training, prediction, drawn, keras.Model(inputs, unit.weights), embedding)


class _Unit:
    """Builds the attention and feed-forward layers of `mcan`."""

    def __init__(self, options):
        self.options = options
        self.weights = []
        self.seeds = map(options.run.layer_seed, itertools.count(17))

    def attention(self, name, query, value, mask):
        """Apply multi-head attention from `query` (B, T, units) to `value` (B, S, units) with `mask` (B, S)."""
        network, model = self.options.network, MODELS[self.options.model]
        arguments = {}
        if model.distribution is not None:
            arguments = self.options.alignment.arguments(model.distribution, model.published, model.prior)
        layer = keras_vattn.MultiHeadAttention(
            network.num_heads,
            network.units // network.num_heads,
            dropout=self.options.dropout,
            seed=next(self.seeds),
            name=f"{name}_attention",
            **arguments,
        )
        attended, weights = layer(query, value, value_mask=mask, return_attention_scores=True)
        self.weights.append(weights)
        return self._added(f"{name}_attention", query, attended)

    def feed_forward(self, name, x):
        hidden = keras.layers.Dense(4 * self.options.network.units, "relu", name=f"{name}_hidden")(x)
        hidden = keras.layers.Dense(self.options.network.units, name=f"{name}_output")(self._dropped(name, hidden))
        return self._added(name, x, hidden)

    def reduced(self, name, x, mask):
        """Pool `x` (B, T, units) with attention; return a projected vector (B, fused_units) and weights (B, T)."""
        hidden = keras.layers.Dense(self.options.network.units, "relu", name=f"{name}_reduction_hidden")(x)
        logits = keras.layers.Dense(1, name=f"{name}_reduction")(self._dropped(f"{name}_reduction", hidden))[..., 0]
        weights = ops.softmax(ops.where(mask, ops.cast(logits, "float32"), -1e9), axis=-1)
        pooled = ops.sum(ops.cast(weights, x.dtype)[..., None] * x, axis=1)
        return keras.layers.Dense(self.options.network.fused_units, name=f"{name}_fused")(pooled), weights

    def _added(self, name, x, change):
        change = self._dropped(f"{name}_added", change)
        return keras.layers.LayerNormalization(epsilon=1e-6, name=f"{name}_normalization")(x + change)

    def _dropped(self, name, x):
        return keras_vattn.fast.Dropout(self.options.dropout, seed=next(self.seeds), name=f"{name}_dropout")(x)
