"""Models that answer a question about the regions of an image: bottom-up top-down, and modular co-attention.

Shapes: B examples, R regions, D their width, L words of the question, V answers, K candidates of an alignment.
"""

import dataclasses
import functools

import keras
import tensorflow as tf
from keras import ops

import keras_vattn
from applications.text.text import PAD
from applications.vqa.options import MODELS


@dataclasses.dataclass
class Models:
    """The training model and the ones that predict; all share their layers.

    Attributes:
        training: {"regions" (B, R, D), "num_regions" (B,), "question" (B, L), "answer" (B,) or scores (B, V)} -> the
            bound (B,) in nats.
        prediction: The same without "answer" -> {"log_probabilities" (B, V), "weights" (B, R)}: of all alignments, or
            at their mean; the weights are what is looked at.
        drawn: As `prediction`, for a draw of the attention wherever the model is asked for draws; `None` where the
            attention is deterministic.
        weights: Its inputs -> all attention weights, a list of (B, H, T, S); `None` of the architecture updown.
        embedding: The words' vectors.
        inference_layers: Names of the layers that training alone has.
    """

    training: keras.Model
    prediction: keras.Model
    drawn: keras.Model | None
    weights: keras.Model | None
    embedding: keras.layers.Embedding
    inference_layers: tuple = ()

    @functools.cached_property
    def predict(self):
        """The prediction as a function of its inputs, traced once."""
        return tf.function(lambda inputs: self.prediction(inputs, training=False), reduce_retracing=True)

    @property
    def parameters(self):
        """Numbers of generative and of inference parameters."""
        counts = {"generative": 0, "inference": 0}
        for weight in self.training.trainable_weights:
            own = weight.path.split("/")[0] in self.inference_layers
            counts["inference" if own else "generative"] += weight.value.shape.num_elements()
        return counts


def build(options, num_words, num_answers, max_regions, width):
    """Build the models.

    Args:
        options: `Options`.
        num_words: Number of the words' ids.
        num_answers: V.
        max_regions: R.
        width: D.

    Returns:
        `Models`.
    """
    inputs = {
        "regions": keras.Input((max_regions, width), name="regions"),
        "num_regions": keras.Input((), dtype="int32", name="num_regions"),
        "question": keras.Input((None,), dtype="int32", name="question"),
    }
    mask = ops.less(ops.arange(max_regions, dtype="int32")[None], inputs["num_regions"][:, None])
    embedding = keras.layers.Embedding(num_words, options.network.word_width, name="words")
    architecture = {"updown": _updown, "mcan": _mcan}[options.architecture]
    return architecture(options, inputs, mask, embedding, num_answers)


def _updown(options, inputs, mask, embedding, num_answers):
    """Anderson et al. 2018 as in Deng et al. 2018, appendix B: p(z | x, q) = softmax w^T tanh(W1 x + W2 q) over the
    regions, p(y | x, q, z) = softmax W dropout(ReLU(V [x_z; q]))."""
    model, units, regions = MODELS[options.model], options.network.units, inputs["regions"]
    words = inputs["question"]
    encoder = keras_vattn.fast.LSTM(units, name="question_encoder")
    query = encoder(embedding(words), mask=ops.not_equal(words, PAD))[:, None]
    logits = keras_vattn.Additive(units, use_bias=False, name="score")(query, regions)  # (B, 1, R)
    # V [x; q] is split, so that a region is projected once.
    values = keras.layers.Dense(units, use_bias=False, name="region_projection")(regions)
    of_question = keras.layers.Dense(units, name="question_projection")(query)
    dropout = keras_vattn.fast.Dropout(
        options.dropout, noise_shape=(None, None, 1, None), seed=options.run.layer_seed(1), name="answer_dropout"
    )
    answers = keras_vattn.TokenLogLikelihood(num_answers, name="answers")

    def hidden(latent):
        return dropout(ops.relu(of_question[:, :, None] + latent["candidates"]))

    def attend(objective, name, **more):
        layer = keras_vattn.CategoricalAttention(objective=objective, seed=options.run.layer_seed(2), name=name, **more)
        return lambda **posterior: layer(query, values, value_mask=mask, logits=logits, **posterior)

    def predict(objective, name):
        latent = attend(objective, name)()
        log_probabilities = answers(hidden(latent), log_weights=latent["log_weights"])[:, 0]
        weights = ops.softmax(ops.where(mask, logits[:, 0], -1e9), axis=-1)
        return keras.Model(inputs, {"log_probabilities": log_probabilities, "weights": weights}, name=name)

    answer = keras.Input((), dtype="int32", name="answer")
    posterior, inference_layers = {}, ()
    if model.needs_posterior:
        logits_of_q, inference_layers = _posterior(options, regions, query, answer, num_answers)
        posterior["posterior_logits"] = logits_of_q
    baseline = None if options.alignment.baseline == "none" else options.alignment.baseline
    objective = keras_vattn.LatentObjective(model.objective, baseline=baseline)
    kl = {"kl_weight": options.alignment.kl_weight}
    latent = attend(objective, "latent", **kl)(**posterior)
    enumerates = objective.in_training.estimator == "enumerate"
    log_likelihood = answers(
        hidden(latent), answer[:, None], **({"candidates_mask": mask[:, None]} if enumerates else {})
    )
    value = keras_vattn.LatentLogLikelihood(objective, name="bound")
    bound = value(log_likelihood, latent["log_prior"], latent["log_posterior"])[:, 0]
    drawn = None
    if model.objective != "soft":
        one = keras_vattn.LatentObjective("hard/sample", baseline=None, inference="hard/sample")
        drawn = predict(one, "drawn")
    exact = keras_vattn.LatentObjective("soft" if model.objective == "soft" else "marginal")
    training = keras.Model({**inputs, "answer": answer}, bound, name=options.model)
    return Models(training, predict(exact, "prediction"), drawn, None, embedding, inference_layers)


