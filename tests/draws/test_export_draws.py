"""Tests the SavedModel of `export_draws`: its signature, and outputs that match the draws of the model."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from predictive_cases import D, T, X, latent_model
from tiers import slow_after

import keras_vattn
from keras_vattn import GaussianLatent, Sampler, export_draws, metrics


def classifier(**options):
    """Return a classifier with two named inputs."""
    query, memory = keras.Input((4,), name="query"), keras.Input((3,), name="memory")
    latent = GaussianLatent(5, seed=1)(layers.Concatenate()([layers.Dense(3)(query), memory]))
    return keras.Model({"query": query, "memory": memory}, layers.Dense(3, **options)(latent))


def arrays(num_rows, seed=0):
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=(num_rows, D)).astype("float32") for name, D in (("query", 4), ("memory", 3))}


def loaded(path):
    return tf.saved_model.load(str(path)).signatures["serving_default"]


def signature(function):
    return {name: (tuple(spec.shape), spec.dtype.name) for name, spec in function.structured_input_signature[1].items()}


def request(function, seed, **inputs):
    outputs = function(**{name: tf.constant(x) for name, x in inputs.items()}, seed=tf.constant(seed))
    return {name: x.numpy() for name, x in outputs.items()}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a classifier that returns logits, and the folder of its SavedModel with 20 draws, 16 rows at a time."""
    keras.utils.set_random_seed(1)
    model, path = classifier(), tmp_path_factory.mktemp("exported")
    export_draws(model, path, outputs="logits", max_rows=16)
    return model, path


@pytest.mark.parametrize("num_rows", [1, 2])
def test_outputs_are_statistics_of_draws(exported, num_rows):
    """Draws are computed ten at a time for one row, and for two rows seven at a time with one surplus draw."""
    model, path = exported
    serve, x = loaded(path), arrays(num_rows)
    noise = Sampler(model)
    predict = lambda inputs: tf.nn.softmax(model(inputs, training=False))  # noqa: E731
    draws = np.asarray(noise.draws(predict, {name: tf.constant(value) for name, value in x.items()}, 20, 7, 16))
    assert draws.shape == (20, num_rows, 3) and (draws.std(axis=0) > 1e-3).all()
    assert len(np.unique(draws[..., 0])) == draws[..., 0].size
    results = request(serve, 7, **x)
    np.testing.assert_allclose(results["mean"], draws.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(results["entropy"], metrics.predictive_entropy(draws), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results["mutual_information"], metrics.mutual_information(draws), rtol=1e-3, atol=1e-5)


def test_the_seed_determines_the_draws(exported):
    """The batch has more rows than `max_rows`, so one draw is computed at a time."""
    serve, x = loaded(exported[1]), arrays(40)
    assert signature(serve) == {
        "query": ((None, 4), "float32"),
        "memory": ((None, 3), "float32"),
        "seed": ((), "int32"),
    }
    one, same, other = (request(serve, seed, **x) for seed in (1, 1, 2))
    for name in one:
        np.testing.assert_array_equal(one[name], same[name])
        assert (one[name] != other[name]).all()


def test_values_have_a_mean_and_a_standard_deviation(tmp_path):
    """The model has one unnamed input with an axis of any length, and only dropout is random."""
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.5)(inputs)))
    export_draws(model, tmp_path, num_samples=50, outputs="values", dropout=True)
    serve = loaded(tmp_path)
    assert signature(serve) == {"inputs": ((None, None, D), "float32"), "seed": ((), "int32")}
    results = request(serve, 3, inputs=X)
    assert results.keys() == {"mean", "sd"} and results["mean"].shape == results["sd"].shape == (5, T, 2)
    kernel = model.layers[-1].kernel.numpy()
    # Dropout at rate 0.5 returns 0 or 2 x, which has the variance x^2.
    np.testing.assert_allclose((results["sd"] ** 2).mean(), (X**2 @ kernel**2).mean(), rtol=0.15)


@pytest.mark.slow
def test_a_subclass(tmp_path):
    class Classifier(keras.Model):
        def __init__(self):
            super().__init__()
            self.stack = [GaussianLatent(3), layers.Softmax()]

        def call(self, inputs):
            for layer in self.stack:
                inputs = layer(inputs)
            return inputs

    model, signature = Classifier(), tf.TensorSpec((None, D), name="measured")
    with pytest.raises(ValueError, match="needs a built model"):
        export_draws(model, tmp_path, input_signature=signature)
    model(X[:, 0])
    with pytest.raises(ValueError, match="pass `input_signature`"):
        export_draws(model, tmp_path)
    export_draws(model, tmp_path, input_signature=signature)
    assert request(loaded(tmp_path), 1, measured=X[:, 0])["mean"].shape == (5, 3)


def test_a_graph_gets_one_draw_per_call(tmp_path):
    features, edges = keras.Input((D,), name="features"), keras.Input((2,), dtype="int32", name="edges")
    attended = keras_vattn.GraphAttention(3, 1, alignment="weibull", activation="softmax")(features, edges)
    model = keras.Model([features, edges], attended)
    export_draws(model, tmp_path, num_samples=3)
    ring = np.array([[0, 1], [1, 2], [2, 0], [1, 0]], "int32")
    results = request(loaded(tmp_path), 1, features=X[:3, 0], edges=ring)
    assert results["mean"].shape == (3, 3) and (results["mutual_information"] > 0).all()


