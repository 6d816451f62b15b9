"""The battery: what every public layer must do, whatever it computes. The rows are in battery_cases.py."""

import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from battery_cases import BATCH, CASES, SOURCE, DecoderCase, VectorLatentCase, build_model
from keras import ops, tree
from log_laplace import LogLaplace

import keras_vattn

HALF_POLICIES = ["mixed_float16", "mixed_bfloat16"]


def rows(condition=lambda case: True):
    return pytest.mark.parametrize("case", [case for case in CASES if condition(case)], ids=lambda case: case.name)


every_row = rows()
rows_with_divergence = rows(lambda case: case.divergence)
rows_with_draws = rows(lambda case: case.draws)
rows_with_key_mask = rows(lambda case: case.key_mask)


def takes_training(case):
    return "training" in inspect.signature(case.make().call).parameters


rows_with_training = rows(takes_training)


@pytest.fixture
def no_noise(monkeypatch):
    """Normals are 0, uniforms 0.75, alignments without noise: draws are their mean and dropout keeps every entry."""
    for alignment in (*keras_vattn.alignments.ALIGNMENTS.values(), LogLaplace):
        monkeypatch.setattr(alignment, "noise", lambda self, shape, seed: None)
    monkeypatch.setattr(keras_vattn.random, "normal", lambda shape, seed: tf.zeros(shape))
    monkeypatch.setattr(keras_vattn.random, "uniform", lambda shape, seed: tf.fill(shape, 0.75))


def assert_close(first, second, **tolerance):
    tree.assert_same_structure(first, second)
    for one, two in zip(tree.flatten(first), tree.flatten(second)):
        np.testing.assert_allclose(ops.cast(one, "float32"), ops.cast(two, "float32"), **tolerance)


def assert_equal(first, second):
    assert_close(first, second, rtol=0, atol=0)


def differ(case, first, second):
    return any(not np.array_equal(a, b) for a, b in zip(case.floats(first), case.floats(second), strict=True))


def all_finite(tensors):
    return all(np.isfinite(ops.cast(ops.convert_to_tensor(x), "float32")).all() for x in tree.flatten(tensors))


def floats_of(arrays):
    return {name: x for name, x in arrays.items() if x.dtype.is_floating}


def objective(case, layer, result):
    """A mean over the batch that every output and the KL enter."""
    outputs = case.floats(result)
    return sum(ops.sum(ops.square(x)) / outputs[0].shape[0] for x in outputs) + sum(layer.losses)


def weight_gradients(layer, gradients):
    return [gradients[w.path] for w in layer.trainable_weights]


def linear(case, layer, result):
    """An objective whose own gradient stays inside half precision."""
    return sum(ops.mean(x) for x in case.floats(result)) + sum(layer.losses)


def value_and_gradients(case, layer, arrays, masks=None, training=True, objective=objective):
    """The result of a call, the objective, and its gradient by the float inputs and by the weights, zeros for None."""
    watched = floats_of(arrays)
    with tf.GradientTape() as tape:
        tape.watch(list(watched.values()))
        result = layer(**arrays, **(masks or {}), **({"training": training} if training is not None else {}))
        value = objective(case, layer, result)
    sources = {**watched, **{w.path: w.value for w in layer.trainable_weights}}
    gradients = tape.gradient(value, sources, unconnected_gradients="zero")
    return result, value, {name: tf.convert_to_tensor(x) for name, x in gradients.items()}


def training_argument(case, training):
    """`training` for layers that take it: scores and contexts do not."""
    return {"training": training} if takes_training(case) else {}


@every_row
def test_config(case):
    layer = case.make()
    config = layer.get_config()
    keras_class = next(x for x in type(layer).__mro__ if x.__module__.startswith("keras."))
    arguments = set(inspect.signature(type(layer)).parameters) - set(inspect.signature(keras_class).parameters)
    for name in arguments - {"kwargs"}:
        assert name in config, name
        assert hasattr(layer, name), name
    read = json.loads(json.dumps(config))
    assert json.loads(json.dumps(type(layer).from_config(read).get_config())) == read
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copy = keras.saving.deserialize_keras_object(serialized)
    assert type(copy) is type(layer)
    assert json.loads(json.dumps(copy.get_config())) == read


