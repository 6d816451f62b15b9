"""Define the parts of a recurrent decoder: cells, attention, latent variables and `Carry`."""

from keras import ops, tree

from keras_vattn import random
from keras_vattn.alignments.variational_alignment import as_finite_float32
from keras_vattn.distributions.normal import clip_log_scale
from keras_vattn.draws.request import Seeds
from keras_vattn.recurrent.feeding import NoFeeding


class Part:
    """Base class of the parts of a `RecurrentDecoder`. The decoder calls the methods of a part, not the user.

    The parts of a decoder share four dictionaries. A part may read all values, and adds values under unique names:

    - `memory` and `noise` are computed before the loop over steps.
    - `state` contains the values that the previous step returned.
    - `results` contains the results of the current step so far.

    A part is not a layer. The decoder must create the layers that a part uses, so that Keras tracks and saves them.

    Example:

    >>> class Time(keras_vattn.recurrent.Part):
    ...     def start(self, batch_size, memory, initial_state):
    ...         return {"time": keras.ops.zeros((batch_size, 1))}
    ...     def step(self, results, state, memory, noise, training):
    ...         return {"seconds": 0.1 * state["time"]}, {"time": state["time"] + 1.0}
    """

    # Whether `after` computes the results of all steps. No step may then depend on these results.
    leaves_loop = False
    # A `keras.random.SeedGenerator`, for a part that samples noise without a layer.
    seed_generator = None

    def prepare_memory(self, memory, mask):
        """Return a dictionary that is added to the shared `memory`. `memory` and `mask` are arguments of the call."""
        return {}

    def prepare_inputs(self, inputs):
        """Return the projected inputs, a dictionary. All tensors are (B, T, ...), or (B, ...) for a single step."""
        return {}

    def draw_seeds(self, memory, training):
        """Return the `Seeds` of this part for one call of the decoder.

        By default, a training call draws one seed from `seed_generator`, for both noise and dropout. If a layer of the
        part samples, return `layer.draw_seeds(training)` instead. For `keras_vattn.Sampler(model, dropout=True)`, the
        decoder also calls this method with `training=True`, and uses only the dropout seed.
        """
        seed = random.draw_seed(self.seed_generator) if training and self.seed_generator else None
        return Seeds(noise=seed, dropout=seed)

    def draw_noise(self, batch_size, num_steps, memory, seeds):
        """Return the noise of all steps, a structure of (B, T, ...) tensors. Each step receives a slice (B, ...).

        Draw dropout masks with `seeds.dropout`, and other noise with `seeds.noise`. If a seed is `None`, draw nothing.
        The noise has no gradient. So use weights, such as a learned dropout rate, only in `step`.
        """
        return {}

    def start(self, batch_size, memory, initial_state):
        """Return the initial state of this part, a dictionary. `initial_state` is an argument of the call."""
        return {}

    def step(self, results, state, memory, noise, training):
        """Return the results and the next state, dictionaries of (B, ...) tensors, without side effects."""
        return {}, {}

    def after(self, results, memory, noise, training):
        """Return the results of all steps, (B, T, ...), without side effects. Called if `leaves_loop` is `True`."""
        return {}

    def kept(self, inputs):
        """Return the names of the results of `step` that `after` and `account` need."""
        return ()

    def account(self, results, memory, noise, mask, training):
        """Add the loss of this part, such as a KL. Call `add_loss` at most once.

        `results` contains (B, T, ...) tensors: the inputs, the results named by `kept`, and the results of `after`.
        `mask` is (B, T).
        """


