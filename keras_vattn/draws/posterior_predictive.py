"""Draws from the posterior predictive distribution."""

import functools
import random as python_random

import numpy as np
import tensorflow as tf
from keras import tree

from keras_vattn import random
from keras_vattn.draws.batches import batches_of
from keras_vattn.draws.kept_functions import kept_function
from keras_vattn.draws.model_noise import ModelNoise, by_draw, repeated
from keras_vattn.draws.shared_prefix import SharedPrefix, draws_in_a_loop
from keras_vattn.support.validation import one_of, positive_integer

# How draws are added up, and what their sum is divided by.
REDUCTIONS = {
    "none": None,
    "mean": (np.add, np.divide),
    "log_mean_exp": (np.logaddexp, lambda total, count: total - np.log(count)),
}


def posterior_predictive(
    model, inputs, num_samples, dropout=False, seed=None, batch_size=32, max_rows=256, posterior=True, reduce="none"
):
    """Return draws of a model's outputs from the posterior predictive distribution.

    Every draw is one pass through the model under fresh noise: every stochastic layer draws from its posterior, and
    with `dropout=True` every dropout drops as well (MC dropout, Gal and Ghahramani 2016; Fan et al. 2020, section 4.2,
    use dropout alone for the deterministic rows and dropout with the posterior for the others). With `posterior=False`
    only dropout is random, in a stochastic model too: the difference is the uncertainty of the attention.

    To draw attention weights, make them an output of the model: `keras.Model(model.inputs, [model.output, weights])`,
    where the model has called its attention with `return_attention_scores=True` from the beginning. (A second call for
    the weights alone fails in Keras 3.15, "Output with path ... is not connected".)

    `dropout=True` is not `training=True`. The model runs as at inference, batch normalisation with its moving
    averages. Only layers with a dropout of their own (`rate`, `dropout`, `recurrent_dropout`, `feature_dropout` or
    `dropout_rate` above 0 and a seed generator), including `keras_vattn.WordDropout`, drop as in training. No variable
    of the model changes, whatever the options: not the averages, the layers' counts of training calls, the KL in the
    log or the seed generators.

    What no draw changes is computed once a batch: in a functional or sequential model, and in such models among its
    layers, all operations before the first that draws or drops. The rest runs for several draws of a batch together,
    repeated on the first axis, as far as `max_rows` allows: the noise depends on the seed, `num_samples`, `batch_size`
    and `max_rows`. A model with a `call` of its own is repeated as a whole. A model whose examples share noise runs one
    draw at a time: it has a layer with `mixes_examples` (`GraphAttention`), or a Keras dropout whose `noise_shape`
    begins with 1.

    The model keeps its traced functions, so that a later call with the same options starts at once if its inputs differ
    only in the number of examples. Weights and counts of training calls are read in every call. The model is traced
    again after a new value of a public attribute of a layer, of its alignment or of its context (`rate`, `alignment.k`,
    the dtype policy), after a change of layers and after `compile`. Anything else that the code of a layer reads, such
    as a private attribute, a global or the inside of a list, is as it was when the model was traced, as in `predict`.

    Several threads may call it at once: they trace one after the other, and wait for a thread inside `posterior_draws`
    to leave it. Meanwhile the model behaves as always in every other thread.

    Args:
        model: A built `keras.Model`.
        inputs: Array, or list or dictionary of arrays, as for `predict`; or a `tf.data.Dataset`,
            `keras.utils.PyDataset` or generator of batches x, (x, y) or (x, y, weights), of which x is used, with
            batches as they are. A KerasHub task with a preprocessor takes strings as its `predict` does: a list or
            array of them, a tuple of lists for pairs of segments, or a dataset.
        num_samples: Number of draws.
        dropout: Whether dropout is on. Defaults to `False`.
        seed: `None` (fresh draws each time, which `keras.utils.set_random_seed` repeats), an integer or an int32 tensor
            of shape () or (2,). Defaults to `None`.
        batch_size: Number of examples in a batch of arrays; a dataset has its own. Defaults to 32.
        max_rows: The memory limit: the largest number of rows (examples times draws) that go through the model
            together; at least one draw of a batch does. 1 means one draw at a time. Defaults to 256.
        posterior: Whether stochastic layers draw, instead of using their mean. Defaults to `True`.
        reduce: `"mean"` for the mean of the draws, and `"log_mean_exp"` for the logarithm of the mean of their
            exponentials, where the outputs are log-probabilities: float32, with `max_rows` rows in memory at a time
            instead of all draws of (T, V) words. `"none"` for all draws. Defaults to `"none"`.

    Returns:
        NumPy arrays in the structure of the model's outputs, each (num_samples, N, ...), or (N, ...) where the draws
        are reduced.

    Raises:
        ValueError: If the model is not built, or has no stochastic layer that draws and no dropout that is on; if a
            number is not a positive integer; if the inputs are a list of strings and the model is no KerasHub task with
            a preprocessor; if the inputs are empty or differ in length (a graph, whose inputs have no common first
            axis, comes as a dataset with `max_rows=1`); if an output has no batch axis, or batches give outputs of
            different shapes.

    Example:

    >>> x = keras.random.normal((5, 3))
    >>> inputs = keras.Input((3,))
    >>> model = keras.Model(inputs, keras.layers.Softmax()(keras_vattn.GaussianLatent(4)(inputs)))
    >>> draws = keras_vattn.posterior_predictive(model, x, num_samples=20, seed=1)
    >>> draws.shape, bool((draws == keras_vattn.posterior_predictive(model, x, num_samples=20, seed=1)).all())
    ((20, 5, 4), True)
    >>> keras_vattn.metrics.predictive_entropy(draws).shape
    (5,)
    """
    for name, value in (("num_samples", num_samples), ("batch_size", batch_size), ("max_rows", max_rows)):
        positive_integer(name, value)
    one_of("reduce", reduce, REDUCTIONS)
    if not model.built:
        raise ValueError(
            f"`posterior_predictive` needs a built model: call it once. Received: {model.name}.built=False"
        )
    noise = ModelNoise(model, dropout, posterior)
    seed = random.as_seed(python_random.getrandbits(32) if seed is None else seed)
    traced, results = None, []

    def halves_of(repeats, shares=True):
        options = (bool(dropout), bool(posterior), repeats, shares, repr(spec))
        return kept_function(model, options, lambda: _halves(model, noise, spec, repeats, shares))

    for index, (batch, spec) in enumerate(batches_of(model, inputs, batch_size)):
        if spec != traced:
            traced = spec
            repeats = noise.examples_are_apart and _draws_together(batch, num_samples, max_rows) > 1
            halves = halves_of(repeats)
        together = _draws_together(batch, num_samples, max_rows) if repeats else 1
        shared = halves[0](batch)
        if repeats and {len(x) for x in shared} - {len(x) for x in tree.flatten(batch)}:
            # A layer has moved the examples from the first axis, on which they are repeated.
            halves = halves_of(repeats, shares=False)
            shared = halves[0](batch)
        draw = functools.partial(halves[1], batch, shared)
        of_batch, starts = random.fold_in(seed, index), range(0, num_samples, together)
        draws = (draw(random.fold_in(of_batch, i), min(together, num_samples - i)) for i in starts)
        results.append(_reduced(draws, reduce, num_samples))
    if not results:
        raise ValueError("`inputs` must hold at least one batch. Received: an empty dataset")
    return tree.map_structure(functools.partial(_join, axis=int(reduce == "none")), *results)


