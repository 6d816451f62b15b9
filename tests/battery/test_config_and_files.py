"""Checks the config, the weights and the saved files of every public layer."""

import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from argument_values import BESIDE, REQUIRED, arguments_of, other_value, public_classes
from battery_cases import BATCH
from battery_checks import assert_close, assert_equal, training_argument
from battery_table import build_model, every_row, rows


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


@pytest.mark.parametrize("public_class", public_classes(), ids=lambda x: x.__name__)
def test_every_argument_comes_back_from_a_config(public_class):
    """Sets one argument at a time to a value other than its default, with the other arguments that this value
    requires."""
    arguments = arguments_of(public_class)
    required = {name: REQUIRED[name] for name, default in arguments.items() if default is inspect.Parameter.empty}
    for name, default in arguments.items():
        value = other_value(public_class, name, default)
        beside = required | BESIDE.get((public_class.__name__, name), BESIDE.get(name, {}))
        plain, changed = public_class(**beside), public_class(**{**beside, name: value})
        config, copy = config_of(changed), public_class.from_config(config_of(changed))
        assert config_of(copy)[name] == config[name] != config_of(plain)[name], name
        if isinstance(getattr(changed, name, None), (bool, int, float, str)):
            assert getattr(copy, name) == getattr(changed, name) != getattr(plain, name), name


def config_of(x):
    return json.loads(json.dumps(keras.saving.serialize_keras_object(x)))["config"]


@rows(costly=True)
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


@rows(costly=True)
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
def test_save_and_load(case, tmp_path):
    model = build_model(case, case.make())
    arrays = {**case.arrays(), **case.masks()}
    for variable in model.variables:
        # Change the values, because a loaded model would have the initial values even if the file had no weights.
        variable.assign(variable + keras.ops.cast(1, variable.dtype))
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert len(copy.weights) == len(model.weights)
    for one, two in zip(model.get_weights(), copy.get_weights()):
        np.testing.assert_array_equal(one, two)
    assert_equal(copy(arrays, training=False), model(arrays, training=False))


@rows(expensive=True)
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