class CellsPart(Part):
    """A stack of recurrent cells. Its result is `"hidden"`, (B, units), the output of the top cell.

    Args:
        cells: List of `RecurrentCell`, bottom first. `state["cells"]` is a list of their states, in this order.
        context: Function of `results` and `state` that returns the context of the first cell, (B, Dc); or `None`.
        dropout: Dropout rate applied during training to the inputs of every cell except the first. Defaults to 0.0.
        residual: Whether every cell except the first adds its input to its output. Defaults to `False`.
        seed_generator: `keras.random.SeedGenerator` for dropout, or `None`.
        name: Key in `state`. Any name other than `"cells"` is also a prefix for the results, as in `"lower_hidden"`.

    Example:

    >>> class Reader(keras_vattn.recurrent.RecurrentDecoder):
    ...     def build(self, inputs_shape, memory_shape=None):
    ...         self.cell = keras_vattn.LSTMCell(8)
    ...         self.cell.build(inputs_shape)
    ...     def parts(self):
    ...         return [keras_vattn.recurrent.CellsPart([self.cell])]
    >>> Reader()(keras.ops.ones((2, 4, 3)))["hidden"].shape
    TensorShape([2, 4, 8])
    """

    def __init__(self, cells, context=None, dropout=0.0, residual=False, seed_generator=None, name="cells"):
        self.cells = cells
        self.context = context
        self.dropout = dropout
        self.residual = residual
        self.seed_generator = seed_generator
        self.name = name
        self.prefix = _prefix(name, "cells")

    @property
    def num_states(self):
        return sum(cell.num_states for cell in self.cells)

    def prepare_memory(self, memory, mask):
        first, *upper = self.cells
        return {self.name: [first.loop_kernels(), *(cell.upper_kernels() for cell in upper)]}

    def prepare_inputs(self, inputs):
        first = self.cells[0]
        return {self.prefix + "projected": first.project_inputs(ops.cast(inputs["inputs"], first.compute_dtype))}

    def draw_seeds(self, memory, training):
        applies_dropout = training and self.dropout and len(self.cells) > 1
        return Seeds(dropout=random.draw_seed(self.seed_generator) if applies_dropout else None)

    def draw_noise(self, batch_size, num_steps, memory, seeds):
        if seeds.dropout is None:
            return {}
        masks = []
        for index, cell in enumerate(self.cells[1:], start=1):
            shape = (batch_size, num_steps, self.cells[index - 1].units)
            mask = random.uniform(shape, random.fold_in(seeds.dropout, index)) >= self.dropout
            masks.append(ops.cast(mask, cell.compute_dtype) / (1.0 - self.dropout))
        return {self.prefix + "dropout": masks}

    def start(self, batch_size, memory, initial_state):
        if initial_state is None:
            return {self.name: [x for cell in self.cells for x in cell.initial_states(batch_size)]}
        self.check_initial_state(initial_state)
        return {self.name: [ops.cast(x, self.cells[0].compute_dtype) for x in initial_state]}

    def check_initial_state(self, initial_state):
        """Raise ValueError unless `initial_state` is `None` or a list of `num_states` (B, units) tensors."""
        if initial_state is None:
            return
        units, shapes = self.cells[0].units, [tuple(x.shape) for x in initial_state]
        if len(shapes) != self.num_states or any(len(shape) != 2 or shape[-1] != units for shape in shapes):
            raise ValueError(
                f"`initial_state` must be a list of {self.num_states} tensors of shape (B, {units}). "
                f"Received: {len(shapes)} tensors of shapes {shapes}"
            )

    def step(self, results, state, memory, noise, training):
        projected, hidden, new_states = results[self.prefix + "projected"], None, []
        context = None if self.context is None else self.context(results, state)
        states, masks = list(state[self.name]), noise.get(self.prefix + "dropout")
        for index, (cell, kernels) in enumerate(zip(self.cells, memory[self.name], strict=True)):
            inputs = hidden
            previous, states = states[: cell.num_states], states[cell.num_states :]
            if index:
                hidden, new = cell.upper_step(inputs if masks is None else inputs * masks[index - 1], previous, kernels)
            else:
                hidden, new = cell.step(projected, context, previous, kernels)
            new_states.extend(new)
            if index and self.residual:
                hidden = hidden + inputs
        return {self.prefix + "hidden": hidden}, {self.name: new_states}


