"""The table of the battery: every public layer, in the configurations that take their own path through the code."""

import dataclasses
from functools import partial

import keras
import numpy as np
import tensorflow as tf
from keras import ops, tree
from log_laplace import LogLaplace
from tensorflow_probability.python.distributions import Categorical, kl_divergence

from keras_vattn import (
    Additive,
    Attention,
    AttentionDecoder,
    BayesianAttention,
    Bilinear,
    ContextualPrior,
    DeterministicAttention,
    DirichletAttention,
    DotProduct,
    FixedPrior,
    GaussianAttention,
    GaussianContext,
    GaussianLatent,
    GumbelSoftmax,
    LocationSensitive,
    LogNormal,
    Weibull,
    WeightedSum,
    WordDropout,
)

BATCH, STEPS, SOURCE = 4, 3, 5
VOCABULARY = 9


@dataclasses.dataclass(frozen=True)
class Case:
    """One row: how the layer is made, what it is called with, and which checks have a meaning for it.

    Attributes:
        name: Id of the row in pytest.
        make: The constructor with the options of the row; takes `seed` where `draws`.
        widths: Width of each float input, in the order of the call.
        divergence: Whether a call adds a KL.
        draws: Whether a call in training is random.
        noise_in_attention: Whether the noise of a decoder is that of its attention, not dropout between its layers.
        tempered: Whether a draw at temperature 0 is the mean; only Gaussians have a temperature.
        dropout: Whether some of the randomness is dropout, so that training with Gaussian noise 0 is not inference.
        bad_options: Options that the constructor refuses.
        source_arguments: Inputs along the axis of the keys.
        query_mask: Name of the mask of the steps, `None` where the layer takes none.
        key_mask: Name of the mask of the keys, `None` where the layer takes none.
        has_logits: Whether something in the layer may be scaled until a logit is extreme.
        log_probabilities: Inputs that are logarithms of probabilities, -1e30 at masked keys; a layer that has them
            takes no mask of the keys.
        values_draws: Whether the layer draws nothing, but is marked by `posterior_draws` to value draws of another.
    """

    name: str
    make: object
    widths: dict
    divergence: bool = False
    draws: bool = False
    dropout: bool = False
    tempered: bool = True
    noise_in_attention: bool = True
    bad_options: tuple = ()

    source_arguments = ()
    query_mask = None
    key_mask = None
    has_logits = True
    log_probabilities = ()
    values_draws = False

    @property
    def draws_from_posterior(self):
        """Whether `keras_vattn.posterior_draws` makes it draw; dropout is no posterior."""
        return self.draws and (self.divergence or not self.dropout)

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        generator = np.random.default_rng(seed)
        shapes = {
            name: (batch, SOURCE if name in self.source_arguments else steps, width)
            for name, width in self.widths.items()
        }
        return {name: tf.constant(generator.normal(size=shape), tf.float32) for name, shape in shapes.items()}

    def masks(self, batch=BATCH, steps=STEPS):
        """Suffix masks of every kind the layer takes; no row of the keys is fully masked."""
        masks = {}
        if self.query_mask:
            lengths = np.resize([steps, max(steps - 1, 1), 1], batch)
            masks[self.query_mask] = tf.constant(np.arange(steps) < lengths[:, None])
        if self.key_mask:
            lengths = np.resize([SOURCE, SOURCE - 2, 1], batch)
            masks[self.key_mask] = tf.constant(np.arange(SOURCE) < lengths[:, None])
        return masks

    def built(self, **options):
        layer = self.make(**options)
        shapes = {name: x.shape for name, x in self.arrays().items()}
        posterior = shapes.pop("posterior_logits", None)
        layer.build(*shapes.values(), **({} if posterior is None else {"posterior_logits_shape": posterior}))
        return layer

    def outputs(self, result):
        return list(result.values()) if isinstance(result, dict) else [result]

    def floats(self, result):
        return [ops.cast(x, "float32") for x in self.outputs(result)]

    def context(self, result):
        return result

    def noisy(self, result):
        """The output that the noise of a call enters."""
        return result

    def attention_weights(self, result):
        """The weights, (B, ..., S), in the result of a call with `return_attention_scores`."""
        return [result["weights"] if isinstance(result, dict) else result[1]]

    def dtypes(self, layer, result):
        """The names of the dtypes of a result, in its structure."""
        return tree.map_structure(lambda _: layer.compute_dtype, result)

    def output_shapes(self, layer):
        """`compute_output_shape` for the arrays of the row; posterior logits do not enter it."""
        shapes = [tuple(x.shape) for name, x in self.arrays().items() if name != "posterior_logits"]
        return layer.compute_output_shape(*shapes)

    def known_shapes(self, result):
        """What `output_shapes` is to be, for a result, or a dictionary for one: what calls differ in is `None`."""
        return {name: tuple(x.shape) for name, x in result.items()} if isinstance(result, dict) else tuple(result.shape)

    def without_noise(self, layer, arrays):
        """What a call in training gives where the noise is 0: the mean, which is the result of inference."""
        return layer(**arrays, training=False)

    def expected_divergences(self, layer, arrays, masks=()):
        """KL of each query (B, T) at inference, from the two distributions of the layer."""
        raise NotImplementedError

    def expected_loss(self, layer, arrays, masks=()):
        divergences = self.expected_divergences(layer, arrays, masks)
        return divergences.sum() / divergences.shape[0]

    def make_extreme(self, layer, arrays):
        """Scale weights or inputs until the largest logit is 1e4; returns the inputs."""
        raise NotImplementedError


