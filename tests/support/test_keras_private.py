"""Tests that Keras's private attributes exist and behave as the library expects."""

import ast
import inspect
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_vattn
from keras_vattn.support import keras_private


class Adds(keras.layers.Layer):
    """Adds a loss, and contains another layer."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dropout(0.5)
        self.scale = self.add_weight(shape=())
        self.count = self.add_weight(shape=(), trainable=False)

    def call(self, x):
        self.add_loss(keras.ops.sum(x))
        return self.inner(x)


def test_layers_are_flattened():
    layer = Adds()
    model = keras.Sequential([layer])
    assert keras_private.flatten_layers(model) == [model, layer, layer.inner]


def test_a_tracker_lets_a_built_layer_have_more_layers():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    with keras_private.unlocked(layer):
        layer.more = keras.layers.Dense(2)
    assert layer.more in keras_private.flatten_layers(layer)
    with pytest.raises(ValueError, match="already built"):
        layer.yet_more = keras.layers.Dense(2)


def test_own_losses_are_the_added_losses():
    layer = Adds()
    layer(np.ones((2, 3)))
    assert [float(x) for x in layer._get_own_losses()] == [6.0]
    assert [float(x) for x in layer.losses] == [6.0]


def test_masks_are_on_tensors():
    ids = np.array([[3, 0]])
    embedded = keras.layers.Embedding(4, 2, mask_zero=True)(ids)
    np.testing.assert_array_equal(keras_private.mask_of(embedded), ids > 0)
    x = keras.ops.ones((1, 2, 1))
    assert keras_private.mask_of(x) is None
    keras_private.set_mask(x, keras.ops.convert_to_tensor(ids > 0))
    average = keras.layers.GlobalAveragePooling1D()
    assert average.compute_mask(x) is None
    masked = x * keras.ops.convert_to_tensor([[[1.0], [9.0]]])
    keras_private.set_mask(masked, keras_private.mask_of(x))
    assert float(average(masked)[0, 0]) == 1.0


def test_multi_head_attention_attends_in_one_method():
    """`_compute_attention` takes queries, keys, values by head and a mask; it returns contexts by head and weights."""
    outputs = []

    class Records(keras.layers.MultiHeadAttention):
        def _compute_attention(self, query, key, value, attention_mask=None, *arguments, **options):
            assert query.shape == key.shape == value.shape == (1, 3, 2, 4) and attention_mask.shape[-2:] == (3, 3)
            outputs.extend(super()._compute_attention(query, key, value, attention_mask, *arguments, **options))
            assert outputs[0].shape == query.shape
            return outputs

    x = keras.ops.ones((1, 3, 5))
    mask = keras.ops.ones((1, 3, 3), "bool")
    assert Records(2, 4)(x, x, attention_mask=mask, return_attention_scores=True)[1] is outputs[1]


@pytest.mark.skipif(
    "use_gate" not in inspect.signature(keras.layers.MultiHeadAttention).parameters, reason="needs Keras 3.14"
)
def test_the_gate_reads_the_query():
    layer = keras.layers.MultiHeadAttention(2, 4, use_gate=True)
    x = keras.ops.ones((1, 3, 5))
    layer(x, x)
    assert layer._gate_dense(x).shape == (1, 3, 2, 4)


def test_the_dropout_of_heads_has_a_seed_generator():
    layer = keras.layers.MultiHeadAttention(2, 4, dropout=0.5, seed=3)
    layer.build((1, 3, 5), (1, 3, 5))
    assert keras_private.dropout_of(layer).seed_generator.get_config()["seed"] == 3


def test_attention_scores_are_computed_in_one_method():
    layer, query, key = keras.layers.Attention(), keras.ops.ones((1, 3, 2)), keras.ops.ones((1, 4, 2))
    layer.build([query.shape, key.shape])
    scores = layer._calculate_scores(query=query, key=key)
    np.testing.assert_array_equal(scores, np.full((1, 3, 4), 2.0))


def test_lstm_runs_its_steps_in_one_method():
    """`inner_loop` takes sequences, first states and a mask; it returns last output, all outputs and last states."""
    results = []

    class Records(keras.layers.LSTM):
        def inner_loop(self, sequences, initial_state, mask, training=False):
            assert sequences.shape == (2, 5, 3) and [x.shape for x in initial_state] == [(2, 4)] * 2
            results.append(super().inner_loop(sequences, initial_state, mask, training))
            return results[0]

    output = Records(4, return_sequences=True)(keras.ops.ones((2, 5, 3)))
    last, outputs, states = results[0]
    assert last.shape == (2, 4) and len(states) == 2
    np.testing.assert_array_equal(output, outputs)


def test_optimizers_sum_the_gradients_of_replicas_in_one_method():
    optimizer, weight = keras.optimizers.SGD(1.0), keras.Variable([1.0])
    plain = optimizer._all_reduce_sum_gradients
    optimizer._all_reduce_sum_gradients = lambda pairs: [(2.0 * gradient, x) for gradient, x in plain(pairs)]
    optimizer.apply([keras.ops.convert_to_tensor([0.25])], [weight])
    np.testing.assert_array_equal(weight, [0.5])


def test_models_are_built_from_a_batch_in_one_method():
    batches = []
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    plain = model._maybe_symbolic_build
    model._maybe_symbolic_build = lambda iterator: batches.append(next(next(iter(iterator))[2]))
    model.fit(np.ones((3, 1)), np.ones((3, 1)), batch_size=2, verbose=0)
    assert [len(x) for x in batches[0]] == [2, 2] and len(batches) == 1
    plain(data_batch=batches[0])


class Renamed:
    """Hides an attribute of Keras: an access raises the error of a missing attribute."""

    def __init__(self, name):
        self.name = name

    def __get__(self, layer, owner=None):
        raise AttributeError(f"'{owner.__name__}' object has no attribute '{self.name}'")

    def __set__(self, layer, value):
        pass


@pytest.mark.parametrize(
    ("name", "owner", "call"),
    [
        ("_flatten_layers", keras.layers.Layer, lambda: keras_private.flatten_layers(keras.layers.Dropout(0.5))),
        ("_compute_attention", keras.layers.MultiHeadAttention, lambda: keras_vattn.MultiHeadAttention(2, 4)),
        ("_maybe_symbolic_build", keras.Model, lambda: keras_private.symbolic_build(keras.Sequential())),
        (
            "_all_reduce_sum_gradients",
            keras.optimizers.Optimizer,
            lambda: keras_private.skip_gradient_sum(keras.optimizers.SGD()),
        ),
    ],
)
def test_a_missing_name_raises_an_error_with_its_feature(name, owner, call, monkeypatch):
    monkeypatch.setattr(owner, name, Renamed(name), raising=False)
    with pytest.raises(AttributeError, match=rf"lacks `{name}`, needed by .*Install keras>=3\.12.*Received: keras"):
        call()


def test_other_missing_names_turn_features_off(monkeypatch):
    monkeypatch.setattr(keras.layers.Layer, "_get_own_losses", Renamed("_get_own_losses"))
    for name in ("get_keras_mask", "GLOBAL_CUSTOM_NAMES", "gradient_registry"):
        monkeypatch.setattr(keras_private, name, None)
    with pytest.warns(UserWarning, match="no KL is logged"):
        assert keras_private.own_losses(keras.layers.Dropout(0.5)) == []
    with pytest.warns(UserWarning, match="pass masks as arguments"):
        assert keras_private.mask_of(keras.ops.ones(())) is None
    with pytest.warns(UserWarning, match="keeps the graphs"):
        assert keras_private.take_gradient(None) is None
    with pytest.warns(UserWarning, match="`fit` needs `steps_per_epoch`"):
        keras_private.set_cardinality(object(), 3)
    with pytest.raises(AttributeError, match="lacks `GLOBAL_CUSTOM_NAMES`"):
        keras_private.save_as(Adds, Adds)


IMPORT_WITHOUT_PRIVATE_MODULES = """
import builtins, warnings
import numpy as np
import keras