def _draws_together(batch, num_samples, max_rows):
    """Return how many draws of a batch go through the model together."""
    leaves = tree.flatten(batch)
    if not all(isinstance(x, (np.ndarray, tf.Tensor)) for x in leaves):
        return 1
    rows = [x.shape[0] if x.shape else 0 for x in leaves]
    together = min(num_samples, max_rows // max(1, *rows))
    if together > 1 and min(rows) != max(rows):
        raise ValueError(
            "Draws go through the model together, repeated on the first axis, which the inputs of a batch must have in "
            f"common; without one, as in a graph, give max_rows=1. Received: {[tuple(x.shape) for x in leaves]}"
        )
    return max(1, together)


def _halves(model, noise, spec, repeats, shares):
    """Return two functions: the first returns what all draws of a batch share; the second draws, from the batch, the
    shared tensors, a seed and a number of draws, 1 unless it repeats the batch."""
    prefix = SharedPrefix(model, noise)
    first = tf.function(prefix.first, input_signature=[spec])
    if not shares or draws_in_a_loop(first.get_concrete_function()):
        prefix = SharedPrefix(model, noise)
    shared = [tf.TensorSpec(x.shape, x.dtype) for x in prefix.crossing.values()]

    def draw(inputs, shared, seed, count):
        if repeats:
            inputs, shared = repeated((inputs, shared), count)
        with noise.drawn_from(seed):
            outputs = prefix.rest(inputs, shared)
        return tree.map_structure(lambda x: by_draw(x, count), outputs)

    seed_and_count = tf.TensorSpec((2,), tf.int32), tf.TensorSpec((), tf.int32)
    rest = tf.function(draw, input_signature=[spec, shared, *seed_and_count])
    # Traced here, and not where it is first called: who has the turn waits for no thread that traces it.
    rest.get_concrete_function()
    return (first if shared else lambda batch: []), rest


def _reduced(draws, reduce, num_samples):
    """Return the arrays (num_samples, B, ...), or (B, ...), of a few draws (k, B, ...) at a time."""
    if reduce == "none":
        return tree.map_structure(lambda *x: np.concatenate([part.numpy() for part in x]), *draws)
    add, share = REDUCTIONS[reduce]
    parts = (tree.map_structure(lambda x: add.reduce(x.numpy().astype("float32")), some) for some in draws)
    total = functools.reduce(functools.partial(tree.map_structure, add), parts)
    return tree.map_structure(lambda x: share(x, np.float32(num_samples)), total)


def _join(*batches, axis):
    """Return the batches joined along the axis of the examples."""
    shapes = [(*x.shape[:axis], *x.shape[axis + 1 :]) for x in batches]
    if len(set(shapes)) > 1:
        raise ValueError(
            "The outputs of the batches must have one shape but for the batch axis: pad the inputs to one length. "
            f"Received: {sorted(set(shapes))}"
        )
    return np.concatenate(batches, axis=axis)