class ScoreCase(Case):
    source_arguments = ("key",)

    def make_extreme(self, layer, arrays):
        return _scale_logits(layer, layer, arrays, "query", arrays["query"], arrays["key"])


class ContextCase(Case):
    source_arguments = ("value",)
    has_logits = False

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        arrays = super().arrays(batch, steps, seed)
        return {"weights": tf.nn.softmax(arrays["weights"]), "value": arrays["value"]}


class AttentionCase(Case):
    source_arguments = ("value",)
    query_mask = "query_mask"
    key_mask = "value_mask"

    def expected_divergences(self, layer, arrays, masks=()):
        masks = dict(masks)
        valid = masks.pop("query_mask", True)
        posterior = layer.posterior_distribution(**arrays, **masks)
        prior = layer.prior_distribution(**arrays, **masks)
        if isinstance(getattr(layer, "alignment", None), GumbelSoftmax):
            # Its KL is that of the categoricals underneath.
            posterior, prior = (Categorical(logits=x.logits) for x in (posterior, prior))
        divergences = kl_divergence(posterior, prior).numpy()
        if divergences.ndim == 3:
            valid_keys = np.asarray(masks.get("value_mask", np.ones(divergences.shape[::2], bool)))
            divergences = np.where(valid_keys[:, None], divergences, 0.0).sum(axis=-1)
        divergences = np.where(valid, divergences, 0.0)
        if "value_mask" in masks:
            divergences = np.where(np.any(masks["value_mask"], axis=1)[:, None], divergences, 0.0)
        return divergences

    def make_extreme(self, layer, arrays):
        return _scale_logits(layer.score, layer.score, arrays, "query", arrays["query"], arrays["value"])


