"""Queries in parts: results, KL and gradients are those without parts from the same seed, and no T x S array stays."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conversion_cases import functional_model
from log_laplace import LogLaplace
from multi_head_cases import (
    ATTENTION_MASK,
    HEAD_MASK,
    HEADS,
    POSTERIOR,
    QUERY,
    QUERY_MASK,
    VALUE,
    VALUE_MASK,
    WIDTH,
    WINDOW,
    model_of,
    pair,
)

import keras_vattn
from keras_vattn import Attention, GumbelSoftmax, MultiHeadAttention, Weibull
from keras_vattn.layers.parts_of_queries import LARGEST_PART, SMALLEST, _shares

slow = pytest.mark.slow
PADDED = {"value_mask": VALUE_MASK, "query_mask": QUERY_MASK}
MEAN_CONTEXT = {
    "module": "keras_vattn.contexts",
    "class_name": "GaussianContext",
    "config": {"prior": "mean"},
    "registered_name": "keras_vattn>GaussianContext",
}
TAU = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)


def heads(**options):
    return MultiHeadAttention(HEADS, WIDTH, seed=5, **options)


def step_of(layer, training=True, call=None):
    """A function of query and value: output, KL, and gradients by the inputs and all weights."""
    layer.build(QUERY.shape, VALUE.shape)
    generator = np.random.default_rng(1)
    layer.set_weights([generator.normal(size=w.shape) for w in layer.get_weights()])
    variables = [weight.value for weight in layer.trainable_weights]

    def step(query, value):
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            output = layer(query, value, training=training, **(call or {}))
            losses = sum(layer.losses, tf.zeros(()))
            scale = tf.range(1.0, 1.0 + output.shape[-1])
            loss = tf.reduce_sum(tf.cast(output, "float32") * scale) + 0.1 * losses
        found = tape.gradient(loss, [query, value, *variables], unconnected_gradients="zero")
        return output, losses, *map(tf.convert_to_tensor, found)

    return step


def results(layer, training=True, call=None, wrap=tf.function, query=QUERY, value=VALUE):
    step = wrap(step_of(layer, training, call))
    return [x.numpy() for x in step(tf.constant(query), tf.constant(value))]


def assert_equal(parts, whole):
    """To 2e-6 of the largest gradient: what shifts all logits of a row has the gradient 0, of rounding alone."""
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parts[1], whole[1], rtol=2e-6)
    largest = max(np.abs(x).max() for x in whole[2:])
    for one, other in zip(parts[2:], whole[2:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=3e-6 * largest)


def make(kind, **options):
    return heads(**options) if kind == "heads" else Attention("bilinear", seed=5, **options)


MULTI_HEAD = (
    ({"dropout": 0.3}, PADDED, 3),
    ({"alignment": "weibull", "prior": "contextual", "dropout": 0.3}, PADDED | {"use_causal_mask": True}, 2),
    ({"alignment": "lognormal", "prior": "contextual", "per_head_prior": True}, {"attention_mask": HEAD_MASK}, 3),
    ({"alignment": GumbelSoftmax(TAU), "prior": "contextual"}, {"attention_mask": ATTENTION_MASK}, 2),
    pytest.param({"alignment": "dirichlet"}, {"posterior_logits": POSTERIOR}, 3, marks=slow),
    pytest.param({"alignment": "lognormal", "prior": "fixed"}, {"posterior_logits": None}, 9, marks=slow),
    pytest.param({"alignment": "weibull", **WINDOW}, {"use_causal_mask": True}, 2, marks=slow),
    pytest.param({"alignment": Weibull(kl_of="weights"), "prior": "contextual"}, {}, 3, marks=slow),
    pytest.param({"alignment": Weibull(kl_estimator="sampled"), "prior": "contextual"}, PADDED, 3, marks=slow),
)
SINGLE_HEAD = (
    ({"alignment": "weibull", "prior": "contextual", "dropout": 0.3}, PADDED | {"attention_mask": ATTENTION_MASK}, 3),
    pytest.param({"context": MEAN_CONTEXT}, PADDED | {"use_causal_mask": True}, 2, marks=slow),
    pytest.param(
        {"alignment": "dirichlet", "warm_start_steps": 1}, {"posterior_logits": POSTERIOR[:, 0]}, 3, marks=slow
    ),
)


@pytest.mark.parametrize(
    ("options", "call", "size", "kind"),
    [
        pytest.param(*getattr(case, "values", case), kind, marks=getattr(case, "marks", ()))
        for kind, cases in (("heads", MULTI_HEAD), ("attention", SINGLE_HEAD))
        for case in cases
    ],
)
def test_as_without_parts(options, call, size, kind):
    parts = results(make(kind, query_chunk_size=size, **options), call=call)
    assert_equal(parts, results(make(kind, **options), call=call))


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"alignment": "weibull", "prior": "contextual"}, PADDED | {"use_causal_mask": True}),
        pytest.param({}, {"use_causal_mask": True}, marks=slow),
        pytest.param({"alignment": "dirichlet", "prior": "contextual"}, {"attention_mask": HEAD_MASK}, marks=slow),
    ],
)
def test_compiled_by_xla(options, call):
    compiled = lambda step: tf.function(step, jit_compile=True)  # noqa: E731
    parts = results(heads(query_chunk_size=3, **options), call=call, wrap=compiled)
    whole = results(heads(**options), call=call)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda step: step, pytest.param(tf.function, marks=slow)])
def test_at_inference_and_eagerly(wrap):
    options, call = {"alignment": "weibull", "prior": "contextual"}, PADDED | {"use_causal_mask": True}
    for training in (False, True):
        parts = results(heads(query_chunk_size=3, **options), training, call, wrap)
        assert_equal(parts, results(heads(**options), training, call))


def test_a_prediction():
    """Without a KL, with one that is left out, and with one of fixed draws."""
    call = {"use_causal_mask": True}
    for options in ({}, {"alignment": Weibull(kl_of="weights"), "prior": "contextual"}):
        assert_equal(*(results(heads(query_chunk_size=size, **options), False, call) for size in (2, None)))


def test_a_plain_softmax_is_that_of_keras():
    """Queries that are padding, as Keras says it by a mask on the tensor, and rows without a valid key."""
    plain, parts = pair()
    parts.query_chunk_size = 3
    query = tf.constant(QUERY)
    query._keras_mask = tf.constant(QUERY_MASK)
    masks = {"value_mask": VALUE_MASK & [[False], [True], [True]], "attention_mask": ATTENTION_MASK}
    expected = plain(query, VALUE, **masks)
    query._keras_mask = tf.constant(QUERY_MASK)
    np.testing.assert_allclose(parts(query, VALUE, **masks), expected, atol=1e-5)


def test_masks_whose_axes_are_known_late():
    layers = heads(query_chunk_size=3), heads()
    step_of(layers[0])
    layers[1].build(QUERY.shape, VALUE.shape)
    layers[1].set_weights(layers[0].get_weights())
    specs = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, 7)), tf.TensorSpec((None,) * 3, "bool")]
    calls = [tf.function(lambda q, v, m, layer=layer: layer(q, v, attention_mask=m), specs) for layer in layers]
    for mask in (ATTENTION_MASK, ATTENTION_MASK[:, :1], ATTENTION_MASK[:1], ATTENTION_MASK[..., :1]):
        np.testing.assert_allclose(*(call(QUERY, VALUE, mask) for call in calls), atol=1e-5)


@pytest.mark.parametrize("kind", ["heads", pytest.param("attention", marks=slow)])
def test_unknown_lengths_and_none(kind):
    options = {"alignment": "weibull", "prior": "contextual"}
    layers = make(kind, query_chunk_size=3, **options), make(kind, **options)
    specs = [tf.TensorSpec((None, None, x.shape[-1])) for x in (QUERY, VALUE)]
    steps = [tf.function(step_of(layer, call={"use_causal_mask": True}), input_signature=specs) for layer in layers]
    for batch, length, num_keys in ((3, 4, 5), (3, 3, 1), (1, 1, 2)):
        inputs = tf.constant(QUERY[:batch, :length]), tf.constant(VALUE[:batch, :num_keys])
        assert_equal(*([x.numpy() for x in step(*inputs)] for step in steps))
    for found, expected in zip(*(step(QUERY[:0], VALUE[:0]) for step in steps), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert heads(query_chunk_size=3)(QUERY[:0], VALUE[:0]).shape == (0, 4, 6)
    assert heads(query_chunk_size=3, **options)(QUERY[:, :0], VALUE).shape == (3, 0, 6)
    np.testing.assert_array_equal(Attention(query_chunk_size=3)(QUERY, np.zeros((3, 0, 6), "float32")), 0.0)


@pytest.mark.parametrize("policy", ["mixed_float16", pytest.param("mixed_bfloat16", marks=slow)])
def test_half_precision(policy):
    options = {"alignment": "weibull", "prior": "contextual", "dtype": policy}
    parts, whole = (results(heads(query_chunk_size=size, **options), call=PADDED) for size in (3, None))
    assert parts[0].dtype == whole[0].dtype != np.float32
    np.testing.assert_allclose(parts[0].astype(float), whole[0].astype(float), rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-5)


def test_what_a_step_keeps():
    """No gradient puts intermediates on a list, and no tensor has an entry for each query and key."""
    length, size = 40, 8
    layer = heads(alignment="weibull", prior="contextual", query_chunk_size=size, dropout=0.1)
    step = step_of(layer)
    spec = [tf.TensorSpec((1, length, width)) for width in (6, 7)]
    graph = tf.function(step).get_concrete_function(*spec).graph
    graphs = [graph, *(graph._get_function(name).graph for name in graph._functions)]
    operations = [operation for each in graphs for operation in each.get_operations()]
    # Two parts at once, of one group: that is the memory of a step.
    loops = [x for x in operations if "While" in x.type]
    assert [x.get_attr("parallel_iterations") for x in loops] == [1, 1, 2, 2]
    assert not [x for x in operations if x.type == "TensorListPushBack"]
    sizes = [x.shape.num_elements() or 0 for operation in operations for x in operation.outputs]
    assert max(sizes) < length * length


def test_keys_beyond_the_queries_cost_nothing_under_a_causal_mask():
    assert _shares(12, 12, 1) == [(start, start + 2, start + 2) for start in range(0, 12, 2)]
    assert _shares(10, 6, 4) == [(0, 4, 4), (4, 8, 6), (8, 10, 6)]
    assert _shares(None, 6, 4) == [(0, None, 6)]
    assert [len(_shares(length, length, 2)) for length in (16, 17, 33)] == [8, 5, 6]


@pytest.mark.parametrize("alignment", ["weibull", "softmax"])
def test_dropout_at_inference(alignment):
    """A predictive distribution draws and drops in parts as without."""
    draws = []
    for size in (3, None):
        layer = heads(alignment=alignment, dropout=0.5, query_chunk_size=size)
        step_of(layer)
        model = model_of(layer)
        draws.append(keras_vattn.posterior_predictive(model, [QUERY, VALUE], num_samples=2, dropout=True, seed=1))
    np.testing.assert_allclose(*draws, atol=1e-5)
    assert np.abs(draws[0] - layer(QUERY, VALUE)).max() > 0.1


def test_parts_by_themselves():
    layer = MultiHeadAttention(4, 8, query_chunk_size="auto")
    for lengths, size in (
        ((1, 1, SMALLEST - 1), None),
        ((4, 2048, 2048), LARGEST_PART // 2048),
        ((None, None, 9), None),
    ):
        assert layer.part_size(*lengths) == size
    assert layer.part_size(4, 4096, 4096, return_attention_scores=True) is None
    assert (layer.part_size(1, 9, SMALLEST), layer.part_size(1, 2, SMALLEST)) == (4, 2)
    assert layer.part_size(1, 2048, 8192, heads_of_part=4) == LARGEST_PART // 8192 // 4
    assert MultiHeadAttention.from_config(layer.get_config()).query_chunk_size == "auto"


def test_a_converted_model_has_parts(tmp_path):
    model = functional_model()
    inputs = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    converted = [
        keras_vattn.to_bayesian(model, prior="fixed", layers=None, seed=3, query_chunk_size=size) for size in (2, None)
    ]
    outputs = [each(inputs, training=True) for each in converted]
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-5)
    np.testing.assert_allclose(*(sum(each.losses) for each in converted), rtol=1e-5)
    converted[0].save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    sizes = [x.query_chunk_size for x in loaded._flatten_layers() if hasattr(x, "query_chunk_size")]
    assert sizes and set(sizes) == {2}


def test_bad_input():
    for size in (0, -1, 2.0, True, "many"):
        for make_layer in (heads, Attention):
            with pytest.raises(ValueError, match="query_chunk_size"):
                make_layer(query_chunk_size=size)
    with pytest.raises(ValueError, match="query_chunk_size"):
        heads(query_chunk_size=2, flash_attention=True)
    for layer in (heads(query_chunk_size=2), Attention(query_chunk_size=2)):
        with pytest.raises(ValueError, match="return_attention_scores"):
            layer(QUERY, QUERY, return_attention_scores=True)
        with pytest.raises(ValueError, match="return_attention_scores"):
            layer(keras.Input((4, 6)), keras.Input((4, 6)), return_attention_scores=True)
    of_two, of_another = heads(query_chunk_size=2), heads(query_chunk_size=2, attention_axes=0)
    for layer, inputs in ((of_two, QUERY[None]), (of_another, QUERY)):
        with pytest.raises(ValueError, match="those of one axis"):
            layer(inputs, inputs)
    with pytest.raises(ValueError, match="counts the queries"):
        Attention(keras_vattn.Local("bilinear", position="monotonic"), query_chunk_size=2)
    # Its KL is estimated at draws, each from a seed of its own.
    layer = heads(alignment=LogLaplace(), prior=keras_vattn.GammaPrior(1.0), query_chunk_size=2)
    with pytest.raises(ValueError, match="needs query_chunk_size=None"):
        layer(QUERY, VALUE, training=True)
    # Every part would have the noise of the first.
    with pytest.raises(ValueError, match=r"drawn by keras_vattn\.random"):
        heads(alignment=OfItsOwn(), query_chunk_size=2)(QUERY, VALUE, training=True)


class OfItsOwn(keras_vattn.LogNormal):
    def noise(self, shape, seed):
        return tf.random.stateless_normal(shape, seed)


@pytest.mark.parametrize(("alignment", "dropout"), [("weibull", False), ("softmax", True)])
def test_a_gradient_after_the_draws(alignment, dropout):
    """Parts that the gradient would draw in another way are refused."""
    layer = Attention("bilinear", alignment, dropout=0.5, query_chunk_size=3)
    step_of(layer)
    model, query, value = model_of(layer), tf.constant(QUERY), tf.constant(VALUE)

    @tf.function
    def run(inside):
        noise = keras_vattn.Sampler(model, dropout=dropout)
        with tf.GradientTape() as tape:
            tape.watch(query)
            with noise.drawn_from(3):
                loss = tf.reduce_sum(model([query, value]))
                if inside:
                    return tape.gradient(loss, query)
        return tape.gradient(loss, query)

    assert np.isfinite(run(True)).all()
    with pytest.raises(ValueError, match="drawn again in the gradient"):
        run(False)