def _posterior(options, regions, query, answer, num_answers):
    """Return the logits of q(z | x, q, y) ∝ exp(u^T tanh(U1 (x * ReLU(V1 h_y)) + U2 (q * ReLU(V2 h_y)))) (section 4),
    (B, 1, R), and the names of the layers."""
    units = options.network.units
    embedded = keras.layers.Embedding(num_answers, options.network.answer_width, name="posterior_answers")(answer)
    names = ("posterior_regions", "posterior_question", "posterior_score")
    gates = [
        keras.layers.Dense(x.shape[-1], "relu", use_bias=False, name=f"{name}_gate")(embedded)[:, None]
        for name, x in zip(names, (regions, query), strict=False)
    ]
    of_regions, of_question = (
        keras.layers.Dense(units, use_bias=False, name=name)(x * gate)
        for name, x, gate in zip(names, (regions, query), gates, strict=False)
    )
    score = keras.layers.Dense(1, use_bias=False, name=names[2])(ops.tanh(of_regions + of_question))  # (B, R, 1)
    own = ("posterior_answers", *names, *(f"{name}_gate" for name in names[:2]))
    return ops.transpose(score, (0, 2, 1)), own


def _mcan(options, inputs, mask, embedding, num_answers):
    """Yu et al. 2019: self-attention over the question's words, then over the regions self-attention and attention
    guided by the words; both are reduced by attention and added."""
    units, words = options.network.units, inputs["question"]
    word_mask = ops.not_equal(words, PAD)
    encoder = keras_vattn.fast.LSTM(units, return_sequences=True, name="question_encoder")
    question = encoder(embedding(words), mask=word_mask)
    image = keras.layers.Dense(units, name="region_projection")(inputs["regions"])
    unit = _Unit(options)
    for index in range(options.network.num_layers):
        question = unit.attention(f"words_{index}", question, question, word_mask)
        question = unit.feed_forward(f"words_{index}", question)
    for index in range(options.network.num_layers):
        image = unit.attention(f"regions_{index}", image, image, mask)
        image = unit.attention(f"guided_{index}", image, question, word_mask)
        image = unit.feed_forward(f"regions_{index}", image)
    of_image, weights = unit.reduced("image", image, mask)
    of_question, _ = unit.reduced("question", question, word_mask)
    fused = keras.layers.LayerNormalization(epsilon=1e-6, name="fused")(of_image + of_question)

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
    prediction = keras.Model(
        inputs, {"log_probabilities": log_probabilities, "weights": weights}, name=f"{options.model}_prediction"
    )
    drawn = None if MODELS[options.model].distribution is None else prediction
    return Models(training, prediction, drawn, keras.Model(inputs, unit.weights), embedding)


class _Unit:
    """The units of modular co-attention: attention and a feed-forward network, each with a residual and a layer
    normalisation behind it; every dropout has a seed of its own."""

    def __init__(self, options):
        self.options = options
        self.weights = []
        self.count = 16

    def attention(self, name, query, value, mask):
        """Multi-head attention of (B, T, units) over (B, S, units), S masked (B, S)."""
        network = self.options.network
        layer = keras_vattn.MultiHeadAttention(
            network.num_heads,
            network.units // network.num_heads,
            dropout=self.options.dropout,
            seed=self._seed(),
            name=f"{name}_attention",
            **_alignment(self.options),
        )
        attended, weights = layer(query, value, value_mask=mask, return_attention_scores=True)
        self.weights.append(weights)
        return self._added(f"{name}_attention", query, attended)

    def feed_forward(self, name, x):
        hidden = keras.layers.Dense(4 * self.options.network.units, "relu", name=f"{name}_hidden")(x)
        hidden = keras.layers.Dense(self.options.network.units, name=f"{name}_output")(self._dropped(name, hidden))
        return self._added(name, x, hidden)

    def reduced(self, name, x, mask):
        """Return sum_t softmax(w^T ReLU(W x))_t x_t, projected, (B, fused_units), and the weights (B, T)."""
        hidden = keras.layers.Dense(self.options.network.units, "relu", name=f"{name}_reduction_hidden")(x)
        logits = keras.layers.Dense(1, name=f"{name}_reduction")(self._dropped(f"{name}_reduction", hidden))[..., 0]
        weights = ops.softmax(ops.where(mask, ops.cast(logits, "float32"), -1e9), axis=-1)
        pooled = ops.sum(ops.cast(weights, x.dtype)[..., None] * x, axis=1)
        return keras.layers.Dense(self.options.network.fused_units, name=f"{name}_fused")(pooled), weights

    def _added(self, name, x, change):
        change = self._dropped(f"{name}_added", change)
        return keras.layers.LayerNormalization(epsilon=1e-6, name=f"{name}_normalization")(x + change)

    def _dropped(self, name, x):
        return keras_vattn.fast.Dropout(self.options.dropout, seed=self._seed(), name=f"{name}_dropout")(x)

    def _seed(self):
        self.count += 1
        return self.options.run.layer_seed(self.count)


def _alignment(options):
    """Return the options of a multi-head attention that concern its alignment and its KL."""
    model, given = MODELS[options.model], options.alignment
    if model.distribution is None:
        return {}
    drawn = given.of_model(model.published)
    found = {
        "alignment": drawn.alignment(model.distribution),
        "kl_weight": drawn.kl_weight,
        "kl_reduction": given.kl_reduction,
    }
    if model.prior is None:
        return found
    prior = drawn.prior(model.distribution, model.prior, model.published.get("prior_alpha", 1.0))
    return {**found, "prior": prior, "kl_annealing": drawn.annealing()}
