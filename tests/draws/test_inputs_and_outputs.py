"""Tests inputs, outputs and models that `posterior_predictive` accepts, and those that raise an error."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from predictive_cases import D, N, T, X, latent_model, sequence_model

from keras_vattn import GaussianLatent
from keras_vattn import posterior_predictive as draw


@pytest.mark.parametrize("structure", [dict, list])
def test_structures(structure):
    a, b = keras.Input((None, D), name="a"), keras.Input((D,), name="b")
    sequence, vector = GaussianLatent(2)(a), GaussianLatent(3)(b)
    arrays = [X.astype("float64"), X[:, 0]]
    if structure is dict:
        model = keras.Model({"a": a, "b": b}, {"sequence": sequence, "nested": [vector, vector]})
        draws = draw(model, dict(zip("ab", arrays, strict=True)), 6, seed=1, batch_size=2)
        draws = [draws["sequence"], *draws["nested"]]
        np.testing.assert_array_equal(draws[1], draws[2])
    else:
        model = keras.Model([a, b], [sequence, vector])
        draws = draw(model, arrays, 6, seed=1, batch_size=2)
        assert isinstance(draws, list)
    assert draws[0].shape == (6, N, T, 2) and draws[1].shape == (6, N, 3)


@pytest.mark.slow
def test_datasets():
    model = latent_model()
    expected = draw(model, X, 3, seed=1, batch_size=2)
    x, y = tf.data.Dataset.from_tensor_slices(X), tf.data.Dataset.range(N)
    for dataset in (x, tf.data.Dataset.zip(x, y), tf.data.Dataset.zip(x, y, y)):
        np.testing.assert_allclose(draw(model, dataset.batch(2), 3, seed=1), expected, rtol=1e-6)
    dictionaries = x.map(lambda x: {"x": x}).batch(2)
    inputs = keras.Input((None, D), name="x")
    named_model = keras.Model({"x": inputs}, model(inputs))
    np.testing.assert_allclose(draw(named_model, dictionaries, 3, seed=1), expected, rtol=1e-6)
    batches = [*x.batch(2), tf.repeat(X, 40, axis=0)]  # a later batch may be larger than max_rows
    ragged = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=tf.TensorSpec((None, T, D)))
    np.testing.assert_allclose(draw(model, ragged, 3, seed=1)[:, :N], expected, rtol=1e-6)


@pytest.mark.slow
def test_python_datasets_and_generators():
    """A batch is x, (x, y) or (x, y, weights). Another sequence length retraces the model."""
    model = latent_model()
    expected = draw(model, X, 3, seed=1, batch_size=2)

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            rows = slice(2 * index, 2 * index + 2)
            return X[rows], np.zeros(len(X[rows]))

    batches = [X[:2], (X[2:4], np.zeros(2)), (X[4:], np.zeros(1), np.ones(1))]
    for data in (Data(), iter(batches), (x for x in batches)):
        np.testing.assert_allclose(draw(model, data, 3, seed=1), expected, rtol=1e-6)
    inputs = keras.Input((None, D))
    pooled = keras.Model(inputs, layers.GlobalAveragePooling1D()(GaussianLatent(2)(inputs)))
    assert draw(pooled, (X[:, :length] for length in (2, 3, 2)), 3).shape == (3, 3 * N, 2)

    class Endless(Data):
        num_batches = None

    with pytest.raises(ValueError, match=r"must be finite.*Received: Endless\.num_batches=None"):
        draw(model, Endless(), 2)
    with pytest.raises(ValueError, match="Received: an empty dataset"):
        draw(model, iter([]), 2)


def test_strings_and_integers():
    inputs = keras.Input((), dtype="string")
    ids = layers.StringLookup(vocabulary=["a", "b"])(inputs)
    model = keras.Model(inputs, GaussianLatent(2)(layers.Embedding(3, 4)(ids)))
    assert draw(model, np.array(["a", "b", "c"]), 4, seed=1).shape == (4, 3, 2)
    with pytest.raises(ValueError, match=r"`np.array\(texts\)` if .*Received: strings, .* with the inputs "):
        draw(model, ["a", "b", "c"], 4)


@pytest.mark.slow
def test_a_task_preprocesses_strings_once():
    """As in `predict`, strings are preprocessed, also in a dataset. Other inputs go to the model unchanged."""

    class Task(keras.Model):
        preprocessor = "of the task"

        def preprocess_samples(self, x, y=None, sample_weight=None):
            calls.append(x)
            return tf.strings.length(tf.convert_to_tensor(x))[:, None], y, sample_weight

    calls, texts = [], ["good", "good film", "a film"]
    inputs = keras.Input((1,), dtype="int32")
    task = Task(inputs, GaussianLatent(2)(layers.Embedding(20, 4)(inputs)))
    expected = draw(task, np.array([[4], [9], [6]]), 3, seed=1, batch_size=2)
    assert not calls
    np.testing.assert_array_equal(draw(task, texts, 3, seed=1, batch_size=2), expected)
    assert calls == [texts]
    dataset = tf.data.Dataset.from_tensor_slices((texts, [0, 1, 0])).batch(2)
    np.testing.assert_allclose(draw(task, dataset, 3, seed=1), expected, rtol=1e-5, atol=1e-6)
    assert len(calls) == 2
    np.testing.assert_array_equal(draw(task, iter(np.split(np.array(texts), [2])), 3, seed=1), expected)
    assert len(calls) == 4
    with pytest.raises(ValueError, match=r"accepts a list of strings\. .*Received: strings"):
        draw(task, "good film", 3)


def test_a_graph_is_one_batch():
    class Neighbours(layers.Layer):
        def call(self, nodes, edges):
            return tf.math.unsorted_segment_sum(tf.gather(nodes, edges[:, 0]), edges[:, 1], tf.shape(nodes)[0])

        def compute_output_spec(self, nodes, edges):
            return keras.KerasTensor(nodes.shape)

    nodes, edges = keras.Input((D,), name="nodes"), keras.Input((2,), name="edges", dtype="int32")
    model = keras.Model({"nodes": nodes, "edges": edges}, GaussianLatent(2)(Neighbours()(nodes, edges)))
    graph = {"nodes": X[:, 0], "edges": np.array([[0, 1], [1, 2], [4, 4]])}
    dataset = tf.data.Dataset.from_tensors(graph)
    draws = draw(model, dataset, 300, seed=1, max_rows=1)
    mean = model(graph, training=False)
    assert draws.shape == (300, N, 2)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * draws.std(axis=0) / np.sqrt(300)).all()
    with pytest.raises(ValueError, match=r"max_rows=1\. Received: \[\(3, 2\), \(5, 4\)\]"):
        draw(model, dataset, 3)
    with pytest.raises(ValueError, match=r"complete inputs, and set max_rows=1\. Received: "):
        draw(model, graph, 3)


def test_a_subclassed_model_and_a_layer():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.latent = GaussianLatent(2)

        def call(self, x):
            return self.latent(x)

    model = Model()
    with pytest.raises(ValueError, match=r"call the model once\. Received: .*built=False"):
        draw(model, X, 2)
    model(X)
    np.testing.assert_array_equal(draw(model, X, 2, seed=1), draw(model.latent, X, 2, seed=1))


def test_models_without_noise():
    plain_model, dropout_model = sequence_model(layers.Dense(2)), sequence_model(layers.Dropout(0.5))
    zero_rate = sequence_model(layers.Dropout(0.0))
    for model, dropout in ((plain_model, False), (plain_model, True), (dropout_model, False), (zero_rate, True)):
        with pytest.raises(ValueError, match=rf"stochastic layer.*Received: model=.*dropout={dropout}"):
            draw(model, X, 2, dropout=dropout)
    assert draw(dropout_model, X, 2, dropout=True).shape == (2, N, T, D)


@pytest.mark.parametrize("name", ["num_samples", "batch_size", "max_rows"])
def test_counts_are_positive_integers(name):
    with pytest.raises(ValueError, match=f"Received: {name}="):
        draw(latent_model(), X, **{"num_samples": 2, name: 0})


def test_inputs_must_be_arrays_of_one_length():
    model = latent_model()
    for invalid in (X[:0], 3.0, [X, X[:2]], [], X.tolist(), {"x": object()}):
        with pytest.raises(
            ValueError, match=r"`inputs` must (be arrays|contain at least one example).*Received: "
        ) as error:
            draw(model, invalid, 2)
        assert len(str(error.value)) < 300
    with pytest.raises(ValueError, match="Received: an empty dataset"):
        draw(model, tf.data.Dataset.from_tensor_slices(X[:0]).batch(2), 2)
    with pytest.raises(ValueError, match=r"Received: seed=\[1, 2, 3\]"):
        draw(model, X, 2, seed=[1, 2, 3])


def test_outputs_must_fit_together():
    scalar_model = sequence_model(lambda x: keras.ops.sum(GaussianLatent(2)(x)))
    with pytest.raises(ValueError, match="Every output needs a batch axis"):
        draw(scalar_model, X, 2)
    dataset = tf.data.Dataset.from_generator(
        lambda: (X[:2, :length] for length in (2, 3)), output_signature=tf.TensorSpec((None, None, D))
    )
    with pytest.raises(ValueError, match=r"pad the inputs.*Received: \[\(2, 2, 2\), \(2, 3, 2\)\]"):
        draw(latent_model(), dataset, 2)