class AttentionPart(Part):
    """Attention over the memory.

    The results are `"query"` and the outputs of `Attention.attend`, such as `"context"`. With a `feeding`, `"fed"` is
    the context that the cell receives. If the inputs contain `"posterior_logits"`, these logits define the posterior
    of the attention weights.

    Args:
        attention: A built `Attention`.
        query: Function of `results` and `state` that returns the query, (B, Dq).
        feeding: A `Feeding`, or `None` to feed nothing. Defaults to `None`.
        leaves_loop: Whether to attend once after the loop, for all steps. Set this if no step depends on the attention.
            The option has no effect if the score has a state. Defaults to `False`.
        name: Key of this part in `memory` and `noise`. Any name other than `"attention"` is also used as a
            prefix for the results and inputs of the part, as in `"image_context"`.

    Example:

    >>> class Reader(keras_vattn.recurrent.RecurrentDecoder):
    ...     gives = ("hidden", "context")
    ...     def build(self, inputs_shape, memory_shape):
    ...         self.cell = keras_vattn.GRUCell(8)
    ...         self.attention = keras_vattn.Attention("additive")
    ...         self.cell.build(inputs_shape)
    ...         self.attention.build((None, None, 8), memory_shape)
    ...     def parts(self):
    ...         query = lambda results, state: results["hidden"]
    ...         attention = keras_vattn.recurrent.AttentionPart(
    ...             self.attention, query, leaves_loop=True
    ...         )
    ...         return [keras_vattn.recurrent.CellsPart([self.cell]), attention]
    >>> Reader()(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 5, 6)))["context"].shape
    TensorShape([2, 4, 6])
    """

    def __init__(self, attention, query, feeding=None, leaves_loop=False, name="attention"):
        self.attention = attention
        self.query = query
        self.feeding = NoFeeding() if feeding is None else feeding
        self.leaves_loop = leaves_loop and not attention.score.keeps_state
        self.name = name
        self.prefix = _prefix(name, "attention")

    def prepare_memory(self, memory, mask):
        memory = ops.cast(memory, self.attention.compute_dtype)
        mask = None if mask is None else ops.cast(mask, "bool")[:, None, :]
        return {self.name: self.attention.prepare_memory(memory, mask=mask)}

    def prepare_inputs(self, inputs):
        posterior_logits = None if self.leaves_loop else self._posterior_logits(inputs)
        return {} if posterior_logits is None else {self.prefix + "posterior_logits": posterior_logits}

    def draw_seeds(self, memory, training):
        return self.attention.draw_seeds(training)

    def draw_noise(self, batch_size, num_steps, memory, seeds):
        return {self.name: self.attention.draw_noise(batch_size, num_steps, memory[self.name], seeds)}

    def start(self, batch_size, memory, initial_state):
        score = self.attention.score
        if not score.keeps_state:
            return {}
        num_keys = ops.shape(memory[self.name]["value"])[1]
        return {self.prefix + "score": score.initial_state(batch_size, num_keys)}

    def step(self, results, state, memory, noise, training):
        query, score = self.query(results, state), self.prefix + "score"
        outputs, new_state = {self.prefix + "query": query}, {}
        if self.leaves_loop:
            return outputs, new_state
        posterior_logits = results.get(self.prefix + "posterior_logits")
        posterior_logits = None if posterior_logits is None else _one_step(posterior_logits)
        noise = tree.map_structure(_one_step, noise.get(self.name, {}))
        attended = self.attention.attend(
            _one_step(query), memory[self.name], noise, training, posterior_logits, state.get(score)
        )
        attended = tree.map_structure(lambda x: ops.squeeze(x, axis=1), attended)
        if self.feeding.feeds:
            outputs[self.prefix + "fed"] = self.feeding.context(attended, self.attention, memory[self.name])
        if score in state:
            new_state[score] = self.attention.score.next_state(state[score], self.feeding.weights(attended))
        return {**outputs, **self._named(attended)}, new_state

    def after(self, results, memory, noise, training):
        query, posterior_logits = results[self.prefix + "query"], self._posterior_logits(results)
        noise = noise.get(self.name, {})
        return self._named(self.attention.attend(query, memory[self.name], noise, training, posterior_logits))

    def kept(self, inputs):
        names = ["query"] if self.leaves_loop else []
        if self.attention.context.has_divergence:
            names += ["mean", "parameters", *["logits"] * self.attention.score.hides_keys]
        if self.attention.alignment_prior is not None or inputs.get(self.prefix + "posterior_logits") is not None:
            names.append("logits")
        return [self.prefix + name for name in names]

    def account(self, results, memory, noise, mask, training):
        names = [name for name in ("mean", "parameters", "logits") if self.prefix + name in results]
        attended = {name: results[self.prefix + name] for name in names}
        posterior_logits, noise = self._posterior_logits(results), noise.get(self.name, {})
        self.attention.account(attended, memory[self.name], noise, mask, training, posterior_logits)

    def _posterior_logits(self, results):
        return as_finite_float32(results.get(self.prefix + "posterior_logits"))

    def _named(self, attended):
        return {self.prefix + name: x for name, x in attended.items()}


