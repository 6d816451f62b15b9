"""A step on several replicas equals the step on one replica with the whole batch."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from worker_processes import run_workers
from worker_training import batches, compiled_model, results_of_worker, trained

from keras_vattn import distribute

ONE = tf.distribute.get_strategy()


def assert_same(results, expected):
    for figures, expected_figures in zip(results[:2], expected[:2], strict=True):
        assert figures.keys() == expected_figures.keys()
        for name, value in figures.items():
            np.testing.assert_allclose(value, expected_figures[name], rtol=1e-5, err_msg=name)
    for weight, expected_weight in zip(results[2], expected[2], strict=True):
        # Adam magnifies the rounding of the bias of the keys, whose gradient is almost 0.
        np.testing.assert_allclose(weight, expected_weight, atol=4e-6)


@pytest.mark.slow
def test_two_replicas_train_as_one(two_replicas, tmp_path):
    """The model has a KL, a loss scale and clipped gradients; batches are uneven, and the last has one row.

    The metrics of training and validation agree, and the saved file does not change.
    """
    expected = trained(ONE, compiled_model(loss_scale=True))
    with two_replicas.scope():
        model = distribute.prepare(compiled_model(loss_scale=True))
    assert_same(trained(two_replicas, model), expected)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_same((*[{}] * 2, loaded.get_weights()), (*[{}] * 2, expected[2]))
    assert loaded.fit(batches(), verbose=0, shuffle=False).history.keys() == expected[1].keys()


@pytest.mark.slow
def test_two_workers_train_as_one(tmp_path):
    """The workers connect over the loopback, and each draws its own noise."""
    expected = trained(ONE, compiled_model())
    draws = []
    for status, output in run_workers(results_of_worker, [(), ()], tmp_path):
        assert status == 0, output
        results = json.loads(output.partition("RESULT")[2].splitlines()[0])
        # If this fails, Keras can train with several workers without `prepare`.
        assert results["plain"] is not None
        assert_same((results["history"], results["figures"], results["weights"]), expected)
        assert results["calls"] == 9
        draws.append(results["draws"])
    assert draws[0] == draws[1]
    assert not np.allclose(draws[0][:2], draws[0][2:], atol=1e-3)


def test_shards(two_replicas):
    """Every row occurs once, in batches of varying sizes, each time the dataset is read."""
    dataset = tf.data.Dataset.range(11).batch(4)
    shared = distribute.shard(dataset, two_replicas)
    assert shared.cardinality == 3
    for _ in range(2):
        read = [two_replicas.experimental_local_results(x) for x, _ in zip(shared, range(3), strict=False)]
        assert [[x.numpy().tolist() for x in each] for each in read] == [
            [[0, 1], [2, 3]],
            [[4, 5], [6, 7]],
            [[8], [9, 10]],
        ]
    endless = dataset.repeat()
    assert distribute.shard(endless, two_replicas).cardinality == tf.data.INFINITE_CARDINALITY
    unknown = dataset.filter(lambda x: True)
    assert distribute.shard(unknown, two_replicas).cardinality == tf.data.UNKNOWN_CARDINALITY
    assert distribute.shard(dataset, ONE) is dataset


def without_ones(targets, values):
    """Return a loss that is infinite if a target is 1."""
    return values * targets / (1.0 - targets)


class OwnStep(keras.Model):
    """A model whose step applies gradients as Keras's guide does."""

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            values = self(inputs, training=True)
            loss = self.compute_loss(inputs, targets, values)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@pytest.mark.slow
def test_a_model_with_a_custom_step(two_replicas):
    """The model is prepared more than once, before and after another `compile`."""

    def weights(strategy):
        with strategy.scope():
            inputs = keras.Input((5, 3))
            kernel = keras.layers.Dense(1, kernel_initializer="ones")
            model = OwnStep(inputs, kernel(keras.layers.GlobalAveragePooling1D()(inputs)))
        model.compile(keras.optimizers.SGD(0.01), without_ones, jit_compile=False)
        distribute.prepare(distribute.prepare(model))
        model.compile(model.optimizer, without_ones, jit_compile=False)
        distribute.prepare(model).fit(distribute.shard(batches(), strategy), verbose=0, shuffle=False, epochs=2)
        return [x.numpy() for x in model.weights]

    for weight, expected in zip(weights(two_replicas), weights(ONE), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-6)


def test_bad_input(two_replicas):
    with two_replicas.scope():
        model = compiled_model()
        with pytest.raises(ValueError, match="after `compile`"):
            distribute.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse", jit_compile=True)
    with pytest.raises(ValueError, match="jit_compile=False"):
        distribute.prepare(model)
    model.compile("sgd", "mse", jit_compile=False, steps_per_execution=2)
    with pytest.raises(ValueError, match="steps_per_execution=2"):
        distribute.prepare(model)
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]]))
    for dataset in (np.ones((4, 3)), tf.data.Dataset.range(3), ragged):
        for strategy in (ONE, two_replicas):
            with pytest.raises(ValueError, match="of dense tensors"):
                distribute.shard(dataset, strategy)
    uneven = tf.data.Dataset.from_tensors((np.ones(4), np.ones(3)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="the same number of rows"):
        next(iter(distribute.shard(uneven, two_replicas)))