class DecoderCase(Case):
    source_arguments = ("memory",)
    query_mask = "inputs_mask"

    @property
    def key_mask(self):
        return "memory_mask" if "memory" in self.widths else None

    def context(self, result):
        return result["context"]

    def noisy(self, result):
        return result["context" if "context" in result and self.noise_in_attention else "hidden"]

    def queries(self, layer, arrays, memory_mask=None):
        """What the attention is asked with at each step of inference, (B, T, units), from the pure step."""
        memory = layer.prepare_memory(arrays["memory"], memory_mask)
        state = layer.start(arrays["inputs"].shape[0], memory)
        queries = []
        for inputs in tf.unstack(arrays["inputs"], axis=1):
            before = state["cells"][0]
            outputs, state = layer.step(inputs, state, memory)
            queries.append(before if layer.query == "previous" else outputs["hidden"])
        return ops.stack(queries, axis=1)

    def expected_divergences(self, layer, arrays, masks=()):
        masks = dict(masks)
        queries = self.queries(layer, arrays, masks.get("memory_mask"))
        inner = {"query_mask": masks["inputs_mask"]} if "inputs_mask" in masks else {}
        if "memory_mask" in masks:
            inner["value_mask"] = masks["memory_mask"]
        inner_arrays = {"query": queries, "value": arrays["memory"]}
        if "posterior_logits" in arrays:
            inner_arrays["posterior_logits"] = arrays["posterior_logits"]
        return AttentionCase.expected_divergences(self, layer.attention, inner_arrays, inner)

    @property
    def has_logits(self):
        return "memory" in self.widths

    def make_extreme(self, layer, arrays):
        score = layer.attention.score
        queries = self.queries(layer, arrays)
        return _scale_logits(score, score, arrays, "memory", queries, arrays["memory"])


class LatentCase(Case):
    has_logits = False
    query_mask = "mask"

    def expected_divergences(self, layer, arrays, masks=()):
        inputs = arrays["inputs"]
        valid = dict(masks).get("mask", True)
        divergences = kl_divergence(layer.posterior_distribution(inputs), layer.prior_distribution(inputs))
        return np.where(valid, divergences, 0.0)

    def expected_loss(self, layer, arrays, masks=()):
        if not layer.free_bits:
            return super().expected_loss(layer, arrays, masks)
        inputs = arrays["inputs"]
        posterior, prior = layer.posterior_distribution(inputs), layer.prior_distribution(inputs)
        by_dimension = kl_divergence(posterior.distribution, prior.distribution).numpy()
        valid = np.broadcast_to(dict(masks).get("mask", True), by_dimension.shape[:-1])
        average = by_dimension[valid].mean(axis=0)
        return np.maximum(average, layer.free_bits).sum() * valid.sum() / valid.shape[0]


class VectorLatentCase(LatentCase):
    query_mask = None

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        return {name: x[:, 0] for name, x in super().arrays(batch, steps, seed).items()}


class WordsCase(Case):
    has_logits = False

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        ids = np.random.default_rng(seed).integers(3, VOCABULARY, size=(batch, steps))
        return {"inputs": tf.constant(ids, tf.int32)}

    def floats(self, result):
        return [ops.cast(result, "float32")[..., None]]

    def dtypes(self, layer, result):
        return "int32"


def _scale_logits(owner, score, arrays, scaled_input, query, key):
    largest = float(ops.max(ops.abs(ops.cast(score(query, key), "float32"))))
    for name in ("kernel", "scale"):
        weight = getattr(owner, name, None)
        if weight is not None:
            weight.assign(weight * (1e4 / largest))
            return arrays
    return {**arrays, scaled_input: arrays[scaled_input] * (1e4 / largest)}


def _decoder(attention=None, units=6, **options):
    def make(seed=None, **more):
        inner = None if attention is None else attention(seed=seed)
        return AttentionDecoder(units, inner, seed=seed, **{**options, **more})

    return make


def _decoder_case(name, attention=None, memory=5, divergence=False, posterior=False, tempered=True, **options):
    dropout = bool(options.get("dropout")) or (attention is not None and bool(attention(seed=0).dropout))
    widths = {"inputs": 4} if attention is None else {"inputs": 4, "memory": memory}
    if posterior:
        widths["posterior_logits"] = SOURCE
    return DecoderCase(
        f"decoder-{name}",
        _decoder(attention, **options),
        widths,
        divergence=divergence,
        draws=divergence or dropout,
        tempered=tempered,
        dropout=dropout,
        noise_in_attention=not options.get("dropout"),
        bad_options=({"cell": "rnn"}, {"query": "next"}, {"feeding": "teacher"}, {"num_layers": 0}, {"dropout": 1.0}),
    )


