"""Checks symbolic, eager, graph and compiled calls of every public layer, in every precision."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from battery_cases import BATCH
from battery_checks import all_finite, assert_close, assert_equal, linear, training_argument, value_and_gradients
from battery_parts import EntriesCase, SoftmaxCase
from battery_table import CASES, build_model, half_precision_rows, rows
from keras import ops, tree


@rows(costly=True)
def test_symbolic_eager_and_graph_calls_agree(case):
    layer = case.built(seed=1) if case.draws else case.built()
    arrays = {**case.arrays(), **case.masks()}
    eager = layer(**arrays)
    specs = {name: tf.TensorSpec([None] * (x.shape.rank - 1) + [x.shape[-1]], x.dtype) for name, x in arrays.items()}
    for name, spec in specs.items():
        if not spec.dtype.is_floating:
            specs[name] = tf.TensorSpec([None] * spec.shape.rank, spec.dtype)
    graph = tf.function(lambda arrays: layer(**arrays), input_signature=[specs])
    assert_close(graph(arrays), eager, rtol=1e-5, atol=1e-6)
    symbolic = layer(**{n: keras.KerasTensor(tuple(spec.shape), spec.dtype.name) for n, spec in specs.items()})
    tree.assert_same_structure(symbolic, eager)
    for specified, actual in zip(tree.flatten(symbolic), tree.flatten(eager)):
        assert specified.dtype == actual.dtype.name
        assert len(specified.shape) == actual.shape.rank
        assert all(a is None or a == b for a, b in zip(specified.shape, actual.shape))
        assert specified.shape[0] is None
    computed = case.output_shapes(layer)
    computed = {n: tuple(x) for n, x in computed.items()} if isinstance(computed, dict) else tuple(computed)
    assert computed == case.known_shapes(eager)


def widths_of(case):
    """Return the inputs whose last axis is a feature width. The last axis of logits and probabilities is the number of
    keys, and Keras itself checks the LSTM."""
    lengths = {"posterior_logits", "weights", "logits", "log_likelihood", "log_prior", "log_posterior"}
    lengths |= {"inputs", "sequences"} if isinstance(case, (EntriesCase, SoftmaxCase)) else set()
    return [name for name, x in case.arrays().items() if name not in lengths and x.dtype.is_floating]


@rows(widths_of, by_class=True)
def test_a_width_that_differs_from_build(case):
    """A wrong width raises an error that names the argument, eagerly and symbolically, if the layer has weights."""
    layer, arrays = case.built(), case.arrays()
    wide = {name: ops.concatenate([arrays[name], arrays[name][..., :1]], axis=-1) for name in widths_of(case)}
    if not layer.weights:
        layer(**{**arrays, **wide})
        return
    for name, x in wide.items():
        inputs = {**arrays, name: x}
        # If there is no key, the values are used as keys.
        names = {name, "key"} if name == "value" and "key" not in inputs else {name}
        if names.isdisjoint(layer.width_arguments):
            layer(**inputs)
            continue
        symbolic = {other: keras.KerasTensor((None, *x.shape[1:]), x.dtype.name) for other, x in inputs.items()}
        for each in (inputs, symbolic):
            with pytest.raises(ValueError, match=rf"built for a `{name}` of width .* Received: {name}\.shape="):
                layer(**each)


# Dropout is excluded, because Keras's dropout rejects integers.
@rows(lambda case: case.name not in ("dropout", "word-dropout"), by_class=True)
def test_integers_give_the_results_of_floats(case):
    floats = {name: tf.round(2.0 * x) if x.dtype.is_floating else x for name, x in case.arrays().items()}
    integers = {name: ops.cast(x, "int32") for name, x in floats.items()}
    layer = case.built()
    result, expected = layer(**integers), layer(**floats)
    assert_close(result, expected, rtol=1e-6, atol=1e-6)
    assert [x.dtype for x in tree.flatten(result)] == [x.dtype for x in tree.flatten(expected)]


@rows(lambda case: case.learns, expensive=True)
def test_fit_under_xla(case):
    check_fit(case, jit_compile=True)


@rows(lambda case: case.learns and case.has_loop, expensive=True)
def test_fit_of_a_loop(case):
    """Layers with a loop build another graph for XLA, so the graph without XLA is tested here for these layers."""
    check_fit(case, jit_compile=False)


@functools.cache
def fitted_step_by_step(case_name):
    """Return the log and the weights of one eager float32 step, the reference of several checks."""
    return fitted(next(case for case in CASES if case.name == case_name), run_eagerly=True)


def fitted(case, **compile_options):
    """Return the log of one step of `fit`, a dictionary, and the weights before and after the step.

    With a learning rate of 1, the difference of the weights is the gradient.
    """
    keras.utils.set_random_seed(20180)
    layer = case.make(name="fitted")
    model = build_model(case, layer)
    model.compile(keras.optimizers.SGD(1.0), "mse", **compile_options)
    weights = layer.trainable_weights or model.trainable_weights
    before = [w.numpy() for w in weights]
    data = {**case.arrays(), **case.masks()}, np.zeros((BATCH, 1))
    history = model.fit(*data, shuffle=False, verbose=0).history
    return {name: values[0] for name, values in history.items()}, before, [w.numpy() for w in weights]


def check_fit(case, jit_compile):
    """A step of `fit` equals the eager step with the same seed, because draws are the same in every mode."""
    logs, before, after = fitted(case, jit_compile=jit_compile)
    expected_logs, expected_before, expected = fitted_step_by_step(case.name)
    assert_equal(before, expected_before)
    steps, expected_steps = ([new - old for new, old in zip(each, before)] for each in (after, expected))
    for step, expected_step in zip(steps, expected_steps, strict=True):
        # The tolerance covers the rounding of the gradient and of the weight from which it is subtracted.
        np.testing.assert_allclose(step, expected_step, rtol=0, atol=1e-3 * np.abs(expected_step).max() + 1e-6)
    assert any(np.any(step) for step in steps)
    # Sublayers of the two models have different names, so compare only the values.
    assert_close([*logs.values()], [*expected_logs.values()], rtol=1e-5)
    trackers = [name for name in logs if name.endswith("_kl")]
    assert len(trackers) == case.divergence
    assert all(logs[name] > 0 or (case.estimates_divergence and logs[name]) for name in trackers)


@half_precision_rows(lambda case: case.learns, expensive=True)
def test_fit_in_half_precision(case, policy):
    """With equal draws, the loss and KL of a half-precision step equal those of the float32 step up to rounding."""
    logs, before, _ = fitted_step_by_step(case.name)
    keras.config.set_dtype_policy(policy)
    half_logs, half_before, half_after = fitted(case, run_eagerly=True)
    assert_equal(half_before, before)
    assert all_finite(half_after)
    error = 0.15 if policy == "mixed_bfloat16" else 0.05
    # Sublayers of the two models have different names, so compare only the values.
    for (name, value), half in zip(logs.items(), half_logs.values(), strict=True):
        if name == "loss" or name.endswith("_kl"):
            np.testing.assert_allclose(half, value, rtol=error, err_msg=name)


@half_precision_rows(costly=True)
def test_half_precision(case, policy):
    reference = case.built()
    keras.config.set_dtype_policy(policy)
    layer = case.built()
    layer.set_weights(reference.get_weights())
    half, single = layer(**case.arrays()), reference(**case.arrays())
    assert tree.map_structure(lambda x: x.dtype.name, half) == case.dtypes(layer, half)
    assert_close(half, single, atol=0.1 if policy == "mixed_bfloat16" else 0.02, rtol=0)
    assert all(w.dtype == "float32" for w in layer.trainable_weights)
    assert len(layer.losses) == case.divergence
    for loss, accurate in zip(layer.losses, reference.losses):
        assert loss.dtype == tf.float32
        # The rate of a Weibull contains the exponential of a logit, which bfloat16 stores with three digits.
        np.testing.assert_allclose(loss, accurate, rtol=0.15 if policy == "mixed_bfloat16" else 0.05)
    specs = {name: keras.KerasTensor(tuple(x.shape), x.dtype.name) for name, x in case.arrays().items()}
    assert tree.map_structure(lambda x: x.dtype, layer(**specs)) == case.dtypes(layer, half)


@rows(lambda case: case.has_logits, costly=True)
def test_extreme_logits_are_finite_in_float32(case):
    check_extreme(case)


@half_precision_rows(lambda case: case.has_logits, costly=True, extreme=True)
def test_extreme_logits_are_finite(case, policy):
    keras.config.set_dtype_policy(policy)
    check_extreme(case)


def check_extreme(case):
    layer = case.built()
    arrays = case.make_extreme(layer, case.arrays())
    training = bool(training_argument(case, True)) or None
    result, value, gradients = value_and_gradients(case, layer, arrays, case.masks(), training, objective=linear)
    assert all_finite([result, value, gradients])
