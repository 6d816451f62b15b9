from functools import partial

import keras
from keras import ops

from keras_vattn.draws.request import Seeds
from keras_vattn.layers.attention import Attention
from keras_vattn.layers.gaussian_latent import GaussianLatent
from keras_vattn.layers.predicted_context import PredictedContext
from keras_vattn.recurrent.cells import CELLS, RecurrentCell
from keras_vattn.recurrent.parts import AttentionPart, CellsPart, LatentPart, Part
from keras_vattn.recurrent.recurrent_decoder import RecurrentDecoder
from keras_vattn.support.identifiers import resolve
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import check_mask
from keras_vattn.support.products import product
from keras_vattn.support.sublayers import claim, require_dtype, serialize_sublayer
from keras_vattn.support.validation import positive_integer


@keras.saving.register_keras_serializable(package="keras_vattn")
class StochasticDecoder(RecurrentDecoder):
    """VRAE-SA (Chien and Wang 2019): recurrent decoder that infers a latent variable from attention at every step.

    The formula lists one step in the order of computation (equations 2-4, 6, 11, 15-19, algorithm 1):

    - x_t is the input. Concatenate every input with z_enc, the latent variable of the whole sentence.
    - h_t is the state of the cell, and c_t is the context.
    - z_t is the latent variable, with prior p(z_t | h_(t-1)) and posterior q(z_t | h_(t-1), c_t).
    - tilde(c)_t is the predicted context, with the distribution p(tilde(c)_t | z_t) of the layer `prediction`.

    The cell does not receive c_t. So the memory influences the cell only through z_t. If `prediction` has
    `informed=True`, the memory also influences tilde(c)_t: the distribution of tilde(c)_t is then Normal(c_t,
    diag(sigma^2)) with the sigma of `prediction`, and the loss contains the KL from this Normal to p(tilde(c)_t | z_t).

    Without a memory, as in generation, z_t follows the prior, tilde(c)_t follows p(tilde(c)_t | z_t), and no KL is
    added. With a memory, the decoder calls `add_loss` up to three times, each for the sum over the unmasked steps:

    - KL(q || p) of z_t.
    - The auxiliary term or the KL of `prediction`.
    - The KL of the attention.

    Formula:
        p(z_t | h_(t-1)) = "Normal"(mu_p, "diag"(sigma_p^2)), quad [mu_p, log sigma_p] = W h_(t-1) + b
        c_t = "attention"(h_(t-1), "memory")
        q(z_t | h_(t-1), c_t) = "Normal"(mu_q, "diag"(sigma_q^2)), quad [mu_q, log sigma_q] = "latent"([h_(t-1); c_t])
        z_t ~ q(z_t | h_(t-1), c_t), quad tilde(c)_t ~ p(tilde(c)_t | z_t)
        h_t = "cell"(x_t, [z_t; tilde(c)_t], h_(t-1))

    Args:
        units: Width of h.
        latent: A `GaussianLatent` (or its config). The KL options of this layer (weight, annealing, free bits) apply to
            KL(q || p). `initial_log_scale` and `kernel_initializer` of this layer apply to both q and p.
        attention: An `Attention` (or its config). The query is h_(t-1).
        prediction: A `PredictedContext` (or its config) as wide as the context (Dm for most attentions). The width of
            32 in the paper does not fit c_t. With `None`, the decoder creates a `PredictedContext` without an auxiliary
            term (`kl_weight=0.0`). Defaults to `None`.
        cell: As in `keras_vattn.AttentionDecoder`. Defaults to `"lstm"`.
        informed: Whether to infer z_t from the attention. With `False`, for control experiments, there is no q, and z_t
            is always the mean of the prior. The memory then influences the cell only if `prediction` has
            `informed=True`. Defaults to `True`.

    Call arguments:
        inputs: (B, T, D), for instance embedded words concatenated with z_enc.
        memory: (B, S, Dm), or `None` to use the prior of z_t instead of the posterior.
        initial_state: List of (B, units) tensors, or `None` for zeros.
        inputs_mask: Boolean (B, T). A masked step does not change the state and adds nothing to the losses.
        memory_mask: Boolean (B, S).
        return_attention_scores: Whether to return the attention weights. Defaults to `False`.
        return_distributions: Whether to return the parameters of q and p. Defaults to `False`.
        return_state: Whether to return the last state. Defaults to `False`.
        training: Whether to sample noise.

    Returns:
        A dictionary:

        - `"hidden"`: (B, T, units), h_t.
        - `"latent"`: (B, T, Z), z_t.
        - `"predicted_context"`: (B, T, Dm), tilde(c)_t.
        - `"context"`: (B, T, Dm), c_t, with a memory.
        - `"weights"`: (B, T, S), with a memory and `return_attention_scores`.
        - `"latent_prior"`: Dictionary of `"mean"` and `"log_scale"`, (B, T, Z), with `return_distributions`.
        - `"latent_posterior"`: Like `"latent_prior"`, with `return_distributions`, a memory and `informed=True`.
        - `"state"`: List like `initial_state`, with `return_state`.

    Raises:
        ValueError: If an option is unknown, or if the decoder is built without a memory.

    Example:

    >>> latent = keras_vattn.GaussianLatent(3, initial_log_scale=-3.0)
    >>> attention = keras_vattn.Attention("additive")
    >>> decoder = keras_vattn.StochasticDecoder(8, latent, attention)
    >>> words, memory = keras.ops.ones((2, 4, 5)), keras.ops.ones((2, 6, 7))
    >>> decoded = decoder(words, memory, training=True)
    >>> decoded["hidden"].shape, decoded["latent"].shape, len(decoder.losses)
    (TensorShape([2, 4, 8]), TensorShape([2, 4, 3]), 1)
    >>> sorted(decoder(words))
    ['hidden', 'latent', 'predicted_context']
    """

    # Keras assigns masks to outputs in alphabetical order. With a fourth name, `state` could receive a mask.
    gives = ("hidden", "latent", "predicted_context")

    def __init__(self, units, latent, attention, prediction=None, cell="lstm", informed=True, **kwargs):
        super().__init__(**kwargs)
        self.units = positive_integer("units", units)
        self.latent = resolve(latent, {}, GaussianLatent, "latent")
        self.attention = resolve(attention, {}, Attention, "attention")
        self.prediction = None if prediction is None else resolve(prediction, {}, PredictedContext, "prediction")
        for name in ("latent", "attention", "prediction"):
            require_dtype(self, name, getattr(self, name))
        self.informed = bool(informed)
        self._uses_default_prediction = prediction is None
        self._cell_name = cell if isinstance(cell, str) else None
        self.cell = resolve(cell, CELLS, RecurrentCell, "cell", units=self.units, dtype=self.dtype_policy, name="cell")
        if self.cell.units != self.units:
            raise ValueError(
                "The decoder and its cell must have the same `units`. "
                f"Received: cell.units={self.cell.units}, units={self.units}"
            )

    def build(self, inputs_shape, memory_shape=None):
        if memory_shape is None:
            raise ValueError(
                "A stochastic decoder must be built with a memory; later calls may omit it. Received: memory=None"
            )
        for name, shape in (("inputs", inputs_shape), ("memory", memory_shape)):
            if len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have shape (batch, steps, width). Received: {name}.shape={tuple(shape)}"
                )
        hidden_shape = (*inputs_shape[:-1], self.units)
        width = self.attention.compute_output_shape(hidden_shape, memory_shape)[-1]
        if self.prediction is None:
            self.prediction = PredictedContext(width, kl_weight=0.0, dtype=self.dtype_policy, name="prediction")
        if self.prediction.units != width:
            raise ValueError(
                "The layer `prediction` must be as wide as the context. "
                f"Received: prediction.units={self.prediction.units}, a context of width {width}"
            )
        shapes = {
            "latent": (*hidden_shape[:-1], self.units + width),
            "prediction": (*hidden_shape[:-1], self.latent.units),
        }
        for name in ("attention", "latent", "prediction"):
            claim(self, name, getattr(self, name))
        if not self.attention.built:
            self.attention.build(hidden_shape, memory_shape)
        for name, shape in shapes.items():
            # Without q, these weights would receive no gradient.
            if not getattr(self, name).built and (self.informed or name != "latent"):
                getattr(self, name).build(shape)
        if not self.cell.built:
            self.cell.build(inputs_shape, (*hidden_shape[:-1], self.latent.units + width))
        size = (self.units, 2 * self.latent.units)
        self.prior_kernel = self.add_weight(name="prior_kernel", shape=size, initializer=self._initialize_prior_kernel)
        self.prior_bias = self.add_weight(name="prior_bias", shape=size[1:], initializer=self._initialize_prior_bias)

    def _initialize_prior_kernel(self, shape, dtype=None):
        """Return the initial kernel of p, for the mean and log sigma, with the initializer of q."""
        size = (self.units, self.latent.units)
        return ops.concatenate([self.latent.initial_kernel(size, dtype) for _ in range(2)], axis=-1)

    def _initialize_prior_bias(self, shape, dtype=None):
        """Return 0 for the mean of p, and the initial log sigma of q for log sigma."""
        mean = ops.zeros(self.latent.units, dtype)
        return ops.concatenate([mean, ops.full_like(mean, self.latent.initial_log_scale)])

    def parts(self):
        def previous_hidden(results, state):
            return state["cells"][0]

        def posterior(results, state):
            if not self.informed or "context" not in results:
                return None
            return ops.concatenate([previous_hidden(results, state), results["context"]], axis=-1)

        def prior(results, state):
            hidden = previous_hidden(results, state)
            return product(hidden, self.prior_kernel) + ops.cast(self.prior_bias, hidden.dtype)

        def cell_context(results, state):
            return ops.concatenate([results["latent"], results["predicted_context"]], axis=-1)

        return [
            _OptionalAttention(self.attention, previous_hidden),
            (_InformedLatent if self.informed else _PriorMean)(self.latent, posterior, prior),
            _PredictionPart(self.prediction),
            CellsPart([self.cell], context=cell_context),
        ]

    def call(
        self,
        inputs,
        memory=None,
        initial_state=None,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        return_distributions=False,
        return_state=False,
        training=None,
    ):
        self._check(inputs, memory, inputs_mask, memory_mask)
        keep = self._names(memory is not None, return_attention_scores, return_distributions)
        result, state = self.run({"inputs": inputs}, memory, initial_state, inputs_mask, memory_mask, keep, training)
        if return_state:
            result["state"] = state["cells"]
        return result

    def _names(self, attends, weights, distributions):
        names = ["hidden", "latent", "predicted_context", *["latent_prior"] * distributions]
        if attends:
            names += ["context", *["weights"] * weights, *["latent_posterior"] * (distributions and self.informed)]
        return names

    def _check(self, inputs, memory, inputs_mask, memory_mask):
        if memory is None and memory_mask is not None:
            raise ValueError(f"`memory_mask` needs a memory, but `memory` is None. Received: memory_mask={memory_mask}")
        if memory is not None:
            check_mask("memory_mask", memory_mask, (memory.shape[0], memory.shape[1]), "(B, S)")
        check_mask("inputs_mask", inputs_mask, (inputs.shape[0], inputs.shape[1]), "(B, T)")

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        leading = inputs_shape[:-1]
        shapes = {"hidden": (*leading, self.units), "latent": (*leading, self.latent.units)}
        shapes["predicted_context"] = (*leading, self.prediction.units)
        if memory_shape is not None:
            shapes["context"] = (*leading, self.prediction.units)
        return shapes

    def compute_output_spec(self, *arguments, **options):
        call_arguments = bind_call(partial(StochasticDecoder.call, self), arguments, options)
        inputs, memory = call_arguments["inputs"], call_arguments["memory"]
        self._check(inputs, memory, call_arguments["inputs_mask"], call_arguments["memory_mask"])
        spec = self._output_spec(CellsPart([self.cell]), call_arguments)
        if call_arguments["return_distributions"]:
            shape, dtypes = spec["latent"].shape, {"mean": self.compute_dtype, "log_scale": "float32"}
            for name in ("latent_prior", *["latent_posterior"] * (memory is not None and self.informed)):
                spec[name] = {key: keras.KerasTensor(shape, dtype=dtype) for key, dtype in dtypes.items()}
        return spec

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "latent": serialize_sublayer(self.latent),
            "attention": serialize_sublayer(self.attention),
            "prediction": None if self._uses_default_prediction else serialize_sublayer(self.prediction),
            "cell": self._cell_name or serialize_sublayer(self.cell),
            "informed": self.informed,
        }