MEAN_CONTEXT = {
    "module": "keras_vattn.contexts",
    "class_name": "GaussianContext",
    "config": {"prior": "mean"},
    "registered_name": "keras_vattn>GaussianContext",
}
TAU = keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
KL_OPTIONS = ({"kl_weight": -1.0}, {"kl_annealing": 0.5}, {"kl_reduction": "max"})
SHARED = {"query": 4, "value": 4}
APART = {"query": 4, "value": 6}
WITH_POSTERIOR = {**APART, "posterior_logits": SOURCE}


def _alignment_case(name, widths=APART, divergence=True, layer=Attention, bad_options=(), **options):
    return AttentionCase(
        name,
        partial(layer, **{"score": "bilinear", **options}),
        widths,
        divergence=divergence,
        draws=True,
        tempered=False,
        bad_options=bad_options,
    )


def _configuration(part):
    """Each layer of a row makes a part of its own from it: a part belongs to one layer."""
    return keras.saving.serialize_keras_object(part)


def _location_sensitive(location, seed=None):
    score = LocationSensitive(filters=3, kernel_size=4, location=location)
    return DeterministicAttention(score, dropout=0.25, seed=seed)


ALIGNMENT_CASES = [
    _alignment_case(
        "weibull-contextual",
        alignment="weibull",
        prior="contextual",
        bad_options=({"prior": "uniform"}, {"alignment": "softmax"}, {"warm_start": -1}),
    ),
    _alignment_case("weibull-raw-fixed", alignment=Weibull(3.0, "raw"), prior=_configuration(FixedPrior(0.5, 2.0))),
    _alignment_case("weibull-no-prior", alignment="weibull", divergence=False),
    _alignment_case("weibull-sampled-kl", alignment=Weibull(kl_estimator="sampled"), prior="contextual"),
    _alignment_case("weibull-posterior", WITH_POSTERIOR, alignment=Weibull(2.0)),
    _alignment_case(
        "lognormal-paper",
        alignment="lognormal",
        prior=_configuration(ContextualPrior(scale="paper", num_heads=None)),
    ),
    _alignment_case("lognormal-raw-fixed", alignment=LogNormal(0.7, "raw"), prior="fixed", score="additive"),
    _alignment_case("dirichlet-fixed", alignment="dirichlet", prior=_configuration(FixedPrior(0.5))),
    _alignment_case("gumbel-contextual", alignment=GumbelSoftmax(0.5), prior="contextual"),
    _alignment_case("gumbel-straight-through-annealed", alignment=GumbelSoftmax(TAU, True), divergence=False),
    _alignment_case("log-laplace", alignment=LogLaplace(), prior="contextual"),
    _alignment_case("weibull-gaussian", alignment="weibull", context="gaussian"),
    _alignment_case(
        "bayesian-attention",
        layer=BayesianAttention,
        distribution="lognormal",
        bad_options=(
            {"distribution": "gamma"},
            {"k": 0.0},
            {"sigma": -1.0},
            {"parameterization": "log"},
            {"kl_estimator": "monte_carlo"},
        ),
    ),
    _alignment_case(
        "dirichlet-attention",
        WITH_POSTERIOR,
        layer=DirichletAttention,
        bad_options=({"min_log_concentration": 11.0}, {"warm_start": 0.5}),
    ),
    _decoder_case(
        "lstm-weibull-current-sampled",
        partial(BayesianAttention, score="additive"),
        divergence=True,
        tempered=False,
    ),
    _decoder_case(
        "gru-dirichlet-posterior-previous-expected",
        partial(DirichletAttention, score="bilinear"),
        divergence=True,
        posterior=True,
        tempered=False,
        cell="gru",
        query="previous",
        feeding="expected",
    ),
    _decoder_case(
        "lstm-gumbel-previous-sampled",
        partial(Attention, score="bilinear", alignment="gumbel_softmax", prior="fixed"),
        divergence=True,
        tempered=False,
        query="previous",
    ),
    _decoder_case(
        "lstm-log-laplace-off",
        partial(Attention, score="bilinear", alignment=LogLaplace(), prior="contextual"),
        divergence=True,
        tempered=False,
        feeding="off",
    ),
    _decoder_case(
        "lstm-location-sensitive-off",
        partial(_location_sensitive, "previous"),
        query="previous",
        feeding="off",
    ),
    _decoder_case(
        "gru-location-sensitive-cumulative",
        partial(_location_sensitive, "cumulative"),
        cell="gru",
    ),
]