plain_import = builtins.__import__

def refuse(name, globals=None, *arguments):
    importer = (globals or {}).get("__name__", "")
    if name.startswith(("keras.src", "tensorflow.python")) and importer.startswith("keras_vattn"):
        raise ImportError(name)
    return plain_import(name, globals, *arguments)

builtins.__import__ = refuse
import keras_vattn

warnings.simplefilter("ignore")
query, value = keras.Input((3, 4)), keras.Input((5, 4))
model = keras.Model([query, value], keras_vattn.BayesianAttention(prior="contextual")([query, value]))
model.compile("adam", "mse")
history = model.fit([np.ones((2, 3, 4)), np.ones((2, 5, 4))], np.ones((2, 3, 4)), verbose=0)
print(np.isfinite(history.history["loss"][0]))
"""


@pytest.mark.slow
def test_a_layer_trains_without_private_modules():
    command = [sys.executable, "-c", IMPORT_WITHOUT_PRIVATE_MODULES]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["True"], result.stderr[-2000:]


LIBRARY = pathlib.Path(keras_vattn.__file__).parent
# Private methods that the library overrides in subclasses and calls on `self`.
HOOKS = {"_get_own_losses", "_compute_attention", "_calculate_scores"}


def private_keras_names():
    """Return the private names of Keras classes that the library subclasses, and of their objects."""
    x = np.ones((1, 2, 3), "float32")
    heads = keras.layers.MultiHeadAttention(1, 2)
    heads.build(x.shape, x.shape)
    objects = [heads, keras.layers.Attention(), keras.layers.LSTM(2), keras.layers.Softmax(), keras.layers.Dropout(0.5)]
    objects += [keras.Sequential(), keras.optimizers.Adam(), keras.metrics.Mean(), keras.losses.MeanSquaredError()]
    names = {name for each in objects for name in dir(each)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def private_names(tree, keras_names):
    """Yield the line and the name of each private name in a syntax tree."""
    methods = [x for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for x in node.body]
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            is_own |= ast.unparse(node.value) == "super()"
            is_private = node.attr.startswith("_") and not node.attr.endswith("__")
            if node.attr == "__internal__" or (is_private and not (is_own and node.attr not in keras_names)):
                name = node.attr
        elif isinstance(node, ast.FunctionDef) and node in methods and node.name in keras_names:
            name = node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in keras_names:
            name = node.value
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [getattr(node, "module", None) or "", *(each.name for each in node.names)]
            name = next((x for x in modules if x.startswith(("keras.src", "tensorflow.python"))), None)
        if name is not None and name not in HOOKS:
            yield node.lineno, name


def test_no_other_module_uses_a_private_name():
    keras_names, private_by_file = private_keras_names(), {}
    for path in sorted(LIBRARY.rglob("*.py")):
        if path.name != "keras_private.py":
            private = sorted(private_names(ast.parse(path.read_text("utf-8")), keras_names))
            private_by_file |= {str(path.relative_to(LIBRARY)): private} if private else {}
    assert private_by_file == {}