@pytest.mark.slow
def test_a_temperature(exported, tmp_path):
    """The temperature divides the logits of every draw."""
    model, inputs = exported[0], arrays(3)
    export_draws(model, tmp_path, outputs="logits", max_rows=16, temperature=2.5)
    tempered = lambda x: tf.nn.softmax(model(x, training=False) / 2.5)  # noqa: E731
    draws = Sampler(model).draws(tempered, {name: tf.constant(x) for name, x in inputs.items()}, 20, 7, 16)
    results = request(loaded(tmp_path), 7, **inputs)["mean"]
    np.testing.assert_allclose(results, np.mean(draws, axis=0), rtol=1e-4, atol=1e-6)


def test_errors(tmp_path):
    model, two = latent_model(), [keras.Input((2,)), keras.Input((2,))]
    named_input = lambda name: keras.Input((2,), name=name)  # noqa: E731
    unnamed = keras.Model(two, GaussianLatent(2)(layers.Add()(two)))
    seeded = keras.Model(seed := named_input("seed"), GaussianLatent(2)(seed))
    spaced = keras.Model(words := named_input("two words"), GaussianLatent(2)(words))
    several = keras.Model(one := named_input("one"), [GaussianLatent(2)(one), one])
    for call, message in (
        (lambda: export_draws(model, tmp_path, num_samples=0), "Received: num_samples=0"),
        (lambda: export_draws(model, tmp_path, outputs="softmax"), "Received: outputs='softmax'"),
        (lambda: export_draws(model, tmp_path, posterior=False), "Sampling needs a model with a stochastic layer"),
        (lambda: export_draws(unnamed, tmp_path), r"needs a unique name.*Received: inputs named \['keras_tensor"),
        (lambda: export_draws(seeded, tmp_path), r"other than \"seed\".*Received: inputs named \['seed'\]"),
        (lambda: export_draws(spaced, tmp_path), r"a Python identifier.*Received: inputs named \['two words'\]"),
        (lambda: export_draws(several, tmp_path), "one output.*Received: 2 outputs"),
        (lambda: export_draws(model, tmp_path), "not probabilities: export with outputs=.*Received: outputs="),
        (lambda: export_draws(model, tmp_path, temperature=2.0), "`temperature` requires logits.*temperature=2.0"),
        (lambda: export_draws(model, tmp_path, outputs="logits", temperature=0.0), "Received: temperature=0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not list(tmp_path.iterdir())


def test_a_request_whose_outputs_are_not_probabilities(tmp_path):
    """At export the model passes the check, because the test input of ones gives probabilities."""
    inputs = keras.Input((1,))
    model = keras.Model(inputs, layers.Multiply()([layers.Softmax()(GaussianLatent(2)(inputs)), inputs]))
    export_draws(model, tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not probabilities: export with outputs"):
        request(loaded(tmp_path), 1, inputs=np.full((2, 1), 2.0, "float32"))


def test_a_function_before_the_model(tmp_path):
    """The SavedModel contains the vocabulary table that the preprocessing function reads."""
    words = layers.TextVectorization(output_sequence_length=3, vocabulary=["a", "good", "film"])
    inputs = keras.Input((3,), dtype="int32")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(5, 4)(inputs))
    model = keras.Model(inputs, layers.Dense(2, "softmax")(GaussianLatent(3)(pooled)))
    texts = tf.constant(["A good film", "a film"])
    signature = tf.TensorSpec([None], tf.string, "texts")
    preprocess = lambda texts: words(tf.strings.lower(texts))  # noqa: E731
    with pytest.raises(ValueError, match="of a preprocessor function, are unknown: pass `input_signature`"):
        export_draws(model, tmp_path, preprocessor=preprocess)
    export_draws(model, tmp_path, num_samples=4, input_signature=signature, preprocessor=preprocess)
    draws = Sampler(model).draws(model, preprocess(texts), 4, 1)
    results = request(loaded(tmp_path), 1, texts=texts)["mean"]
    np.testing.assert_allclose(results, np.mean(draws, axis=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", slow_after(["method", "partial", "function"]))
def test_tables_that_a_preprocessor_reaches(kind, tmp_path):
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["good"], [1.0]), 0.0)

    class Words(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = table

        def values(self, texts):
            return self.table.lookup(texts)[:, None]

    words = Words()
    look_up = lambda texts: words.values(texts)  # noqa: E731
    preprocessors = {
        "method": words.values,
        "partial": functools.partial(Words.values, words),
        "function": lambda texts: look_up(texts),
    }
    inputs = keras.Input((1,))
    model = keras.Model(inputs, GaussianLatent(2)(inputs))
    signature = tf.TensorSpec([None], tf.string, "texts")
    options = {"num_samples": 2, "outputs": "values", "input_signature": signature}
    export_draws(model, tmp_path, preprocessor=preprocessors[kind], **options)
    results = request(loaded(tmp_path), 1, texts=["good", "bad"])["mean"]
    draws = Sampler(model).draws(model, tf.constant([[1.0], [0.0]]), 2, 1)
    np.testing.assert_allclose(results, np.mean(draws, axis=0), rtol=1e-4, atol=1e-6)
