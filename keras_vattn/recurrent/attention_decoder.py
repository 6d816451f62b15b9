import keras
from keras import ops, tree

from keras_vattn import random
from keras_vattn.alignments.variational_alignment import as_finite_float32
from keras_vattn.layers.attention import Attention
from keras_vattn.recurrent.cells import CELLS
from keras_vattn.support import keras_private
from keras_vattn.support.identifiers import resolve
from keras_vattn.support.loop import scan
from keras_vattn.support.masks import check_mask
from keras_vattn.support.parts import adopt, serialize_part
from keras_vattn.support.validation import dropout_rate, one_of, positive_integer

QUERIES = ("current", "previous")
FEEDINGS = ("off", "sampled", "expected")


@keras.saving.register_keras_serializable(package="keras_vattn")
class AttentionDecoder(keras.layers.Layer):
    """Recurrent decoder with any `keras_vattn.Attention` inside.

    It runs in three acts: project the memory and the inputs and draw all noise; loop over what truly depends on the
    previous step; account for the KL of all steps at once, with one `add_loss`. The papers disagree about query and
    feeding, so both are arguments:

    - `query="previous"` (Bahdanau et al. 2015): a_j = attend(s_{j-1}) enters the cell at step j. In a stack s is the
      first layer's state.
    - `query="current"` (Luong et al. 2015; Bahuleyan's code): a_j = attend(h_j), h_j the top's output, enters the cell
      at step j + 1.
    - `feeding="sampled"` feeds the drawn context, `"expected"` the one expected under p, which no draw and no posterior
      enters (Deng et al. 2018), `"off"` nothing; with `"off"`, and a score that keeps no state, attention leaves the
      loop.

    With `residual=True` the layers after the first add their input to their output: s2 = RNN2(s1) + s1.

    Args:
        units: Width of every layer.
        attention: An `Attention` (or its config), or `None` for a plain recurrent decoder. Defaults to `None`.
        cell: `"lstm"` or `"gru"`. Defaults to `"lstm"`.
        num_layers: Number of stacked cells. Defaults to 1.
        query: `"current"` or `"previous"`. Defaults to `"current"`.
        feeding: `"off"`, `"sampled"` or `"expected"`. Defaults to `"sampled"`.
        residual: Whether layers after the first are residual. Defaults to `False`.
        dropout: Rate of dropout on the inputs of the layers after the first, in training. Defaults to 0.0.
        kernel_initializer: Initializer of what the cells multiply inputs and context by. Defaults to
            `"glorot_uniform"`.
        recurrent_initializer: Initializer of what they multiply their state by. Defaults to `"orthogonal"`.
        seed: Integer or `None`, for the dropout. Defaults to `None`.

    Call arguments:
        inputs: (B, T, D), for instance embedded words.
        memory: (B, S, Dm), for instance the encoder's outputs; `None` without attention.
        initial_state: List of (B, units) tensors, [h, c] (LSTM) or [h] (GRU) of each layer in turn; `None` for zeros.
        inputs_mask: Boolean (B, T). A masked step keeps the state and adds no KL.
        memory_mask: Boolean (B, S).
        posterior_logits: (B, T, S) of an inference network, or `None`; see `keras_vattn.Attention`. A masked step adds
            no KL.
        return_attention_scores: Whether the result holds the weights. Defaults to `False`.
        return_logits: Whether the result holds what was asked and the scores, for `keras_vattn.CategoricalAttention`,
            which takes them instead of scoring again. Defaults to `False`.
        return_state: Whether the result holds the last state. Defaults to `False`.
        training: Whether to draw and to drop out.

    Returns:
        A dictionary: `"hidden"` (B, T, units), with attention `"context"` (B, T, Dm), and on request `"weights"` (B, T,
        S), `"query"` (B, T, units) and `"logits"` (B, T, S), float32, and `"state"`, a list as `initial_state`.

    Raises:
        ValueError: For unknown options, and a memory without attention or attention without a memory.

    Example:

    >>> attention = keras_vattn.GaussianAttention(score="bilinear", kl_weight=0.1)
    >>> decoder = keras_vattn.AttentionDecoder(16, attention)
    >>> decoded = decoder(keras.ops.ones((2, 4, 8)), keras.ops.ones((2, 5, 6)), training=True)
    >>> decoded["hidden"].shape, decoded["context"].shape, len(decoder.losses)
    (TensorShape([2, 4, 16]), TensorShape([2, 4, 6]), 1)
    """

    takes_seed_stacks = True

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
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = positive_integer("units", units)
        self.attention = None if attention is None else resolve(attention, {}, Attention, "attention")
        if self.attention is not None and self.attention.compute_dtype != self.compute_dtype:
            raise ValueError(
                "The decoder and its attention must compute in one dtype: give both the same `dtype`. "
                f"Received: attention.compute_dtype={self.attention.compute_dtype}, dtype={self.compute_dtype}"
            )
        self.cell = one_of("cell", cell, CELLS)
        self.num_layers = positive_integer("num_layers", num_layers)
        self.query = one_of("query", query, QUERIES)
        self.feeding = one_of("feeding", feeding, FEEDINGS)
        self.residual = residual
        self.dropout = dropout_rate(dropout)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    @property
    def _feeds(self):
        return self.attention is not None and self.feeding != "off"

    @property
    def _attends_in_loop(self):
        return self.attention is not None and (self._feeds or self.attention.score.keeps_state)

    def build(self, inputs_shape, memory_shape=None, posterior_logits_shape=None):
        if (self.attention is None) != (memory_shape is None):
            raise ValueError(
                "A decoder with attention needs a memory, one without takes none. "
                f"Received: attention={self.attention}, memory_shape={memory_shape}"
            )
        for name, shape in (("inputs", inputs_shape), ("memory", memory_shape)):
            if shape is not None and len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have shape (batch, steps, width). Received: {name}.shape={tuple(shape)}"
                )
        adopt(self, "attention", self.attention)
        context_width = memory_shape[-1] if self._feeds else 0
        self.cells = []
        width = inputs_shape[-1]
        for index in range(self.num_layers):
            cell = CELLS[self.cell](
                self.units,
                context_width=0 if index else context_width,
                kernel_initializer=self.kernel_initializer.clone(),
                recurrent_initializer=self.recurrent_initializer.clone(),
                dtype=self.dtype_policy,
                name=f"cell_{index}",
            )
            cell.build((*inputs_shape[:-1], width))
            self.cells.append(cell)
            width = self.units
        if self.attention is not None and not self.attention.built:
            self.attention.build((*inputs_shape[:-1], self.units), memory_shape)

    def prepare_memory(self, memory=None, memory_mask=None):
        """Return what every step needs of the memory, computed once; the argument of `step`."""
        prepared = {"kernels": [cell.loop_kernels() for cell in self.cells]}
        if self.attention is not None:
            memory = ops.cast(memory, self.compute_dtype)
            mask = None if memory_mask is None else ops.cast(memory_mask, "bool")[:, None, :]
            prepared["attention"] = self.attention.prepare_memory(memory, mask=mask)
        return prepared

    def start(self, batch_size, memory, initial_state=None):
        """Return the state before the first step, a dictionary.

        Args:
            batch_size: B, an integer or a scalar tensor.
            memory: Result of `prepare_memory`.
            initial_state: As in the call.
        """
        self._check_initial_state(initial_state)
        if initial_state is None:
            num_states = self.num_layers * CELLS[self.cell].num_states
            initial_state = [ops.zeros((batch_size, self.units), self.compute_dtype) for _ in range(num_states)]
        state = {"cells": [ops.cast(x, self.compute_dtype) for x in initial_state]}
        if self._feeds and self.query == "current":
            width = memory["attention"]["value"].shape[-1]
            state["context"] = ops.zeros((batch_size, width), self.compute_dtype)
        if self.attention is not None and self.attention.score.keeps_state:
            num_keys = ops.shape(memory["attention"]["value"])[1]
            state["score"] = self.attention.score.initial_state(batch_size, num_keys)
        return state

    def draw_noise(self, batch_size, num_steps, memory, training=False):
        """Return the noise of all steps, a structure of (B, T, ...) tensors; `step` takes slices of it."""
        noise = {}
        if self.attention is not None:
            noise["attention"] = self.attention.draw_noise(batch_size, num_steps, memory["attention"], training)
        if training and self.dropout and self.num_layers > 1:
            seed = random.draw_seed(self.seed_generator)
            shape = (batch_size, num_steps, self.units)
            kept = [
                random.uniform(shape, random.fold_in(seed, index)) >= self.dropout
                for index in range(1, self.num_layers)
            ]
            noise["dropout"] = [ops.cast(mask, self.compute_dtype) / (1.0 - self.dropout) for mask in kept]
        return noise

    def step(self, inputs, state, memory, noise=None):
        """One step of decoding. Pure: no loss, no metric, no seed; the same code as in training.

        Args:
            inputs: (B, D), the input of this step.
            state: Result of `start` or of the previous step.
            memory: Result of `prepare_memory`.
            noise: Slice (B, ...) of the result of `draw_noise`, or `None`.

        Returns:
            A dictionary with `"hidden"` (B, units), and with attention `"context"` (B, Dm), `"weights"` (B, S),
            `"query"` (B, units) and `"logits"` (B, S), float32; and the next state.
        """
        projected = self.cells[0].project_inputs(ops.cast(inputs, self.compute_dtype))
        outputs, state = self._step(projected, state, memory, noise or {}, training=False)
        if self.attention is not None and not self._attends_in_loop:
            outputs = {**outputs, **self._attend_one(outputs["query"], state, memory, noise or {}, None, False)[0]}
        names = ("hidden", "context", "weights", "query", "logits")
        return {name: outputs[name] for name in names if name in outputs}, state

    def _step(self, projected, state, memory, noise, training, posterior_logits=None):
        outputs, new_state, context = {}, dict(state), state.get("context")
        if self.attention is not None and self.query == "previous":
            outputs["query"] = state["cells"][0]
            if self._attends_in_loop:
                attended, new_state = self._attend_one(
                    outputs["query"], state, memory, noise, posterior_logits, training
                )
                outputs.update(attended)
                context = self._fed(attended, memory) if self._feeds else None
        hidden, cells = self._run_cells(projected, context, state["cells"], memory["kernels"], noise.get("dropout"))
        outputs["hidden"] = hidden
        if self.attention is not None and self.query == "current":
            outputs["query"] = hidden
            if self._attends_in_loop:
                attended, new_state = self._attend_one(hidden, state, memory, noise, posterior_logits, training)
                outputs.update(attended)
                if self._feeds:
                    new_state["context"] = self._fed(attended, memory)
        return outputs, {**new_state, "cells": cells}

    def _run_cells(self, projected, context, states, kernels, dropout_masks):
        new_states, hidden = [], None
        for index, cell in enumerate(self.cells):
            below = hidden
            if index:
                inputs = below if dropout_masks is None else below * dropout_masks[index - 1]
                projected, context = cell.project_inputs(inputs), None
            position = index * cell.num_states
            hidden, new = cell.step(projected, context, states[position : position + cell.num_states], kernels[index])
            new_states.extend(new)
            if index and self.residual:
                hidden = hidden + below
        return hidden, new_states

    def _attend_one(self, query, state, memory, noise, posterior_logits, training):
        """Attend with one query per example: the result of `attend` without its axis of queries, and the next state."""
        noise = tree.map_structure(lambda x: x[:, None], noise.get("attention", {}))
        posterior_logits = None if posterior_logits is None else posterior_logits[:, None]
        attended = self.attention.attend(
            query[:, None], memory["attention"], noise, training, posterior_logits, state.get("score")
        )
        attended = tree.map_structure(lambda x: x[:, 0], attended)
        if "score" in state:
            # What p expects, where feeding keeps the posterior out of the states.
            weights = attended["weights"]
            if self.feeding == "expected":
                weights = attended.get("expected_weights", weights)
            state = {**state, "score": self.attention.score.next_state(state["score"], weights)}
        return attended, dict(state)

    def _fed(self, attended, memory):
        if self.feeding == "sampled":
            return attended["context"]
        if "expected_weights" not in attended:
            return attended["mean"]
        weights = attended["expected_weights"][:, None]
        return self.attention.context.call(weights, memory["attention"]["value"])[:, 0]

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
        shape = ops.shape(inputs)
        prepared = self.prepare_memory(memory, memory_mask)
        noise = self.draw_noise(shape[0], shape[1], prepared, training)
        kept = self._kept(return_attention_scores, return_logits, posterior_logits)
        stacked, state = self._loop(
            inputs, inputs_mask, prepared, noise, initial_state, posterior_logits, kept, training
        )
        result = {"hidden": stacked["hidden"]}
        if self.attention is not None:
            attended = stacked
            if not self._attends_in_loop:
                attended = self.attention.attend(
                    stacked["query"], prepared["attention"], noise["attention"], training, posterior_logits
                )
            self.attention.account(
                attended, prepared["attention"], noise["attention"], inputs_mask, training, posterior_logits
            )
            result["context"] = attended["context"]
            if return_attention_scores:
                result["weights"] = attended["weights"]
            if return_logits:
                result["query"], result["logits"] = stacked["query"], attended["logits"]
                if inputs_mask is not None:
                    # Here and not in `compute_mask`, which does not know what was asked for.
                    for name in ("query", "logits"):
                        keras_private.set_mask(result[name], inputs_mask)
        if return_state:
            result["state"] = state["cells"]
        return result

    def _check_initial_state(self, initial_state):
        num_states = self.num_layers * CELLS[self.cell].num_states
        if initial_state is not None and len(initial_state) != num_states:
            raise ValueError(
                f"`initial_state` must be a list of {num_states} tensors of shape (B, {self.units}). "
                f"Received: {len(initial_state)} tensors"
            )
        for x in initial_state or ():
            if len(x.shape) != 2 or x.shape[-1] != self.units:
                raise ValueError(
                    f"`initial_state` must hold tensors of shape (B, {self.units}). Received: shape={tuple(x.shape)}"
                )

    def _check(self, inputs, memory, inputs_mask, memory_mask, posterior_logits):
        for name, x in (("memory_mask", memory_mask), ("posterior_logits", posterior_logits)):
            if memory is None and x is not None:
                raise ValueError(f"`{name}` is given without a memory. Received: {name}={x}")
        if memory is not None:
            check_mask("memory_mask", memory_mask, (memory.shape[0], memory.shape[1]), "(B, S)")
            steps = (inputs.shape[0], inputs.shape[1], memory.shape[1])
            self.attention.check_posterior_logits(posterior_logits, steps)
        check_mask("inputs_mask", inputs_mask, (inputs.shape[0], inputs.shape[1]), "(B, T)")

    def _kept(self, return_attention_scores, return_logits, posterior_logits):
        """Return what of each step the loop keeps: what the result or the KL needs, and no more."""
        kept = {"hidden", "context"}
        if return_logits or not self._attends_in_loop:
            kept.add("query")
        if return_attention_scores:
            kept.add("weights")
        if self.attention is not None:
            if self.attention.context.has_divergence:
                kept |= {"mean", "parameters"}
            if return_logits or posterior_logits is not None or self.attention.alignment_prior is not None:
                kept.add("logits")
        return kept

    def _loop(self, inputs, inputs_mask, memory, noise, initial_state, posterior_logits, kept, training):
        def step(x, state):
            outputs, new_state = self._step(
                x["projected"], state, memory, x["noise"], training, x.get("posterior_logits")
            )
            if "mask" in x:
                keep = lambda new, old: ops.where(x["mask"][:, None], new, old)  # noqa: E731
                new_state = tree.map_structure(keep, new_state, state)
            return {name: x for name, x in outputs.items() if name in kept}, new_state

        sequences = {"projected": self.cells[0].project_inputs(inputs), "noise": noise}
        if inputs_mask is not None:
            sequences["mask"] = ops.cast(inputs_mask, "bool")
        if posterior_logits is not None and self._attends_in_loop:
            sequences["posterior_logits"] = as_finite_float32(posterior_logits)
        state = self.start(ops.shape(inputs)[0], memory, initial_state)
        return scan(step, state, sequences, ops.shape(inputs)[1])

    def compute_output_shape(self, inputs_shape, memory_shape=None, posterior_logits_shape=None):
        shape = {"hidden": (*inputs_shape[:-1], self.units)}
        if memory_shape is not None:
            shape["context"] = (*inputs_shape[:-1], memory_shape[-1])
        return shape

    def compute_output_spec(
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
        self._check_initial_state(initial_state)
        shapes = self.compute_output_shape(inputs.shape, None if memory is None else memory.shape)
        if return_attention_scores and memory is not None:
            shapes["weights"] = (*inputs.shape[:-1], memory.shape[-2])
        spec = {name: keras.KerasTensor(shape, dtype=self.compute_dtype) for name, shape in shapes.items()}
        if return_logits and memory is not None:
            spec["query"] = keras.KerasTensor(shapes["hidden"], dtype=self.compute_dtype)
            spec["logits"] = keras.KerasTensor((*inputs.shape[:-1], memory.shape[-2]), dtype="float32")
        if return_state:
            num_states = self.num_layers * CELLS[self.cell].num_states
            spec["state"] = [
                keras.KerasTensor((inputs.shape[0], self.units), dtype=self.compute_dtype) for _ in range(num_states)
            ]
        return spec

    def compute_mask(self, inputs, previous_mask=None):
        mask = previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask
        return {"hidden": mask} if self.attention is None else {"context": mask, "hidden": mask}

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "attention": serialize_part(self.attention),
            "cell": self.cell,
            "num_layers": self.num_layers,
            "query": self.query,
            "feeding": self.feeding,
            "residual": self.residual,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "seed": self.seed,
        }