CASES = [
    ScoreCase("dot-product", partial(DotProduct), {"query": 4, "key": 4}),
    ScoreCase("dot-product-scaled", partial(DotProduct, scaled=True), {"query": 4, "key": 4}),
    ScoreCase("bilinear", partial(Bilinear), {"query": 4, "key": 6}),
    ScoreCase("additive", partial(Additive, units=7), {"query": 4, "key": 6}, bad_options=({"units": 0},)),
    ScoreCase("additive-no-bias", partial(Additive, use_bias=False), {"query": 4, "key": 6}),
    ContextCase("weighted-sum", partial(WeightedSum), {"weights": SOURCE, "value": 6}),
    ContextCase(
        "gaussian-context-standard",
        partial(GaussianContext),
        {"weights": SOURCE, "value": 6},
        bad_options=({"prior": "uniform"}, {"temperature": -1.0}, {"hidden_units": 0}),
    ),
    ContextCase(
        "gaussian-context-mean",
        partial(GaussianContext, prior="mean", hidden_units=3, temperature=0.5),
        {"weights": SOURCE, "value": 6},
    ),
    AttentionCase(
        "attention-default",
        partial(Attention),
        SHARED,
        bad_options=({"score": "cosine"}, {"alignment": "hardmax"}, {"context": "mean"}, {"dropout": 1.0}, *KL_OPTIONS),
    ),
    AttentionCase("attention-dropout", partial(Attention, dropout=0.25), SHARED, draws=True, dropout=True),
    AttentionCase("attention-bilinear", partial(Attention, score="bilinear"), APART),
    AttentionCase("attention-additive", partial(Attention, score="additive"), APART),
    AttentionCase(
        "attention-dot-gaussian", partial(Attention, context="gaussian"), SHARED, divergence=True, draws=True
    ),
    AttentionCase(
        "attention-bilinear-gaussian-mean-dropout",
        partial(
            Attention,
            score="bilinear",
            context=MEAN_CONTEXT,
            dropout=0.25,
        ),
        APART,
        divergence=True,
        draws=True,
        dropout=True,
    ),
    AttentionCase(
        "attention-additive-gaussian",
        partial(Attention, score="additive", context="gaussian"),
        APART,
        divergence=True,
        draws=True,
    ),
    AttentionCase(
        "deterministic-attention",
        partial(DeterministicAttention, score="additive", dropout=0.25),
        APART,
        draws=True,
        dropout=True,
        bad_options=({"score": "cosine"}, {"dropout": -0.1}),
    ),
    AttentionCase(
        "gaussian-attention-standard",
        partial(GaussianAttention, score="bilinear"),
        APART,
        divergence=True,
        draws=True,
        bad_options=({"prior": "uniform"}, {"temperature": -1.0}, {"hidden_units": 0}, *KL_OPTIONS),
    ),
    AttentionCase(
        "gaussian-attention-mean",
        partial(GaussianAttention, score="additive", prior="mean", hidden_units=3),
        APART,
        divergence=True,
        draws=True,
    ),
    _decoder_case(
        "lstm-additive-gaussian-current-sampled",
        partial(GaussianAttention, score="additive"),
        divergence=True,
    ),
    _decoder_case(
        "gru-bilinear-mean-current-expected",
        partial(GaussianAttention, score="bilinear", prior="mean"),
        divergence=True,
        cell="gru",
        feeding="expected",
    ),
    _decoder_case(
        "lstm-bilinear-gaussian-previous-sampled",
        partial(GaussianAttention, score="bilinear"),
        divergence=True,
        query="previous",
    ),
    _decoder_case(
        "gru-additive-mean-previous-expected-stack",
        partial(GaussianAttention, score="additive", prior="mean"),
        divergence=True,
        cell="gru",
        num_layers=2,
        query="previous",
        feeding="expected",
    ),
    _decoder_case(
        "lstm-additive-mean-current-off",
        partial(GaussianAttention, score="additive", prior="mean"),
        divergence=True,
        feeding="off",
    ),
    _decoder_case(
        "gru-dot-gaussian-previous-off",
        partial(GaussianAttention),
        memory=6,
        divergence=True,
        cell="gru",
        query="previous",
        feeding="off",
    ),
    _decoder_case(
        "lstm-additive-previous-residual-stack",
        partial(DeterministicAttention, score="additive"),
        query="previous",
        num_layers=3,
        residual=True,
        dropout=0.25,
    ),
    _decoder_case("lstm-dot-current-weight-dropout", partial(DeterministicAttention, dropout=0.25), memory=6),
    _decoder_case("lstm-residual-stack", num_layers=2, residual=True, dropout=0.25),
    _decoder_case("gru", cell="gru"),
    VectorLatentCase(
        "latent",
        partial(GaussianLatent, units=3),
        {"inputs": 4},
        divergence=True,
        draws=True,
        bad_options=({"units": 0}, {"temperature": -1.0}, {"free_bits": -1.0}, *KL_OPTIONS),
    ),
    VectorLatentCase(
        "latent-free-bits", partial(GaussianLatent, units=3, free_bits=0.3), {"inputs": 4}, divergence=True, draws=True
    ),
    LatentCase("latent-sequence", partial(GaussianLatent, units=3), {"inputs": 4}, divergence=True, draws=True),
    WordsCase(
        "word-dropout",
        partial(WordDropout, rate=0.5, replacement_id=1, protected_ids=(0,)),
        {"inputs": None},
        draws=True,
        dropout=True,
        bad_options=({"rate": 1.5},),
    ),
]