class LatentPart(Part):
    """A Gaussian latent variable z at every step, with posterior q and prior p. The KL is added after the loop.

    The results are z (B, units) and the parameters of q and p.

    Formula:
        z_t ~ q = "Normal"(mu_(q,t), "diag"(sigma_(q,t)^2)), quad [mu_(q,t), log sigma_(q,t)] = "latent"("posterior"_t)
        p = "Normal"(mu_(p,t), "diag"(sigma_(p,t)^2)), quad [mu_(p,t), log sigma_(p,t)] = "prior"_t
        "KL" = sum_t "KL"(q(z_t) || p(z_t))

    Args:
        latent: A built `GaussianLatent`, which computes q from the result of `posterior`.
        posterior: Function of `results` and `state` that returns the input of q, (B, D). If the function returns
            `None`, as in generation, z follows p, and no KL is added.
        prior: Function of `results` and `state` that returns the concatenated mean and log sigma of p, (B, 2 units); or
            `None` for N(0, I). Defaults to `None`.
        name: Key of z. The parameters of q and p have the keys `name + "_posterior"` and `name + "_prior"`. Defaults to
            `"latent"`.

    Example:

    >>> class Walk(keras_vattn.recurrent.RecurrentDecoder):
    ...     gives = ("hidden", "latent")
    ...     def build(self, inputs_shape, memory_shape=None):
    ...         self.cell = keras_vattn.GRUCell(8)
    ...         self.latent = keras_vattn.GaussianLatent(3)
    ...         self.cell.build(inputs_shape, (None, 3))
    ...         self.latent.build((None, 8))
    ...     def parts(self):
    ...         hidden = lambda results, state: state["cells"][0]
    ...         z = lambda results, state: results["latent"]
    ...         latent = keras_vattn.recurrent.LatentPart(self.latent, hidden)
    ...         return [latent, keras_vattn.recurrent.CellsPart([self.cell], context=z)]
    >>> walk = Walk()
    >>> walk(keras.ops.ones((2, 4, 3)), training=True)["latent"].shape, len(walk.losses)
    (TensorShape([2, 4, 3]), 1)
    """

    def __init__(self, latent, posterior, prior=None, name="latent"):
        self.latent = latent
        self.posterior = posterior
        self.prior = prior
        self.name = name

    def prepare_memory(self, memory, mask):
        return {self.name: self.latent.kernels()}

    def draw_seeds(self, memory, training):
        return self.latent.draw_seeds(training)

    def draw_noise(self, batch_size, num_steps, memory, seeds):
        return {self.name: self.latent.draw_noise((batch_size, num_steps, self.latent.units), seeds.noise)}

    def step(self, results, state, memory, noise, training):
        outputs, parameters = {}, None
        if self.prior is not None:
            mean, log_scale = ops.split(self.prior(results, state), 2, axis=-1)
            parameters = outputs[self.name + "_prior"] = {"mean": mean, "log_scale": clip_log_scale(log_scale)}
        inputs = self.posterior(results, state)
        if inputs is not None:
            parameters = outputs[self.name + "_posterior"] = self.infer(inputs, parameters, memory)
        if parameters is None:
            batch_size = ops.shape(tree.flatten((results, state))[0])[0]
            zeros = ops.zeros((batch_size, self.latent.units), "float32")
            parameters = {"mean": zeros, "log_scale": zeros}
        outputs[self.name] = self.latent.sample(parameters, noise.get(self.name, {}), training)
        return outputs, {}

    def infer(self, inputs, prior, memory):
        """Return the parameters of q. `inputs` is the result of `posterior`. `prior` is `None` if p is N(0, I)."""
        return self.latent.parameters(inputs, memory[self.name])

    def kept(self, inputs):
        return (self.name + "_posterior", self.name + "_prior")

    def account(self, results, memory, noise, mask, training):
        if self.name + "_posterior" in results:
            self.latent.account(results[self.name + "_posterior"], mask, training, results.get(self.name + "_prior"))


class Carry(Part):
    """Passes a result to the next step: `state[name]` is `results[name]` of the previous step, initially zeros.

    Args:
        name: Name of the result, for instance `"fed"`.
        width: Width of the result.
        dtype: Dtype of the result. Defaults to `"float32"`.

    Example:

    >>> carry = keras_vattn.recurrent.Carry("fed", 3)
    >>> carry.start(2, memory={}, initial_state=None)["fed"].shape
    TensorShape([2, 3])
    """

    def __init__(self, name, width, dtype="float32"):
        self.name = name
        self.width = width
        self.dtype = dtype

    def start(self, batch_size, memory, initial_state):
        return {self.name: ops.zeros((batch_size, self.width), self.dtype)}

    def step(self, results, state, memory, noise, training):
        return {}, {self.name: results[self.name]}


def _one_step(x):
    # `expand_dims` has a faster gradient than `x[:, None]`.
    return ops.expand_dims(x, axis=1)


def _prefix(name, default):
    return "" if name == default else f"{name}_"
