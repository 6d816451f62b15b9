"""Keras's private attributes exist and mean what the library takes them to mean; a rename is told by its name."""

import concurrent.futures
import inspect

import keras
import numpy as np
import pytest

from keras_vattn.support import keras_private


class Adds(keras.layers.Layer):
    """Adds a loss, and holds another layer."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dropout(0.5)
        self.scale = self.add_weight(shape=())
        self.count = self.add_weight(shape=(), trainable=False)

    def call(self, x):
        self.add_loss(keras.ops.sum(x))
        return self.inner(x)


def layers_are_flattened():
    layer = Adds()
    model = keras.Sequential([layer])
    assert keras_private.flatten_layers(model) == [model, layer, layer.inner]


def own_losses_are_what_was_added():
    layer = Adds()
    layer(np.ones((2, 3)))
    assert [float(x) for x in layer._get_own_losses()] == [6.0]
    assert [float(x) for x in layer.losses] == [6.0]


def masks_are_on_tensors():
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


def trainable_variables_are_the_layers_own():
    layer = Adds()
    assert list(layer._trainable_variables) == [layer.scale]


def non_trainable_variables_are_the_layers_own():
    layer = Adds()
    assert list(layer._non_trainable_variables) == [layer.count]


def multi_head_attention_attends_in_one_method():
    """Queries, keys and values by head go in with the mask; the context by head and the weights come out."""
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


def multi_head_attention_combines_its_masks_in_one_method():
    masks = []

    class Records(keras.layers.MultiHeadAttention):
        def _compute_attention_mask(self, query, value, **options):
            masks.append(super()._compute_attention_mask(query, value, **options))
            return masks[0]

    x = keras.ops.ones((1, 3, 5))
    Records(2, 4)(x, x, value_mask=keras.ops.convert_to_tensor([[True, True, False]]), use_causal_mask=True)
    np.testing.assert_array_equal(masks[0], [np.tril(np.ones((3, 3), "bool")) & [True, True, False]])


def multi_head_attention_scales_by_the_width_of_a_key():
    assert keras.layers.MultiHeadAttention(2, 4)._inverse_sqrt_key_dim == 0.5


def the_gate_reads_the_query():
    layer = keras.layers.MultiHeadAttention(2, 4, use_gate=True)
    x = keras.ops.ones((1, 3, 5))
    layer(x, x)
    assert layer._gate_dense(x).shape == (1, 3, 2, 4)


def lstm_runs_its_steps_in_one_method():
    """Sequences, the first states and the mask go in; the last output, all outputs and the last states come out."""
    results = []

    class Records(keras.layers.LSTM):
        def inner_loop(self, sequences, initial_state, mask, training=False):
            assert sequences.shape == (2, 5, 3) and [x.shape for x in initial_state] == [(2, 4)] * 2
            results.append(super().inner_loop(sequences, initial_state, mask, training))
            return results[0]

    found = Records(4, return_sequences=True)(keras.ops.ones((2, 5, 3)))
    last, outputs, states = results[0]
    assert last.shape == (2, 4) and len(states) == 2
    np.testing.assert_array_equal(found, outputs)


def optimizers_sum_the_gradients_of_replicas_in_one_method():
    optimizer, weight = keras.optimizers.SGD(1.0), keras.Variable([1.0])
    plain = optimizer._all_reduce_sum_gradients
    optimizer._all_reduce_sum_gradients = lambda pairs: [(2.0 * gradient, x) for gradient, x in plain(pairs)]
    optimizer.apply([keras.ops.convert_to_tensor([0.25])], [weight])
    np.testing.assert_array_equal(weight, [0.5])


def models_are_built_from_a_batch_in_one_method():
    batches = []
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    plain = model._maybe_symbolic_build
    model._maybe_symbolic_build = lambda iterator: batches.append(next(next(iter(iterator))[2]))
    model.fit(np.ones((3, 1)), np.ones((3, 1)), batch_size=2, verbose=0)
    assert [len(x) for x in batches[0]] == [2, 2] and len(batches) == 1
    plain(data_batch=batches[0])


def optimizers_clip_all_gradients_in_one_method():
    """Where a clip is set; what is returned is what is applied."""
    given = []

    class Records(keras.optimizers.SGD):
        def _clip_gradients(self, grads):
            given.extend(super()._clip_gradients(grads))
            return [0.0 * x for x in grads]

    weights = [keras.Variable([1.0, 2.0]), keras.Variable([3.0])]
    Records(1.0, global_clipnorm=1.0).apply([x.value for x in weights], weights)
    np.testing.assert_allclose(np.concatenate(given), np.array([1.0, 2.0, 3.0]) / 14**0.5, rtol=1e-6)
    np.testing.assert_array_equal(weights[0], [1.0, 2.0])


def optimizers_number_their_variables():
    weights = [keras.Variable([1.0, 2.0]), keras.Variable([3.0])]
    optimizer = keras.optimizers.Adam()
    optimizer.build(weights)
    assert [optimizer._get_variable_index(x) for x in weights] == [0, 1]
    assert [x.shape for x in optimizer._momentums] == [x.shape for x in optimizer._velocities] == [(2,), (1,)]


PRIVATE = {
    "_flatten_layers": (keras.layers.Layer, layers_are_flattened),
    "_get_own_losses": (keras.layers.Layer, own_losses_are_what_was_added),
    "_keras_mask": (keras.KerasTensor, masks_are_on_tensors),
    "_trainable_variables": (keras.layers.Layer, trainable_variables_are_the_layers_own),
    "_non_trainable_variables": (keras.layers.Layer, non_trainable_variables_are_the_layers_own),
    "_compute_attention": (keras.layers.MultiHeadAttention, multi_head_attention_attends_in_one_method),
    "_compute_attention_mask": (keras.layers.MultiHeadAttention, multi_head_attention_combines_its_masks_in_one_method),
    "_inverse_sqrt_key_dim": (keras.layers.MultiHeadAttention, multi_head_attention_scales_by_the_width_of_a_key),
    "inner_loop": (keras.layers.LSTM, lstm_runs_its_steps_in_one_method),
    "_clip_gradients": (keras.optimizers.Optimizer, optimizers_clip_all_gradients_in_one_method),
    "_get_variable_index": (keras.optimizers.Optimizer, optimizers_number_their_variables),
    "_all_reduce_sum_gradients": (keras.optimizers.Optimizer, optimizers_sum_the_gradients_of_replicas_in_one_method),
    "_maybe_symbolic_build": (keras.Model, models_are_built_from_a_batch_in_one_method),
}
if "use_gate" in inspect.signature(keras.layers.MultiHeadAttention).parameters:
    PRIVATE["_gate_dense"] = (keras.layers.MultiHeadAttention, the_gate_reads_the_query)


def check(name):
    """Fail with one message that names the attribute, if Keras has renamed it or means another thing by it."""
    owner, has_its_meaning = PRIVATE[name]
    failure = None
    try:
        has_its_meaning()
    except Exception as error:
        failure = str(error).partition("\n")[0] or type(error).__name__
    if failure:
        pytest.fail(
            f"Keras {keras.__version__} has no `{owner.__name__}.{name}` any more, or means another thing by it: "
            f"mend keras_vattn/support/keras_private.py and what it lists. ({failure})",
            pytrace=False,
        )


@pytest.mark.parametrize("name", list(PRIVATE))
def test_keras_has_it_and_means_the_same(name):
    check(name)


def test_every_overridden_name_is_checked():
    newer = set() if "use_gate" in inspect.signature(keras.layers.MultiHeadAttention).parameters else {"_gate_dense"}
    for names in keras_private.OVERRIDDEN.values():
        assert set(names) <= {*PRIVATE, *newer}


class Renamed:
    """Stands where Keras had an attribute: reading it fails, as reading a name that is gone does."""

    def __init__(self, name):
        self.name = name

    def __get__(self, layer, owner=None):
        raise AttributeError(f"'{owner.__name__}' object has no attribute '{self.name}'")

    def __set__(self, layer, value):
        pass


@pytest.mark.parametrize("name", list(PRIVATE))
def test_a_rename_is_told_by_its_name(name, monkeypatch):
    owner, _ = PRIVATE[name]
    if name == "_keras_mask":
        # Tensors take any attribute: Keras reads another one than the library.
        monkeypatch.setattr(keras_private, "MASK", "_another_mask")
    else:
        monkeypatch.setattr(owner, name, Renamed(name), raising=False)
    # A call that fails halfway leaves its context behind, in the thread that it ran in.
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        checked = threads.submit(check, name)
        with pytest.raises(pytest.fail.Exception, match=rf"no `{owner.__name__}\.{name}` any more.*keras_private\.py"):
            checked.result()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("_flatten_layers", keras_private.flatten_layers),
    ],
)
def test_the_error_of_a_user_names_it_too(name, function, monkeypatch):
    layer = keras.layers.Dropout(0.5)
    monkeypatch.setattr(keras.layers.Layer, name, Renamed(name), raising=False)
    with pytest.raises(AttributeError, match=rf"reads `Layer\.{name}`.*install keras>=3\.12,<3\.16\. Received: keras"):
        function(layer)