@every_row
def test_config_of_a_built_layer(case):
    layer = case.built()
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copy = keras.saving.deserialize_keras_object(serialized)
    assert [tuple(w.shape) for w in copy.weights] == [tuple(w.shape) for w in layer.weights]
    copy.set_weights(layer.get_weights())
    assert_equal(copy(**case.arrays()), layer(**case.arrays()))


@rows(lambda case: case.bad_options)
def test_config_errors(case):
    for options in case.bad_options:
        with pytest.raises(ValueError, match="Received:"):
            case.make(**options)


@every_row
def test_build_creates_all_weights(case):
    layer = case.built()
    assert layer.built
    before = [w.path for w in layer.variables]
    for training in (True, False):
        layer(**case.arrays(), **training_argument(case, training))
    assert [w.path for w in layer.variables] == before
    called = case.make()
    called(**case.arrays())
    assert [tuple(w.shape) for w in called.weights] == [tuple(w.shape) for w in layer.weights]


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


@pytest.mark.parametrize("jit_compile", [False, True], ids=["no_jit", "jit"])
@rows(lambda case: "gaussian-context" not in case.name)
def test_fit(case, jit_compile):
    """The weights of a GaussianContext alone have no gradient: the rows of the attentions train it."""
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
@rows(lambda case: "gaussian-context" not in case.name)
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
        np.testing.assert_allclose(loss, accurate, rtol=0.05)
    specs = {name: keras.KerasTensor(tuple(x.shape), x.dtype.name) for name, x in case.arrays().items()}
    assert tree.map_structure(lambda x: x.dtype, layer(**specs)) == case.dtypes(layer, half)