CASES += ALIGNMENT_CASES

from battery_latent import LATENT_CASES  # noqa: E402  (both use the classes above)
from battery_multi_head import MULTI_HEAD_CASES  # noqa: E402

CASES += MULTI_HEAD_CASES
CASES += LATENT_CASES


def model_inputs(case, with_masks=True):
    """Symbolic inputs of unknown batch size and length."""
    arrays, masks = case.arrays(), case.masks() if with_masks else {}
    inputs = {}
    for name, x in {**arrays, **masks}.items():
        unknown = (None,) * (len(x.shape) - 1)
        integer_or_bool = not x.dtype.is_floating
        shape = unknown if integer_or_bool else (*unknown[:-1], x.shape[-1])
        inputs[name] = keras.Input(shape, dtype=x.dtype.name if integer_or_bool else "float32", name=name)
    return inputs


def build_model(case, layer):
    """The layer, the mean of every output over all axes but the batch, and a Dense layer: (B, 1)."""
    inputs = model_inputs(case)
    outputs = case.outputs(layer(**inputs))
    if isinstance(case, WordsCase):
        outputs = [keras.layers.Embedding(VOCABULARY, 2)(x) for x in outputs]
    pooled = [ops.mean(x, axis=tuple(range(1, len(x.shape)))) for x in outputs]
    return keras.Model(inputs, keras.layers.Dense(1)(ops.stack(pooled, axis=-1)))