class _OptionalAttention(AttentionPart):
    """Attention that is skipped if the decoder has no memory."""

    def prepare_memory(self, memory, mask):
        return {} if memory is None else super().prepare_memory(memory, mask)

    def draw_seeds(self, memory, training):
        return super().draw_seeds(memory, training) if self.name in memory else Seeds()

    def draw_noise(self, batch_size, num_steps, memory, seeds):
        return super().draw_noise(batch_size, num_steps, memory, seeds) if self.name in memory else {}

    def start(self, batch_size, memory, initial_state):
        return super().start(batch_size, memory, initial_state) if self.name in memory else {}

    def step(self, results, state, memory, noise, training):
        return super().step(results, state, memory, noise, training) if self.name in memory else ({}, {})

    def account(self, results, memory, noise, mask, training):
        if self.name in memory:
            super().account(results, memory, noise, mask, training)


class _InformedLatent(LatentPart):
    """A latent variable whose posterior equals its prior in examples without a valid key."""

    def infer(self, inputs, prior, memory):
        posterior, any_valid = super().infer(inputs, prior, memory), memory["attention"]["keys"].any_valid()
        if any_valid is None:
            return posterior
        return {name: ops.where(any_valid, x, ops.cast(prior[name], x.dtype)) for name, x in posterior.items()}