@rows(lambda case: case.divergence and not isinstance(case, DecoderCase))
def test_divergence_is_computed_in_float32(case):
    """The KL of half-precision parameters differs from the exact KL of the same parameters by float32 rounding only."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = case.built()
    arrays = case.arrays()
    layer(**arrays)
    np.testing.assert_allclose(layer.losses[0], case.expected_loss(layer, arrays), rtol=1e-4)
    assert float(layer.losses[0]) != float(ops.cast(ops.cast(layer.losses[0], "bfloat16"), "float32"))


@rows_with_key_mask
@pytest.mark.parametrize("training", [False, True])
def test_masked_keys_change_nothing(case, training):
    arrays, masks = case.arrays(), case.masks()
    memory = case.source_arguments[0]
    masked = ~masks[case.key_mask].numpy()
    changed = {**arrays, memory: tf.where(masked[..., None], arrays[memory] + 50.0, arrays[memory])}
    layers = [case.built(seed=5) for _ in range(2)] if case.draws else [case.built() for _ in range(2)]
    layers[1].set_weights(layers[0].get_weights())
    first = value_and_gradients(case, layers[0], arrays, masks, training)
    second = value_and_gradients(case, layers[1], changed, masks, training)
    assert_equal(first[0], second[0])
    assert_equal(first[1], second[1])
    for gradient, other in zip(first[2].values(), second[2].values()):
        assert_close(gradient, other, rtol=1e-5, atol=1e-6)
    for gradients in (first[2], second[2]):
        assert (gradients[memory].numpy()[masked] == 0.0).all()
        assert (gradients[memory].numpy()[~masked] != 0.0).any()


@rows_with_key_mask
def test_masked_keys_have_no_weight_and_the_rest_sums_to_one(case):
    arrays, masks = case.arrays(), case.masks()
    result = case.built()(**arrays, **masks, return_attention_scores=True)
    for weights in case.attention_weights(result):
        masked = np.expand_dims(~masks[case.key_mask].numpy(), tuple(range(1, len(weights.shape) - 1)))
        masked = np.broadcast_to(masked, weights.shape)
        assert (weights.numpy()[masked] == 0.0).all()
        assert (weights.numpy()[~masked] > 0.0).all()
        np.testing.assert_allclose(ops.sum(weights, axis=-1), 1.0, rtol=1e-6)


@rows(lambda case: case.log_probabilities)
def test_candidates_without_a_probability_change_nothing(case):
    """Those of masked keys, whose logarithms are -1e30, at inference, where the candidates are all keys."""
    layer, arrays = case.built(), case.arrays()
    lengths = np.array([5, 3, 1, 0])  # the last row has no valid key
    shape = arrays["log_likelihood"].shape
    masked = np.broadcast_to(np.arange(shape[-1]) >= lengths[:, None, None], shape)
    for name in case.log_probabilities:
        arrays[name] = tf.where(masked, -1e30, arrays[name])
    some = masked & (lengths > 0)[:, None, None]
    changed = {**arrays, "log_likelihood": tf.where(some, arrays["log_likelihood"] - 50.0, arrays["log_likelihood"])}
    results = [value_and_gradients(case, layer, x, training=False) for x in (arrays, changed)]
    assert_equal(*results)
    for name in case.widths:
        assert (results[0][2][name].numpy()[some] == 0.0).all()
    assert (results[0][2]["log_likelihood"].numpy()[~masked] != 0.0).any()
    for training in (False, True):
        assert all_finite(value_and_gradients(case, layer, arrays, training=training))


@rows(lambda case: case.divergence and case.query_mask)
def test_masked_queries_add_no_divergence(case):
    arrays, masks = case.arrays(), case.masks()
    layer = case.built()
    query = next(name for name in case.widths if name not in case.source_arguments)
    masked = ~masks[case.query_mask].numpy()
    with tf.GradientTape() as tape:
        tape.watch(arrays[query])
        layer(**arrays, **masks)
        loss = layer.losses[0]
    np.testing.assert_allclose(loss, case.expected_loss(layer, arrays, masks), rtol=1e-5)
    assert (tape.gradient(loss, arrays[query]).numpy()[masked] == 0.0).all()
    nothing = {**masks, case.query_mask: tf.zeros_like(masks[case.query_mask])}
    layer(**arrays, **nothing)
    assert float(layer.losses[0]) == 0.0


@rows_with_key_mask
@pytest.mark.parametrize("training", [False, True])
def test_a_row_without_a_valid_key(case, training):
    arrays = case.arrays()
    lengths = np.array([SOURCE, 0, 2, SOURCE])
    masks = {case.key_mask: tf.constant(np.arange(SOURCE) < lengths[:, None])}
    layer = case.built(seed=5) if case.draws else case.built()
    result, value, gradients = value_and_gradients(case, layer, arrays, masks, training)
    assert (case.context(result).numpy()[1] == 0.0).all()
    assert all_finite([result, value, gradients])
    memory = case.source_arguments[0]
    assert (gradients[memory].numpy()[1] == 0.0).all()
    if case.divergence and not training:
        divergences = case.expected_divergences(layer, arrays, masks)
        assert (divergences[1] == 0.0).all()
        np.testing.assert_allclose(layer.losses[0], divergences.sum() / BATCH, rtol=1e-5)
    if case.divergence and training and not isinstance(case, DecoderCase):
        one_row = {name: x[1:2] for name, x in {**arrays, **masks}.items()}
        layer(**one_row, training=True)
        assert float(layer.losses[0]) == 0.0


@every_row
@pytest.mark.parametrize("steps", [1, 3, 7])
def test_one_loss_per_call(case, steps):
    layer = case.built()
    arrays = case.arrays(steps=steps)
    for training in (True, False):
        layer(**arrays, **training_argument(case, training))
        assert len(layer.losses) == case.divergence
        for loss in layer.losses:
            assert loss.dtype == tf.float32
            assert loss.shape == ()
            assert float(loss) >= 0.0
    if case.divergence:
        np.testing.assert_allclose(layer.losses[0], case.expected_loss(layer, arrays), rtol=1e-5)


# Dropout on the weights would move the posterior.
@rows(lambda case: case.divergence and not case.dropout)
def test_training_and_inference_have_the_divergence_of_the_same_posterior(case, no_noise):
    layer, arrays = case.built(), case.arrays()
    layer(**arrays, training=True)
    np.testing.assert_allclose(layer.losses[0], case.expected_loss(layer, arrays), rtol=1e-5)


@every_row
def test_save_and_load(case, tmp_path):
    model = build_model(case, case.make())
    arrays = {**case.arrays(), **case.masks()}
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert len(copy.weights) == len(model.weights)
    for one, two in zip(model.get_weights(), copy.get_weights()):
        np.testing.assert_array_equal(one, two)
    assert_equal(copy(arrays, training=False), model(arrays, training=False))


@every_row
def test_export(case, tmp_path):
    layer = case.make(name="exported")
    model = build_model(case, layer)
    arrays = {**case.arrays(), **case.masks()}
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    assert_close(loaded.serve(arrays), model(arrays, training=False), rtol=1e-5, atol=1e-6)
    larger = {**case.arrays(batch=2 * BATCH, steps=5), **case.masks(batch=2 * BATCH, steps=5)}
    assert_close(loaded.serve(larger), model(larger, training=False), rtol=1e-5, atol=1e-6)
    names = [variable.name.split(":")[0] for variable in loaded.variables]
    assert {weight.path for weight in model.trainable_weights} <= set(names)
    assert not [name for name in names if "_kl" in name or name.split("/")[-1] in ("total", "count")]


@rows_with_draws
def test_seeds(case):
    arrays = case.arrays(batch=8, steps=8)
    layers = [case.built(seed=seed) for seed in (3, 3, 4)]
    for layer in layers[1:]:
        layer.set_weights(layers[0].get_weights())
    first, same, other = (layer(**arrays, training=True) for layer in layers)
    assert_equal(first, same)
    assert differ(case, first, other)
    second, second_same = (layer(**arrays, training=True) for layer in layers[:2])
    assert differ(case, first, second)
    assert_equal(second, second_same)


@rows(lambda case: case.draws and case.noise_in_attention and not isinstance(case, VectorLatentCase))
def test_noise_differs_between_steps(case):
    """Where all steps see the same, only the noise can make their outputs differ."""
    layer = case.built(seed=3)
    steps = 4
    arrays = case.arrays(batch=16, steps=steps)
    for name, x in arrays.items():
        arrays[name] = (x[:1] if name in case.source_arguments else x[:1, :1]) + tf.zeros_like(x)
    result = case.noisy(layer(**arrays, training=True))
    for one in range(steps):
        for two in range(one):
            assert np.any(np.asarray(result[:, one]) != np.asarray(result[:, two]))


@rows_with_draws
def test_noise_differs_between_examples(case):
    layer = case.built(seed=3)
    arrays = {name: x[:1] + tf.zeros_like(x) for name, x in case.arrays(batch=3, steps=8).items()}
    output = np.asarray(case.noisy(layer(**arrays, training=True)))
    assert np.any(output[0] != output[1])
    assert np.any(output[1] != output[2])


@rows_with_training
def test_inference_is_deterministic(case):
    layer, arrays = case.built(), case.arrays()
    first = layer(**arrays, training=False)
    assert_equal(layer(**arrays, training=False), first)
    assert_equal(layer(**arrays), first)


# Dropout scales what it keeps.
@rows(lambda case: takes_training(case) and not case.dropout)
def test_inference_is_the_mean(case, no_noise):
    """Or, where a draw is one key and has no mean, what `without_noise` says of the draws."""
    layer, arrays = case.built(), case.arrays()
    assert_close(layer(**arrays, training=True), case.without_noise(layer, arrays), rtol=1e-6, atol=1e-6)


@rows(lambda case: case.draws_from_posterior)
def test_posterior_draws(case):
    layer, arrays = case.built(seed=3), case.arrays()
    mean = layer(**arrays)
    with keras_vattn.posterior_draws(layer):
        first, second = layer(**arrays), layer(**arrays)
        assert len(layer.losses) == case.divergence
    assert differ(case, first, mean)
    assert differ(case, first, second)
    with keras_vattn.posterior_draws(layer, seed=1):
        assert_equal(layer(**arrays), layer(**arrays))
    if case.tempered:
        with keras_vattn.posterior_draws(layer, temperature=0.0):
            assert_close(layer(**arrays), mean, rtol=1e-6, atol=1e-7)
    assert_equal(layer(**arrays), mean)


@rows(lambda case: not case.draws_from_posterior)
def test_posterior_draws_of_a_layer_without_a_posterior(case):
    layer, arrays = case.built(), case.arrays()
    if not case.values_draws:
        with pytest.raises(ValueError, match="Received: model="), keras_vattn.posterior_draws(layer):
            pass
        return
    mean, in_training = layer(**arrays), layer(**arrays, training=True)
    with keras_vattn.posterior_draws(layer):
        assert_equal(layer(**arrays), in_training)
    assert differ(case, in_training, mean)
    assert_equal(layer(**arrays), mean)


def replica_arrays(case):
    """A batch whose two halves are equal under free bits, which are a maximum over the batch mean."""
    arrays = case.arrays()
    if "free-bits" not in case.name:
        return arrays
    return {name: tf.tile(x[: BATCH // 2], [2, *[1] * (x.shape.rank - 1)]) for name, x in arrays.items()}


def run_replicas(strategy, step, inputs):
    """Run `step` on one half of the inputs in each replica; the leaves of the result are lists over replicas."""

    def half(x):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.split(x, 2)[context.replica_id_in_sync_group]
        )

    run = tf.function(lambda inputs: strategy.run(step, args=(inputs,)))
    results = run({name: half(x) for name, x in inputs.items()})
    return tree.map_structure(strategy.experimental_local_results, results)


@every_row
def test_two_replicas_are_one_without_noise(case, two_replicas, no_noise):
    arrays = replica_arrays(case)
    masks = case.masks()
    with two_replicas.scope():
        layer = case.built()
    single = case.built()
    single.set_weights(layer.get_weights())
    training = bool(training_argument(case, True)) or None

    def step(inputs):
        arrays = {name: x for name, x in inputs.items() if name in case.widths}
        masks = {name: x for name, x in inputs.items() if name not in case.widths}
        return step_results(layer, arrays, masks)

    def step_results(layer, arrays, masks):
        _, value, gradients = value_and_gradients(case, layer, arrays, masks, training)
        return [value, sum(layer.losses, tf.zeros(())), *weight_gradients(layer, gradients)]

    results = run_replicas(two_replicas, step, {**arrays, **masks})
    expected = step_results(single, arrays, masks)
    for replicas, one in zip(results, expected, strict=True):
        assert len(replicas) == 2
        np.testing.assert_allclose((replicas[0] + replicas[1]) / 2, one, rtol=1e-4, atol=1e-6)


@rows_with_draws
def test_two_replicas_draw_differently(case, two_replicas):
    arrays = {name: x[:1] + tf.zeros_like(x) for name, x in case.arrays(steps=8).items()}
    with two_replicas.scope():
        layer = case.built(seed=3)
    first, second = run_replicas(two_replicas, lambda x: case.noisy(layer(**x, training=True)), arrays)
    assert np.any(np.asarray(first) != np.asarray(second))


# Gradients past float16's 65504: of a dot-product decoder, which only a large memory gives large logits, and of the KLs
# that grow without bound where q and p are a thousand nats apart.
PAST_FLOAT16 = (
    "weibull-posterior",
    "weibull-raw-fixed",
    "lognormal-paper",
    "lognormal-raw-fixed",
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
