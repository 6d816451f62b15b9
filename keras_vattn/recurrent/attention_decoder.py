from functools import partial

import keras

from keras_vattn.layers.attention import Attention
from keras_vattn.recurrent.cells import CELLS, RecurrentCell
from keras_vattn.recurrent.feeding import FEEDINGS, Feeding
from keras_vattn.recurrent.parts import AttentionPart, Carry, CellsPart
from keras_vattn.recurrent.recurrent_decoder import RecurrentDecoder
from keras_vattn.support import keras_private
from keras_vattn.support.identifiers import resolve
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import check_mask
from keras_vattn.support.sublayers import claim, require_dtype, serialize_sublayer
from keras_vattn.support.validation import boolean, fraction, integer, one_of, positive_integer

QUERIES = ("current", "previous")


@keras.saving.register_keras_serializable(package="keras_vattn")
class AttentionDecoder(RecurrentDecoder):
    """Recurrent decoder that attends to a memory at every step, with any `keras_vattn.Attention`.

    The argument `query` selects the query of the attention, and `feeding` selects the context that the cell receives:

    - `query="previous"` (Bahdanau et al. 2015): the query is the previous state of the first layer. The first cell
      receives the context at the same step.
    - `query="current"` (Luong et al. 2015; code of Bahuleyan et al. 2018): the query is the output of the top layer.
      The first cell receives the context at the next step.
    - `feeding="sampled"`: the cell receives the sampled context.
    - `feeding="expected"` (Deng et al. 2018): the cell receives the expected context, without noise and dropout.
      Posterior logits do not change the expected context.
    - `feeding="off"`: the cell receives no context. Attention runs once, after the loop, unless the score has a state.

    If the attention has a KL, each call of the decoder adds the KL of all steps with one `add_loss`.

    In the formula, c_t is the context, h_t is the output of a single layer, and h_t^((l)) is the output of layer l.

    Formula:
        h_t = "cell"(x_t, c_(t-1), h_(t-1)), quad c_t = "attention"(h_t, "memory") quad ("current")
        c_t = "attention"(h_(t-1), "memory"), quad h_t = "cell"(x_t, c_t, h_(t-1)) quad ("previous")
        h_t^((l)) = "cell"^((l))(h_t^((l-1)), h_(t-1)^((l))) + h_t^((l-1)), quad l > 1 quad ("residual")

    Args:
        units: Width of every layer.
        attention: An `Attention` (or its config), or `None` for a plain recurrent decoder. Defaults to `None`.
        cell: A name in `keras_vattn.recurrent.CELLS`, such as `"gru"`; or a class or an instance of `RecurrentCell`.
            Every layer has its own cell. An instance is copied. Defaults to `"lstm"`.
        num_layers: Number of stacked cells. Defaults to 1.
        query: `"current"` or `"previous"`. Defaults to `"current"`.
        feeding: `"off"`, `"sampled"`, `"expected"` or a `keras_vattn.recurrent.Feeding`. Defaults to `"sampled"`.
        residual: Whether every layer except the first adds its input to its output. Defaults to `False`.
        dropout: Dropout rate applied during training to the inputs of every layer except the first. Defaults to 0.0.
        kernel_initializer, recurrent_initializer, bias_initializer: As in `RecurrentCell`. The initializers have an
            effect only if `cell` is a name or a class.
        seed: Seed of the dropout, an integer or `None`. Defaults to `None`.

    Call arguments:
        inputs: (B, T, D), for instance embedded words.
        memory: (B, S, Dm), for instance the outputs of an encoder; `None` without attention.
        initial_state: List of (B, units) tensors: the states of the first layer, such as [h, c] of an LSTM, then the
            states of the second layer, and so on. `None` for zeros.
        inputs_mask: Boolean (B, T). A masked step does not change the state and adds no KL.
        memory_mask: Boolean (B, S).
        posterior_logits: Logits (B, T, S) of an inference network, or `None`; see `keras_vattn.Attention`.
        return_attention_scores: Whether to return the attention weights. Defaults to `False`.
        return_logits: Whether to return the queries and the logits of the attention weights, which
            `keras_vattn.CategoricalAttention` needs. Defaults to `False`.
        return_state: Whether to return the last state. Defaults to `False`.
        training: Whether to sample noise and apply dropout.

    Returns:
        A dictionary:

        - `"hidden"`: (B, T, units).
        - `"context"`: (B, T, Dm), with attention.
        - `"weights"`: (B, T, S), with `return_attention_scores`.
        - `"query"`: (B, T, units), and `"logits"`: float32 (B, T, S), with `return_logits`.
        - `"state"`: List like `initial_state`, with `return_state`.

    Raises:
        ValueError: If an option is unknown, or if only one of attention and memory is passed.

    Example:

    >>> attention = keras_vattn.GaussianAttention(score="bilinear", kl_weight=0.1)
    >>> decoder = keras_vattn.AttentionDecoder(16, attention)
    >>> words, memory = keras.ops.ones((2, 4, 8)), keras.ops.ones((2, 5, 6))
    >>> decoded = decoder(words, memory, training=True)
    >>> decoded["hidden"].shape, decoded["context"].shape, len(decoder.losses)
    (TensorShape([2, 4, 16]), TensorShape([2, 4, 6]), 1)
    """

    def __init__(
        self,
        units,
        attention=None,
        cell="lstm",
        num_layers=1,
        query="current",
        feeding="sampled",
        residual=False,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = positive_integer("units", units)
        self.attention = None if attention is None else resolve(attention, {}, Attention, "attention")
        require_dtype(self, "attention", self.attention)
        self.num_layers = positive_integer("num_layers", num_layers)
        self.query = one_of("query", query, QUERIES)
        self._feeding_name = feeding if isinstance(feeding, str) else None
        self._feeding = resolve(feeding, FEEDINGS, Feeding, "feeding")
        self.residual = boolean("residual", residual)
        self.dropout = fraction("dropout", dropout)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = integer("seed", seed, optional=True)
        self.seed_generator = keras.random.SeedGenerator(self.seed)
        self._cell_name = cell if isinstance(cell, str) else None
        self.cells = self._make_cells(cell)

    def _make_cells(self, identifier):
        options = {
            "kernel_initializer": self.kernel_initializer,
            "recurrent_initializer": self.recurrent_initializer,
            "bias_initializer": self.bias_initializer,
            "dtype": self.dtype_policy,
        }
        cell = resolve(identifier, CELLS, RecurrentCell, "cell", units=self.units, **options)
        if cell.units != self.units or cell.compute_dtype != self.compute_dtype:
            raise ValueError(
                "The decoder and its cell must have the same `units` and the same compute dtype. "
                f"Received: cell.units={cell.units}, units={self.units}, cell.compute_dtype={cell.compute_dtype}, "
                f"dtype={self.compute_dtype}"
            )
        config = cell.get_config()
        return [type(cell).from_config({**config, "name": f"cell_{index}"}) for index in range(self.num_layers)]

    @property
    def cell(self):
        return self._cell_name or self.cells[0]

    @property
    def feeding(self):
        return self._feeding_name or self._feeding

    @property
    def _feeds(self):
        return self.attention is not None and self._feeding.feeds

    def build(self, inputs_shape, memory_shape=None, posterior_logits_shape=None):
        if (self.attention is None) != (memory_shape is None):
            raise ValueError(
                "Pass a memory if `attention` is set, and no memory if `attention` is None. "
                f"Received: attention={self.attention}, memory_shape={memory_shape}"
            )
        for name, shape in (("inputs", inputs_shape), ("memory", memory_shape)):
            if shape is not None and len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have shape (batch, steps, width). Received: {name}.shape={tuple(shape)}"
                )
        claim(self, "attention", self.attention)
        self._fed_width = self._feeding.width(self._context_width(memory_shape)) if self._feeds else None
        layer_shape, fed_shape = inputs_shape, (*inputs_shape[:-1], self._fed_width) if self._feeds else None
        for index, cell in enumerate(self.cells):
            cell.build(layer_shape, None if index else fed_shape)
            layer_shape = (*inputs_shape[:-1], self.units)
        if self.attention is not None and not self.attention.built:
            self.attention.build(layer_shape, memory_shape)

    def parts(self):
        is_current = self.query == "current"
        if is_current:
            query, fed = (lambda results, state: results["hidden"]), (lambda results, state: state["fed"])
        else:
            query, fed = (lambda results, state: state["cells"][0]), (lambda results, state: results["fed"])
        cells = CellsPart(self.cells, fed if self._feeds else None, self.dropout, self.residual, self.seed_generator)
        if self.attention is None:
            return [cells]
        attention = AttentionPart(self.attention, query, self._feeding, leaves_loop=not self._feeds)
        if not is_current:
            return [attention, cells]
        carry = [Carry("fed", self._fed_width, self.compute_dtype)] if self._feeds else []
        return [cells, attention, *carry]

    def step(self, inputs, state, memory, noise=None):
        """Run one decoding step. The arguments are those of `RecurrentDecoder.step`.

        Returns:
            A dictionary and the next state. The dictionary contains `"hidden"` (B, units) and, with attention,
            `"context"` (B, Dm), `"weights"` (B, S), `"query"` (B, units) and `"logits"`, float32 (B, S).
        """
        results, state = super().step(inputs, state, memory, noise)
        names = ("hidden", "context", "weights", "query", "logits")
        return {name: results[name] for name in names if name in results}, state

    def call(
        self,
        inputs,
        memory=None,
        initial_state=None,
        inputs_mask=None,
        memory_mask=None,
        posterior_logits=None,
        return_attention_scores=False,
        return_logits=False,
        return_state=False,
        training=None,
    ):
        self._check(inputs, memory, inputs_mask, memory_mask, posterior_logits)
        keep = ["hidden"]
        if self.attention is not None:
            keep += ["context"] + ["weights"] * return_attention_scores + ["query", "logits"] * return_logits
        sequences = {"inputs": inputs}
        if posterior_logits is not None:
            sequences["posterior_logits"] = posterior_logits
        result, state = self.run(sequences, memory, initial_state, inputs_mask, memory_mask, keep, training)
        if inputs_mask is not None and "logits" in result:
            # Keras would not mask these outputs, because `compute_mask` does not know `return_logits`.
            for name in ("query", "logits"):
                keras_private.set_mask(result[name], inputs_mask)
        if return_state:
            result["state"] = state["cells"]
        return result

    def _check(self, inputs, memory, inputs_mask, memory_mask, posterior_logits):
        for name, x in (("memory_mask", memory_mask), ("posterior_logits", posterior_logits)):
            if memory is None and x is not None:
                raise ValueError(f"`{name}` needs a memory, but `memory` is None. Received: {name}={x}")
        if memory is not None:
            check_mask("memory_mask", memory_mask, (memory.shape[0], memory.shape[1]), "(B, S)")
            steps = (inputs.shape[0], inputs.shape[1], memory.shape[1])
            self.attention.check_posterior_logits(posterior_logits, steps)
        check_mask("inputs_mask", inputs_mask, (inputs.shape[0], inputs.shape[1]), "(B, T)")

    def _context_width(self, memory_shape):
        return self.attention.compute_output_shape((None, None, self.units), memory_shape)[-1]

    def compute_output_shape(self, inputs_shape, memory_shape=None, posterior_logits_shape=None):
        shape = {"hidden": (*inputs_shape[:-1], self.units)}
        if memory_shape is not None:
            shape["context"] = (*inputs_shape[:-1], self._context_width(memory_shape))
        return shape

    def compute_output_spec(self, *arguments, **options):
        call_arguments = bind_call(partial(AttentionDecoder.call, self), arguments, options)
        inputs, memory = call_arguments["inputs"], call_arguments["memory"]
        self._check(
            inputs, memory, *(call_arguments[name] for name in ("inputs_mask", "memory_mask", "posterior_logits"))
        )
        spec = self._output_spec(CellsPart(self.cells), call_arguments)
        if call_arguments["return_logits"] and memory is not None:
            spec["query"] = keras.KerasTensor(spec["hidden"].shape, dtype=self.compute_dtype)
            spec["logits"] = keras.KerasTensor((*inputs.shape[:-1], memory.shape[-2]), dtype="float32")
        return spec

    @property
    def gives(self):
        return ("hidden",) if self.attention is None else ("context", "hidden")

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "attention": serialize_sublayer(self.attention),
            "cell": self._cell_name or serialize_sublayer(self.cells[0]),
            "num_layers": self.num_layers,
            "query": self.query,
            "feeding": self._feeding_name or keras.saving.serialize_keras_object(self._feeding),
            "residual": self.residual,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "seed": self.seed,
        }
