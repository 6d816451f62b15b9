"""The battery: symbolic, eager, graph and compiled calls of every public layer, in every precision."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from battery_cases import BATCH
from battery_checks import HALF_POLICIES, all_finite, assert_close, linear, training_argument, value_and_gradients
from battery_table import CASES, build_model, every_row, rows
from keras import tree


@every_row
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


def rows_that_learn(named=""):
    """The weights of a GaussianContext alone have no gradient: the rows of the attentions train it. Nor has the score
    behind one-hot weights: RewardToGo trains it."""
    without = ("gaussian-context", "one-hot")
    return rows(lambda case: named in case.name and not any(name in case.name for name in without))


@rows_that_learn()
def test_fit_under_xla(case):
    check_fit(case, jit_compile=True)


@rows_that_learn("decoder")
def test_fit_of_a_loop(case):
    """Loops have two forms, one of them for XLA; everything else is the same graph."""
    check_fit(case, jit_compile=False)


def check_fit(case, jit_compile):
    layer = case.make()
    model = build_model(case, layer)
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
    trained = layer.trainable_weights or model.trainable_weights
    before = [w.numpy() for w in trained]
    history = model.fit({**case.arrays(), **case.masks()}, np.zeros((BATCH, 1)), verbose=0).history
    assert np.isfinite(history["loss"][0])
    assert any(np.any(w.numpy() != old) for w, old in zip(trained, before))
    trackers = [name for name in history if name.endswith("_kl")]
    assert len(trackers) == case.divergence
    assert all(np.isfinite(history[name][0]) and history[name][0] > 0 for name in trackers)


@pytest.mark.parametrize("policy", HALF_POLICIES)
@rows_that_learn()
def test_fit_in_half_precision(case, policy):
    keras.config.set_dtype_policy(policy)
    layer = case.make()
    model = build_model(case, layer)
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    logs = model.train_on_batch({**case.arrays(), **case.masks()}, np.zeros((BATCH, 1)), return_dict=True)
    assert np.isfinite(logs["loss"])


@pytest.mark.parametrize("policy", HALF_POLICIES)
@every_row
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
        # The rate of a Weibull variable has the exponential of a logit, and bfloat16 three digits of that.
        np.testing.assert_allclose(loss, accurate, rtol=0.15 if policy == "mixed_bfloat16" else 0.05)
    specs = {name: keras.KerasTensor(tuple(x.shape), x.dtype.name) for name, x in case.arrays().items()}
    assert tree.map_structure(lambda x: x.dtype, layer(**specs)) == case.dtypes(layer, half)


# Gradients past float16's 65504: of a dot-product decoder, which only a large memory gives large logits, and of the KLs
# that grow without bound where q and p are a thousand nats apart.
PAST_FLOAT16 = (
    "weibull-posterior",
    "weibull-raw-fixed",
    "lognormal-paper",
    "lognormal-raw-fixed",
    "graph-lognormal-fixed",
    "bayesian-attention",
)


def fits_float16(case):
    return case.name not in PAST_FLOAT16 and not (case.name.startswith("decoder") and "dot" in case.name)


@pytest.mark.parametrize(
    ("case", "policy"),
    [
        pytest.param(case, policy, id=f"{policy}-{case.name}")
        for case in CASES
        for policy in ("float32", *HALF_POLICIES)
        if case.has_logits and (policy != "mixed_float16" or fits_float16(case))
    ],
)
def test_extreme_logits_are_finite(case, policy):
    keras.config.set_dtype_policy(policy)
    layer = case.built()
    arrays = case.make_extreme(layer, case.arrays())
    training = bool(training_argument(case, True)) or None
    result, value, gradients = value_and_gradients(case, layer, arrays, case.masks(), training, objective=linear)
    assert all_finite([result, value, gradients])
