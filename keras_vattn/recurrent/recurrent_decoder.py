import keras
import tensorflow as tf
from keras import ops, tree

from keras_vattn.draws.request import Seeds, training_requested
from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.loop import scan
from keras_vattn.support.masks import first_mask, where_rows
from keras_vattn.support.quantization import QuantizedSublayers


class RecurrentDecoder(QuantizedSublayers, FeatureInputs, keras.layers.Layer):
    """Base class of recurrent decoders. A subclass combines parts, such as cells and attention, into a decoding step.

    A subclass creates layers. The method `parts` of the subclass returns the parts of a step, in order. A call of the
    decoder runs the parts in a loop over all steps. After the loop, each layer that has a KL calls `add_loss` once.
    A masked step does not change the state and adds no KL. For generation, call the method `step`.

    Call arguments:
        inputs: (B, T, D).
        memory: Argument of `prepare_memory`, for instance encoder outputs (B, S, Dm); or `None`.
        initial_state: List of (B, units) tensors, the initial states of the cells, or `None` for zeros.
        inputs_mask: Boolean (B, T).
        memory_mask: Boolean (B, S).
        training: Whether to sample noise and apply dropout.

    Returns:
        A dictionary of (B, T, ...) tensors. The class attribute `gives` lists its keys.

    Example:

    >>> class Reader(keras_vattn.recurrent.RecurrentDecoder):
    ...     def __init__(self, units, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.cell = keras_vattn.GRUCell(units)
    ...     def build(self, inputs_shape, memory_shape=None):
    ...         self.cell.build(inputs_shape)
    ...     def parts(self):
    ...         return [keras_vattn.recurrent.CellsPart([self.cell])]
    >>> Reader(8)(keras.ops.ones((2, 4, 3)))["hidden"].shape
    TensorShape([2, 4, 8])
    """

    gives = ("hidden",)
    feature_arguments = ("inputs", "memory")
    # Without this flag, `keras_vattn.Sampler(model, dropout=True)` would replace `call`.
    reads_dropout_requests = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def rematerialized_call(self, layer_call, *arguments, **options):
        """Return the call unchanged. The loop already recomputes values in the backward pass."""
        return layer_call

    def parts(self):
        """Return a list of the `Part` objects of a step, in order. Called often, so it must not create layers."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `parts`.")

    def prepare_memory(self, memory=None, memory_mask=None):
        """Return the prepared memory, the argument `memory` of `draw_noise`, `start` and `step`."""
        return _merge("memory", [part.prepare_memory(memory, memory_mask) for part in self.parts()])

    def draw_noise(self, batch_size, num_steps, memory, training=False):
        """Return the noise of all steps, a structure of (B, T, ...) tensors. `step` needs a slice (B, ...) of each."""
        parts = self.parts()
        seeds = [part.draw_seeds(memory, training) for part in parts]
        if training_requested(self) and not training:
            dropout_seeds = [part.draw_seeds(memory, True).dropout for part in parts]
            seeds = [Seeds(x.noise, dropout, x.training) for x, dropout in zip(seeds, dropout_seeds, strict=True)]
        noise = [part.draw_noise(batch_size, num_steps, memory, x) for part, x in zip(parts, seeds, strict=True)]
        return _merge("noise", noise)

    def start(self, batch_size, memory, initial_state=None):
        """Return the state before the first step, a dictionary.

        Args:
            batch_size: B, an integer or a scalar tensor.
            memory: Result of `prepare_memory`.
            initial_state: Initial states of the cells, or `None` for zeros; as in `call`.
        """
        return _merge("state", [part.start(batch_size, memory, initial_state) for part in self.parts()])

    def step(self, inputs, state, memory, noise=None):
        """Run one decoding step. A step adds no loss, updates no metric and reads no seed.

        Args:
            inputs: (B, D), the input of this step; or a dictionary of (B, ...) tensors with the key `"inputs"`.
            state: Result of `start`, or the state that the previous step returned.
            memory: Result of `prepare_memory`.
            noise: Slice (B, ...) of the result of `draw_noise`, or `None`.

        Returns:
            A pair `(results, next_state)`. `results` is a dictionary of (B, ...) tensors or nested dictionaries.
        """
        parts, noise = self.parts(), noise or {}
        inputs = inputs if isinstance(inputs, dict) else {"inputs": inputs}
        prepared = _prepared_inputs(parts, inputs)
        results, state = _run_step(parts, prepared, state, memory, noise, training=False)
        for part in parts:
            if part.leaves_loop:
                stored = {name: results[name] for name in part.kept(inputs) if name in results}
                sequences = tree.map_structure(lambda x: x[:, None], ({**inputs, **stored}, noise))
                outputs = part.after(sequences[0], memory, sequences[1], training=False)
                results = _merge("result", [results, tree.map_structure(lambda x: x[:, 0], outputs)])
        return {name: x for name, x in results.items() if name not in prepared}, state

    def run(
        self,
        inputs,
        memory=None,
        initial_state=None,
        inputs_mask=None,
        memory_mask=None,
        keep=("hidden",),
        training=None,
    ):
        """Run all steps and add the losses. A subclass uses this method to implement `call`.

        Args:
            inputs: Dictionary of (B, T, ...) tensors with the key `"inputs"`.
            memory, initial_state, inputs_mask, memory_mask, training: As in `call`.
            keep: Names of the results to return.

        Returns:
            A dictionary of (B, T, ...) tensors, with the keys `keep`; and the last state.
        """
        parts, prepared = self.parts(), self.prepare_memory(memory, memory_mask)
        batch_size, num_steps = ops.shape(inputs["inputs"])[:2]
        noise = self.draw_noise(batch_size, num_steps, prepared, training)
        noise = tree.map_structure(tf.stop_gradient, noise)
        stored = {*keep, *(name for part in parts for name in part.kept(inputs))}

        def step(x, state):
            results, new_state = _run_step(parts, x["inputs"], state, prepared, x["noise"], training)
            if "mask" in x:
                new_state = tree.map_structure(lambda new, old: where_rows(x["mask"], new, old), new_state, state)
            return {name: y for name, y in results.items() if name in stored}, new_state

        sequences = {"inputs": _prepared_inputs(parts, inputs), "noise": noise}
        if inputs_mask is not None:
            sequences["mask"] = ops.cast(inputs_mask, "bool")
        stacked, state = scan(
            step, self.start(batch_size, prepared, initial_state), sequences, num_steps, training, ("noise",)
        )
        results = {**inputs, **stacked}
        for part in parts:
            if part.leaves_loop:
                results = {**results, **part.after(results, prepared, noise, training)}
        for part in parts:
            part.account(results, prepared, noise, inputs_mask, training)
        return {name: results[name] for name in keep}, state

    def call(self, inputs, memory=None, initial_state=None, inputs_mask=None, memory_mask=None, training=None):
        return self.run({"inputs": inputs}, memory, initial_state, inputs_mask, memory_mask, self.gives, training)[0]

    def _output_spec(self, cells, call_arguments):
        """Return the symbolic outputs of a decoder with attention."""
        inputs, memory = call_arguments["inputs"], call_arguments["memory"]
        cells.check_initial_state(call_arguments["initial_state"])
        shapes = self.compute_output_shape(inputs.shape, None if memory is None else memory.shape)
        if call_arguments["return_attention_scores"] and memory is not None:
            shapes["weights"] = (*inputs.shape[:-1], memory.shape[-2])
        if call_arguments["return_state"]:
            shapes["state"] = [(inputs.shape[0], self.units) for _ in range(cells.num_states)]
        make_spec = lambda shape: keras.KerasTensor(shape, dtype=self.compute_dtype)  # noqa: E731
        return {name: [*map(make_spec, x)] if name == "state" else make_spec(x) for name, x in shapes.items()}

    def compute_mask(self, inputs, previous_mask=None):
        return dict.fromkeys(self.gives, first_mask(previous_mask))


def _run_step(parts, results, state, memory, noise, training):
    """Run one step of all parts, in order, and return the results and the next state."""
    new_state = {}
    for part in parts:
        outputs, updates = part.step(results, state, memory, noise, training)
        results, new_state = _merge("result", [results, outputs]), _merge("state", [new_state, updates])
    return results, {**state, **new_state}


def _prepared_inputs(parts, inputs):
    return _merge("inputs", [part.prepare_inputs(inputs) for part in parts])


def _merge(kind, dictionaries):
    merged = {}
    for dictionary in dictionaries:
        for name in dictionary:
            if name in merged:
                raise ValueError(
                    f"Two parts of a decoder use the same name in the {kind}: change the `name` of one part. "
                    f"Received: {name}"
                )
        merged.update(dictionary)
    return merged
