"""Query chunks give the same means and closed KLs as no chunks, and the same gradients of draws as the eager loop, and
store no T x S array."""

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

slow = pytest.mark.slow
PADDED = {"value_mask": VALUE_MASK, "query_mask": QUERY_MASK}
MEAN_CONTEXT = keras.saving.serialize_keras_object(keras_vattn.GaussianContext("mean"))
TAU = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)


def heads(**options):
    return MultiHeadAttention(HEADS, WIDTH, seed=5, **options)


def step_of(layer, training=True, call=None):
    """Return a function of query and value that returns the output, the KL, and the gradients of inputs and weights."""
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
        gradients = tape.gradient(loss, [query, value, *variables], unconnected_gradients="zero")
        return output, losses, *map(tf.convert_to_tensor, gradients)

    return step


def eagerly(step):
    return step


def compiled(step):
    return tf.function(step, jit_compile=True)


def results(layer, training=True, call=None, wrap=tf.function, query=QUERY, value=VALUE):
    step = wrap(step_of(layer, training, call))
    return [x.numpy() for x in step(tf.constant(query), tf.constant(value))]


def assert_equal(chunked, expected):
    """Within 3e-6 of the largest gradient: a gradient of 0, as of a shift of all logits in a row, is only rounding."""
    np.testing.assert_allclose(chunked[0], expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(chunked[1], expected[1], rtol=2e-6)
    largest = max(np.abs(x).max() for x in expected[2:])
    for one, other in zip(chunked[2:], expected[2:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=3e-6 * largest)


def make(kind, **options):
    return heads(**options) if kind == "heads" else Attention("bilinear", seed=5, **options)


# TensorFlow Probability has no KL for these two: it is estimated from draws.
WEIGHTS_KL = {"alignment": Weibull(kl_of="weights"), "prior": "contextual"}
GAMMA = keras.saving.serialize_keras_object(keras_vattn.GammaPrior(1.0))
OWN_KL = {"alignment": LogLaplace(), "prior": GAMMA}
MULTI_HEAD = (
    ({"dropout": 0.3}, PADDED, 3),
    ({"alignment": "weibull", "prior": "contextual", "dropout": 0.3}, PADDED | {"use_causal_mask": True}, 2),
    pytest.param(
        {"alignment": "lognormal", "prior": "contextual", "per_head_prior": True},
        {"attention_mask": HEAD_MASK},
        3,
        marks=slow,
    ),
    pytest.param(
        {"alignment": GumbelSoftmax(TAU), "prior": "contextual"}, {"attention_mask": ATTENTION_MASK}, 2, marks=slow
    ),
    pytest.param({"alignment": "dirichlet"}, {"posterior_logits": POSTERIOR}, 3, marks=slow),
    pytest.param({"alignment": "lognormal", "prior": "fixed"}, {"posterior_logits": None}, 9, marks=slow),
    pytest.param({"alignment": "weibull", **WINDOW}, {"use_causal_mask": True}, 2, marks=slow),
    pytest.param({"alignment": Weibull(kl_estimator="sampled"), "prior": "contextual"}, PADDED, 3, marks=slow),
    pytest.param(WEIGHTS_KL, {}, 3, marks=slow),
    pytest.param(OWN_KL, {}, 3, marks=slow),
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
def test_the_mean_does_not_depend_on_chunks(options, call, size, kind):
    chunked, expected = (results(make(kind, query_chunk_size=x, **options), False, call) for x in (size, None))
    if options in (WEIGHTS_KL, OWN_KL):
        # Each chunk has its own draws, and the KL and gradients are estimates from draws.
        np.testing.assert_allclose(chunked[0], expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(chunked[1], expected[1], rtol=0.1)
    else:
        assert_equal(chunked, expected)


@pytest.mark.parametrize(
    ("options", "call", "size", "kind"),
    [
        (*MULTI_HEAD[1], "heads"),
        (*SINGLE_HEAD[0], "attention"),
        pytest.param({"alignment": "dirichlet"}, {"posterior_logits": POSTERIOR}, 3, "heads", marks=slow),
        pytest.param(OWN_KL, {}, 3, "heads", marks=slow),
        pytest.param({"context": MEAN_CONTEXT}, PADDED | {"use_causal_mask": True}, 2, "attention", marks=slow),
    ],
)
def test_gradients_of_draws_equal_the_eager_loop(options, call, size, kind):
    """TensorFlow differentiates the eager loop by itself, without recomputation."""
    graph, eager = (
        results(make(kind, query_chunk_size=size, **options), call=call, wrap=wrap) for wrap in (tf.function, eagerly)
    )
    assert_equal(graph, eager)


@pytest.mark.slow
def test_compiled_by_xla():
    options, call = {"alignment": "weibull", "prior": "contextual"}, PADDED | {"use_causal_mask": True}
    under_xla, eager = (results(heads(query_chunk_size=3, **options), True, call, x) for x in (compiled, eagerly))
    np.testing.assert_allclose(under_xla[0], eager[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(under_xla[1], eager[1], rtol=1e-5)
    largest = max(np.abs(x).max() for x in eager[2:])
    for one, other in zip(under_xla[2:], eager[2:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * largest)


def test_a_layer_called_twice():
    """The second call increases the count of training calls, which must not affect the gradient of the first."""
    step_results = []
    for wrap in (tf.function, eagerly):
        layer = heads(alignment=GumbelSoftmax(TAU), prior="contextual", query_chunk_size=3)
        step_of(layer)
        variables = [weight.value for weight in layer.trainable_weights]

        def step(query, layer=layer, variables=variables):
            with tf.GradientTape() as tape:
                tape.watch(query)
                output = layer(layer(query, VALUE, training=True), VALUE, training=True)
                losses = sum(layer.losses)
                loss = tf.reduce_sum(output * tf.range(1.0, 7.0)) + 0.1 * losses
            gradients = tape.gradient(loss, [query, *variables], unconnected_gradients="zero")
            return output, losses, *map(tf.convert_to_tensor, gradients)

        step_results.append([x.numpy() for x in wrap(step)(tf.constant(QUERY))])
    assert_equal(*step_results)


def test_closed_divergences_in_training_do_not_depend_on_chunks():
    call = PADDED | {"use_causal_mask": True}
    for alignment in ("weibull", "lognormal"):
        layers = (heads(alignment=alignment, prior="contextual", query_chunk_size=size) for size in (2, None))
        np.testing.assert_allclose(*(results(layer, call=call, wrap=eagerly)[1] for layer in layers), rtol=2e-6)


@pytest.mark.parametrize("kind", ["heads", "attention"])
def test_every_chunk_has_its_own_draws(kind):
    """Equal queries of equal examples have equal means but different draws; equal seeds give equal draws."""
    query, value = np.ones_like(QUERY), np.repeat(VALUE[:1], 3, axis=0)
    for training, num_outputs in ((False, 1), (True, 12)):
        layer = make(kind, alignment=Weibull(1.0), query_chunk_size=1)
        output = results(layer, training, wrap=eagerly, query=query, value=value)[0]
        assert len(np.unique(output[..., 0].round(5))) == num_outputs
    again = results(make(kind, alignment=Weibull(1.0), query_chunk_size=1), True, None, eagerly, query, value)[0]
    np.testing.assert_array_equal(output, again)


@pytest.mark.slow
def test_every_chunk_has_its_own_estimates():
    """Each of four equal queries has its own KL in an evaluation, which uses fixed draws."""
    layer = heads(query_chunk_size=1, **WEIGHTS_KL)
    step_of(layer)
    divergences = []
    for mask in np.eye(4, dtype=bool):
        layer(np.ones_like(QUERY[:1]), VALUE[:1], query_mask=mask[None])
        divergences.append(float(layer.losses[0]))
    assert len(set(divergences)) == 4
    np.testing.assert_allclose(divergences, np.mean(divergences), rtol=0.5)


def test_softmax_equals_keras():
    """Padded queries, marked by a Keras mask on the tensor, and rows without a valid key."""
    plain, chunked = pair()
    chunked.query_chunk_size = 3
    query = tf.constant(QUERY)
    query._keras_mask = tf.constant(QUERY_MASK)
    masks = {"value_mask": VALUE_MASK & [[False], [True], [True]], "attention_mask": ATTENTION_MASK}
    expected = plain(query, VALUE, **masks)
    query._keras_mask = tf.constant(QUERY_MASK)
    np.testing.assert_allclose(chunked(query, VALUE, **masks), expected, atol=1e-5)


def test_masks_with_unknown_axes():
    layers = heads(query_chunk_size=3), heads()
    step_of(layers[0])
    layers[1].build(QUERY.shape, VALUE.shape)
    layers[1].set_weights(layers[0].get_weights())
    specs = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, 7)), tf.TensorSpec((None,) * 3, "bool")]
    calls = [tf.function(lambda q, v, m, layer=layer: layer(q, v, attention_mask=m), specs) for layer in layers]
    for mask in (ATTENTION_MASK, ATTENTION_MASK[:, :1], ATTENTION_MASK[:1], ATTENTION_MASK[..., :1]):
        np.testing.assert_allclose(*(call(QUERY, VALUE, mask) for call in calls), atol=1e-5)


@slow
@pytest.mark.parametrize("kind", ["heads", "attention"])
def test_unknown_and_zero_lengths(kind):
    options = {"alignment": "weibull", "prior": "contextual", "query_chunk_size": 3}
    specs = [tf.TensorSpec((None, None, x.shape[-1])) for x in (QUERY, VALUE)]
    wraps = (lambda step: tf.function(step, input_signature=specs)), eagerly
    steps = [wrap(step_of(make(kind, **options), call={"use_causal_mask": True})) for wrap in wraps]
    for batch, length, num_keys in ((3, 4, 5), (3, 3, 1), (1, 2, 2)):
        inputs = tf.constant(QUERY[:batch, :length]), tf.constant(VALUE[:batch, :num_keys])
        assert_equal(*([x.numpy() for x in step(*inputs)] for step in steps))
    nothing = tf.constant(QUERY[:0]), tf.constant(VALUE[:0])
    for result, expected in zip(*(step(*nothing) for step in steps), strict=True):
        np.testing.assert_array_equal(result, expected)
    assert heads(query_chunk_size=3)(QUERY[:0], VALUE[:0]).shape == (0, 4, 6)
    assert heads(**options)(QUERY[:, :0], VALUE).shape == (3, 0, 6)
    np.testing.assert_array_equal(Attention(query_chunk_size=3)(QUERY, np.zeros((3, 0, 6), "float32")), 0.0)


def test_no_tensor_of_a_step_has_an_entry_for_each_query_and_key():
    length, size = 40, 8
    layer = heads(alignment="weibull", prior="contextual", query_chunk_size=size, dropout=0.1)
    spec = [tf.TensorSpec((1, length, width)) for width in (6, 7)]
    graph = tf.function(step_of(layer)).get_concrete_function(*spec).graph
    graphs = [graph, *(graph._get_function(name).graph for name in graph._functions)]
    operations = [operation for each in graphs for operation in each.get_operations()]
    sizes = [x.shape.num_elements() or 0 for operation in operations for x in operation.outputs]
    assert max(sizes) < length * length


@pytest.mark.parametrize("alignment", ["weibull", pytest.param("softmax", marks=slow)])
def test_dropout_at_inference(alignment):
    """A predictive distribution draws and applies dropout in chunks, differently in each chunk."""
    layer = heads(alignment=alignment, dropout=0.5, query_chunk_size=1)
    step_of(layer)
    model, inputs = model_of(layer), [np.ones_like(QUERY), VALUE]
    draw = lambda dropout: keras_vattn.posterior_predictive(  # noqa: E731
        model, inputs, num_samples=2, dropout=dropout, posterior=not dropout, seed=1
    )
    draws = draw(dropout=True)
    assert np.abs(draws - layer(*inputs)).max() > 0.1
    assert [len(np.unique(x.round(4))) for x in draws[:, 0, :, 0]] == [4, 4]
    np.testing.assert_array_equal(draw(dropout=True), draws)


@pytest.mark.slow
def test_a_converted_model_has_chunks(tmp_path):
    model = functional_model()
    inputs = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    converted = [
        keras_vattn.to_bayesian(model, prior="fixed", layers=None, seed=3, query_chunk_size=size) for size in (2, None)
    ]
    np.testing.assert_allclose(*(each(inputs) for each in converted), atol=1e-5)
    np.testing.assert_allclose(*(sum(each.losses) for each in converted), rtol=1e-5)
    assert np.abs(converted[0](inputs, training=True) - converted[0](inputs)).max() > 1e-3
    converted[0].save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    sizes = [x.query_chunk_size for x in loaded._flatten_layers() if hasattr(x, "query_chunk_size")]
    assert sizes and set(sizes) == {2}


@pytest.mark.slow
def test_a_converted_attention_leaves_padding_out_of_the_kl():
    """In self-attention, a mask that hides positions from every query also hides them as queries."""
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    valid = np.arange(5) < np.array([[5], [3]])
    values, mask = keras.Input((5, 8)), keras.Input((5, 5), dtype="bool")
    attended = keras.layers.MultiHeadAttention(2, 4)(values, values, attention_mask=mask)
    model = keras.Model([values, mask], attended)
    padding = np.repeat(valid[:, None], 5, axis=1)
    for attention_mask in (padding, padding & np.tri(5, dtype=bool)):
        converted = [
            keras_vattn.to_bayesian(model, prior="fixed", layers=None, seed=3, query_chunk_size=size)
            for size in (2, None)
        ]
        losses = []
        for each in converted:
            each([x, attention_mask])
            losses.append(float(sum(each.losses)))
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
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
    one_axis, first_axis = heads(query_chunk_size=2), heads(query_chunk_size=2, attention_axes=0)
    for layer, inputs in ((one_axis, QUERY[None]), (first_axis, QUERY)):
        with pytest.raises(ValueError, match="attention over axis 1 only"):
            layer(inputs, inputs)
    with pytest.raises(ValueError, match="counts the queries"):
        Attention(keras_vattn.Local("bilinear", position="monotonic"), query_chunk_size=2)