class _PriorMean(LatentPart):
    """A latent variable that always equals the mean of its prior."""

    def prepare_memory(self, memory, mask):
        return {}

    def draw_seeds(self, memory, training):
        return Seeds()


class _PredictionPart(Part):
    """Samples the predicted context and, after the loop, adds the auxiliary term or the KL of `prediction`."""

    def __init__(self, prediction):
        self.prediction = prediction

    def prepare_memory(self, memory, mask):
        return {"predicted_context": self.prediction.kernels()}

    def draw_seeds(self, memory, training):
        return self.prediction.draw_seeds(training)

    def draw_noise(self, batch_size, num_steps, memory, seeds):
        shape = (batch_size, num_steps, self.prediction.units)
        return {"predicted_context": self.prediction.draw_noise(shape, seeds.noise)}

    def step(self, results, state, memory, noise, training):
        parameters = self.prediction.parameters(results["latent"], memory["predicted_context"])
        if "context" in results:
            parameters = self.prediction.posterior(parameters, self._target(results, parameters, memory))
        noise = noise.get("predicted_context", {})
        return {"predicted_context": self.prediction.sample(parameters, noise, training)}, {}

    def kept(self, inputs):
        return ("latent", "context") if self.prediction.kl_weight or self.prediction.informed else ()

    def account(self, results, memory, noise, mask, training):
        if self.kept({}) and "context" in results:
            parameters = self.prediction.parameters(results["latent"])
            self.prediction.account(parameters, self._target(results, parameters, memory), mask, training)

    def _target(self, results, parameters, memory):
        """Return the context. If `prediction.informed`, examples without a valid key use the mean of p (KL 0)."""
        context, any_valid = results["context"], memory["attention"]["keys"].any_valid()
        if any_valid is None or not self.prediction.informed:
            return context
        mean = ops.cast(parameters["mean"], context.dtype)
        return ops.where(ops.reshape(any_valid, (-1, *[1] * (len(mean.shape) - 1))), context, mean)
