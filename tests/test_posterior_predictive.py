import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_vattn
from keras_vattn import Attention, AttentionDecoder, DeterministicAttention, GaussianAttention, GaussianLatent
from keras_vattn import posterior_predictive as draw

N, T, D = 5, 3, 4
X = np.random.default_rng(1).normal(size=(N, T, D)).astype("float32")


def sequence_model(function):
    inputs = keras.Input((None, D))
    return keras.Model(inputs, function(inputs))


def latent_model(units=2, **options):
    return sequence_model(GaussianLatent(units, **options))


def predict(model, inputs=X):
    return model.predict(inputs, verbose=0)


class RecordRows(layers.Layer):
    """Writes down the rows of every call of the graph."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def call(self, x):
        def record(count):
            self.rows.append(int(count))
            return count

        rows = tf.numpy_function(record, [tf.shape(x)[0]], tf.int32)
        with tf.control_dependencies([rows]):
            return tf.identity(x)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, dtype=x.dtype)


# What the draws are.


def test_latent_draws_have_the_posterior_moments():
    """Means and standard deviations of 4 000 draws within 4.5 standard errors (2 x 30 numbers)."""
    model = latent_model()
    draws = draw(model, X, 4_000, seed=1, max_rows=2_000)
    q = model.layers[-1].posterior_distribution(X)
    assert draws.shape == (4_000, N, T, 2) and isinstance(draws, np.ndarray)
    standard_error = q.stddev().numpy() / np.sqrt(4_000)
    assert (np.abs(draws.mean(axis=0) - q.mean()) < 4.5 * standard_error).all()
    assert (np.abs(draws.std(axis=0, ddof=1) - q.stddev()) < 4.5 * standard_error / np.sqrt(2)).all()


def test_context_draws_have_the_posterior_moments():
    """Means and standard deviations of 4 000 draws within 4.5 standard errors (2 x 60 numbers)."""
    model = sequence_model(lambda x: GaussianAttention(score="bilinear")(x, x))
    draws = draw(model, X, 4_000, seed=1, max_rows=2_000)
    q = model.layers[-1].posterior_distribution(X, X)
    standard_error = q.stddev().numpy() / np.sqrt(4_000)
    assert (np.abs(draws.mean(axis=0) - q.mean()) < 4.5 * standard_error).all()
    assert (np.abs(draws.std(axis=0, ddof=1) - q.stddev()) < 4.5 * standard_error / np.sqrt(2)).all()


def test_draws_of_the_attention_weights():
    """They sum to one, and their mean is within 5 standard errors of softmax(phi): k = 50 makes the bias smaller."""
    inputs = keras.Input((None, D))
    attention = keras_vattn.BayesianAttention(k=50.0, score="bilinear")
    context, weights = attention(inputs, inputs, return_attention_scores=True)
    model = keras.Model(inputs, [context, weights])
    contexts, weights = draw(model, X, 500, seed=1)
    assert contexts.shape == (500, N, T, D) and weights.shape == (500, N, T, T)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(weights @ X, contexts, atol=1e-5)
    assert (weights.std(axis=0) > 0).all()
    standard_error = weights.std(axis=0) / np.sqrt(500)
    assert (np.abs(weights.mean(axis=0) - predict(model)[1]) < 5 * standard_error + 1e-3).all()


@pytest.mark.parametrize("max_rows", [1, 64])
def test_rows_batches_and_draws_do_not_share_noise(max_rows):
    """Equal examples, 2 batches, 8 draws: the noise of any two rows correlates within 5 standard errors (120 pairs)."""
    inputs = keras.Input((500,))
    latent = GaussianLatent(500)
    model = keras.Model(inputs, latent(inputs))
    x = np.ones((2, 500), "float32")
    q = latent.posterior_distribution(x)
    noise = (draw(model, x, 8, seed=1, batch_size=1, max_rows=max_rows) - q.mean()) / q.stddev()
    correlations = np.corrcoef(np.reshape(noise, (16, 500)))[np.triu_indices(16, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(500)


def test_a_layer_called_twice_draws_twice():
    inputs = keras.Input((D,))
    latent = GaussianLatent(3)
    model = keras.Model(inputs, [latent(inputs), latent(inputs)])
    first, second = draw(model, X[:, 0], 2, seed=1)
    assert (first != second).all()


def test_seeds():
    model = latent_model()
    first = draw(model, X, 4, seed=3)
    for same in (3, tf.constant(3), tf.constant([3, 0])):
        np.testing.assert_array_equal(draw(model, X, 4, seed=same), first)
    np.testing.assert_array_equal(draw(model, X, 2, seed=3), first[:2])
    assert (draw(model, X, 4, seed=4) != first).all()
    assert (draw(model, X, 4) != draw(model, X, 4)).all()


# Draws together.


def self_attention(layer, **options):
    return lambda x: layer(**options)(x, x)


class OwnNoise(layers.Layer):
    """A layer from elsewhere, that always draws."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)


class OwnAlignment(keras_vattn.Weibull):
    """Draws from a seed of shape (2,), as the base class promises."""

    def noise(self, shape, seed):
        return tf.random.stateless_uniform(shape, seed)


MODELS = {
    "latent": lambda x: GaussianLatent(2)(x),
    "gaussian": self_attention(GaussianAttention, dropout=0.4),
    "weibull": self_attention(Attention, alignment="weibull"),
    "lognormal": self_attention(Attention, alignment="lognormal", prior="contextual"),
    "gumbel": self_attention(Attention, alignment="gumbel_softmax"),
    "dirichlet": self_attention(Attention, alignment="dirichlet"),
    "own-alignment": lambda x: Attention(alignment=OwnAlignment())(x, x),
    "latent-after-lstm": lambda x: GaussianLatent(2)(layers.LSTM(2, dropout=0.4)(x)),
    "own-noise": lambda x: OwnNoise()(GaussianLatent(2)(x)),
}
BOTH = {
    "decoder": lambda x: AttentionDecoder(
        2, GaussianAttention(score="bilinear", dropout=0.4), num_layers=2, dropout=0.4
    )(x, x),
    "multi-head-weibull": self_attention(
        keras_vattn.layers.MultiHeadAttention, num_heads=2, key_dim=2, alignment="weibull", dropout=0.4
    ),
}
DROPOUTS = {
    "dropout": lambda x: layers.Dropout(0.4)(x),
    "noise-shape": lambda x: layers.Dropout(0.4, noise_shape=(None, 1, None))(x),
    "spatial": lambda x: layers.SpatialDropout1D(0.4)(x),
    "gaussian-dropout": lambda x: layers.GaussianDropout(0.4)(x),
    "alpha": lambda x: layers.AlphaDropout(0.4)(x),
    "deterministic": self_attention(DeterministicAttention, dropout=0.4),
    "multi-head": self_attention(layers.MultiHeadAttention, num_heads=2, key_dim=2, dropout=0.4),
    "keras-attention": lambda x: layers.Attention(dropout=0.4)([x, x]),
    "lstm": lambda x: layers.LSTM(2, dropout=0.4)(x),
    "bidirectional": lambda x: layers.Bidirectional(layers.GRU(2, recurrent_dropout=0.4))(x),
    "inner-model": lambda x: keras.Sequential([layers.Dense(2), layers.Dropout(0.4)])(x),
}
# One draw at a time.
ALONE = {"dirichlet", "own-alignment", "own-noise", "keras-attention", "lstm", "bidirectional"}


@pytest.mark.parametrize("name", [*MODELS, *BOTH, *DROPOUTS])
def test_the_same_draws_however_many_go_together(name):
    recorder = RecordRows()
    model = sequence_model(lambda x: {**MODELS, **BOTH, **DROPOUTS}[name](recorder(x)))
    options = {"seed": 1, "dropout": name not in MODELS, "batch_size": 3}
    alone = draw(model, X, 5, max_rows=1, **options)
    assert recorder.rows == [3] * 5 + [2] * 5
    recorder.rows.clear()
    together = draw(model, X, 5, max_rows=7, **options)
    assert recorder.rows == ([3] * 5 + [2] * 5 if name in ALONE else [6, 6, 3, 6, 4])
    keras.tree.map_structure(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), alone, together)
    for x in keras.tree.flatten(alone):
        flat = x.reshape(5, -1)
        assert len(np.unique(flat, axis=0)) == 5
        assert np.any(x[:, :2] != x[:, 3:])


def test_max_rows_bounds_the_rows_of_every_call():
    recorder = RecordRows()
    model = sequence_model(lambda x: GaussianLatent(2)(recorder(x)))
    x = np.repeat(X, 20, axis=0)
    for options, most in (({}, 256), ({"max_rows": 100}, 100), ({"batch_size": 7, "max_rows": 20}, 20)):
        recorder.rows.clear()
        draw(model, x, 30, **options)
        assert most // 2 < max(recorder.rows) <= most
        assert sum(recorder.rows) == 30 * 100
    recorder.rows.clear()
    draw(model, x, 2, batch_size=50, max_rows=10)  # one draw of a batch is the least
    assert recorder.rows == [50, 50, 50, 50]


def test_word_dropout_and_a_dropout_layer_together():
    inputs = keras.Input((None,), dtype="int32")
    dropped = keras_vattn.WordDropout(0.5, replacement_id=1, protected_ids=(0,))(inputs)
    model = keras.Model(inputs, layers.Dropout(0.5)(layers.Embedding(9, 2, embeddings_initializer="ones")(dropped)))
    ids = np.full((4, 6), 5)
    draws = draw(model, ids, 6, dropout=True, seed=1)
    np.testing.assert_array_equal(draw(model, ids, 6, dropout=True, seed=1, max_rows=1), draws)
    assert len(np.unique(draws.reshape(6, -1), axis=0)) == 6


# Dropout.


def test_dropout_rate():
    """Of 12 000 ones at rate 0.3 the dropped share is within 4 standard errors, the others are 1 / 0.7."""
    model = sequence_model(layers.Dropout(0.3))
    draws = draw(model, np.ones_like(X), 200, dropout=True, seed=1)
    dropped = draws == 0
    assert abs(dropped.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / draws.size)
    np.testing.assert_allclose(draws[~dropped], 1 / 0.7, rtol=1e-6)


def test_dropout_is_off_unless_asked_for():
    model = sequence_model(lambda x: layers.Dropout(0.5)(GaussianAttention(temperature=0.0, dropout=0.5)(x, x)))
    draws = draw(model, X, 3, seed=1)
    np.testing.assert_allclose(draws, np.broadcast_to(predict(model), draws.shape), rtol=1e-6)


def test_attention_with_dropout_keeps_its_temperature_at_inference():
    attention = GaussianAttention(temperature=0.0, dropout=0.5, score="bilinear")
    inputs = keras.Input((None, D))
    context, weights = attention(inputs, inputs, return_attention_scores=True)
    contexts, weights = draw(keras.Model(inputs, [context, weights]), X, 20, dropout=True, seed=1)
    np.testing.assert_allclose(weights, np.broadcast_to(weights[:1], weights.shape), rtol=1e-5)
    # No noise but the dropout: each of 3 positions is dropped or doubled.
    masks = np.array(np.meshgrid([0, 2], [0, 2], [0, 2])).reshape(3, 8).T
    possible = np.einsum("nts,ms,nsd->mntd", weights[0], masks, X)
    distances = np.abs(contexts[:, None] - possible[None]).max(axis=-1).min(axis=1)
    assert distances.max() < 1e-5
    assert contexts.std(axis=0).min() > 0


def test_attention_with_dropout_draws_from_the_posterior_before_its_warm_start_is_over():
    """k = 1e5 leaves hardly any noise in the weights."""
    attention = Attention(alignment=keras_vattn.Weibull(k=1e5), warm_start=100, dropout=0.5)
    inputs, logits = keras.Input((None, D)), keras.Input((None, T))
    _, weights = attention(inputs, inputs, posterior_logits=logits, return_attention_scores=True)
    posterior_logits = X @ np.random.default_rng(2).normal(size=(D, T)).astype("float32")
    weights = draw(keras.Model([inputs, logits], weights), [X, posterior_logits], 2, dropout=True, seed=1)
    expected = keras.ops.softmax(posterior_logits)
    np.testing.assert_allclose(weights, np.broadcast_to(expected, weights.shape), atol=1e-3)


def test_batch_normalisation_keeps_its_averages():
    inputs = keras.Input((None, D))
    normalised = layers.BatchNormalization()(inputs)
    model = keras.Model(inputs, [normalised, layers.Dropout(0.5)(normalised)])
    model.layers[1].set_weights([np.full(D, value, "float32") for value in (2.0, 1.0, 0.5, 4.0)])
    draws, dropped = draw(model, X, 3, dropout=True, seed=1)
    np.testing.assert_allclose(draws, np.broadcast_to(predict(model)[0], draws.shape), rtol=1e-6)
    assert np.any(dropped != draws)


def test_a_layer_with_dropout_and_normalisation_inside():
    class Block(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dropout = 0.5
            self.seed_generator = keras.random.SeedGenerator(1)
            self.normalization = layers.BatchNormalization()

        def build(self, shape):
            self.normalization.build(shape)

        def call(self, x, training=None):
            x = self.normalization(x, training=training)
            return keras.random.dropout(x, self.dropout, seed=self.seed_generator) if training else x

    model = sequence_model(Block())
    draws = draw(model, X, 50, dropout=True, seed=1)
    kept = np.where(draws == 0, 0, np.broadcast_to(2 * predict(model), draws.shape))
    np.testing.assert_allclose(draws, kept, rtol=1e-5)
    assert (draws == 0).any() and (draws != 0).any()


# The model is left as it was.


def full_model():
    keras.utils.set_random_seed(3)
    inputs = keras.Input((T, D))
    x = layers.BatchNormalization()(layers.Dense(D)(inputs))
    x = layers.SimpleRNN(D, return_sequences=True, dropout=0.2, unroll=True)(layers.Dropout(0.2)(x))
    x = GaussianAttention(dropout=0.2, kl_annealing=keras_vattn.LinearAnnealing(10))(x, x)
    model = keras.Model(inputs, GaussianLatent(2)(x))
    model.compile("adam", "mse", metrics=["mae"])
    return model


def state(model):
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    generators = [x.state for layer in model._flatten_layers() for x in layer._seed_generators]
    return [keras.ops.convert_to_numpy(x.value) for x in [*variables, *generators]]


@pytest.mark.parametrize("dropout", [False, True])
def test_no_state_changes(dropout):
    model = full_model()
    model.fit(X, np.zeros((N, T, 2)), verbose=0)
    predict(model)
    function, before = model.predict_function, state(model)
    assert np.any(draw(model, X, 3, dropout=dropout) != 0)
    for old, new in zip(before, state(model), strict=True):
        np.testing.assert_array_equal(old, new)
    assert model.predict_function is function and not model.losses
    for layer in model._flatten_layers():
        assert "call" not in vars(layer) and "draw_noise" not in vars(layer)
        assert all("next" not in vars(generator) for generator in layer._seed_generators)
    np.testing.assert_array_equal(predict(model), predict(model))


def test_training_goes_on_as_if_nothing_had_been_drawn():
    weights = []
    for draws in (False, True):
        model = full_model()
        model.fit(X, np.zeros((N, T, 2)), verbose=0, shuffle=False)
        if draws:
            draw(model, X, 3, dropout=True)
        model.fit(X, np.zeros((N, T, 2)), verbose=0, shuffle=False)
        weights.append(model.get_weights())
    for first, second in zip(*weights, strict=True):
        np.testing.assert_array_equal(first, second)


def test_the_model_is_left_as_it_was_after_an_error():
    class Fails(layers.Layer):
        fails = False

        def call(self, x):
            if self.fails:
                raise RuntimeError("inside")
            return x

    model = sequence_model(lambda x: Fails()(layers.Dropout(0.5)(GaussianLatent(2)(x))))
    mean = predict(model)
    model.layers[-1].fails = True
    with pytest.raises(RuntimeError, match="inside"):
        draw(model, X, 2, dropout=True)
    model.layers[-1].fails = False
    np.testing.assert_array_equal(predict(model), mean)
    assert "call" not in vars(model.layers[-2])


def test_predict_is_never_called(monkeypatch):
    monkeypatch.setattr(keras.Model, "predict", None)
    assert draw(latent_model(), X, 2).shape == (2, N, T, 2)


# Structures of inputs and outputs.


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


def test_datasets():
    model = latent_model()
    expected = draw(model, X, 3, seed=1, batch_size=2)
    x, y = tf.data.Dataset.from_tensor_slices(X), tf.data.Dataset.range(N)
    for dataset in (x, tf.data.Dataset.zip(x, y), tf.data.Dataset.zip(x, y, y)):
        np.testing.assert_allclose(draw(model, dataset.batch(2), 3, seed=1), expected, rtol=1e-6)
    of_dictionaries = x.map(lambda x: {"x": x}).batch(2)
    inputs = keras.Input((None, D), name="x")
    named = keras.Model({"x": inputs}, model(inputs))
    np.testing.assert_allclose(draw(named, of_dictionaries, 3, seed=1), expected, rtol=1e-6)
    batches = [*x.batch(2), tf.repeat(X, 40, axis=0)]  # a later batch may be larger than max_rows
    ragged = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=tf.TensorSpec((None, T, D)))
    np.testing.assert_allclose(draw(model, ragged, 3, seed=1)[:, :N], expected, rtol=1e-6)


def test_strings_and_integers():
    inputs = keras.Input((), dtype="string")
    ids = layers.StringLookup(vocabulary=["a", "b"])(inputs)
    model = keras.Model(inputs, GaussianLatent(2)(layers.Embedding(3, 4)(ids)))
    assert draw(model, np.array(["a", "b", "c"]), 4, seed=1).shape == (4, 3, 2)


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
    draws = draw(model, dataset, 3000, seed=1, max_rows=1)
    mean = model(graph, training=False)
    assert draws.shape == (3000, N, 2)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * draws.std(axis=0) / np.sqrt(3000)).all()
    with pytest.raises(ValueError, match=r"max_rows=1\. Received: \[\(3, 2\), \(5, 4\)\]"):
        draw(model, dataset, 3)
    with pytest.raises(ValueError, match=r"with max_rows=1\. Received: "):
        draw(model, graph, 3)


def test_a_subclassed_model_and_a_layer():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.latent = GaussianLatent(2)

        def call(self, x):
            return self.latent(x)

    model = Model()
    with pytest.raises(ValueError, match=r"call it once\. Received: .*built=False"):
        draw(model, X, 2)
    model(X)
    np.testing.assert_array_equal(draw(model, X, 2, seed=1), draw(model.latent, X, 2, seed=1))


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((None, D))
    latent = GaussianLatent(2)(inputs)
    outputs = layers.Dense(2, dtype="float32")(layers.Dropout(0.5)(latent))
    draws = draw(keras.Model(inputs, outputs), X, 4, dropout=True, seed=1)
    assert draws.dtype == np.float32 and np.isfinite(draws).all()


def test_a_model_of_two_replicas(two_replicas):
    with two_replicas.scope():
        model = latent_model()
    assert draw(model, X, 4, seed=1).shape == (4, N, T, 2)


# Errors.


def test_models_without_noise():
    plain, dropping = sequence_model(layers.Dense(2)), sequence_model(layers.Dropout(0.5))
    off = sequence_model(layers.Dropout(0.0))
    for model, dropout in ((plain, False), (plain, True), (dropping, False), (off, True)):
        with pytest.raises(ValueError, match=rf"stochastic layer.*Received: model=.*dropout={dropout}"):
            draw(model, X, 2, dropout=dropout)
    assert draw(dropping, X, 2, dropout=True).shape == (2, N, T, D)


@pytest.mark.parametrize("name", ["num_samples", "batch_size", "max_rows"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, None])
def test_counts_are_positive_integers(name, value):
    with pytest.raises(ValueError, match=f"Received: {name}="):
        draw(latent_model(), X, **{"num_samples": 2, name: value})


def test_inputs_must_be_arrays_of_one_length():
    model = latent_model()
    for bad in (X[:0], 3.0, [X, X[:2]], []):
        with pytest.raises(ValueError, match=r"`inputs` must be arrays.*Received: "):
            draw(model, bad, 2)
    with pytest.raises(ValueError, match="Received: an empty dataset"):
        draw(model, tf.data.Dataset.from_tensor_slices(X[:0]).batch(2), 2)
    with pytest.raises(ValueError, match=r"Received: shape=\(3,\)"):
        draw(model, X, 2, seed=[1, 2, 3])


def test_outputs_must_fit_together():
    summed = sequence_model(lambda x: keras.ops.sum(GaussianLatent(2)(x)))
    with pytest.raises(ValueError, match="Every output needs a batch axis"):
        draw(summed, X, 2)
    dataset = tf.data.Dataset.from_generator(
        lambda: (X[:2, :length] for length in (2, 3)), output_signature=tf.TensorSpec((None, None, D))
    )
    with pytest.raises(ValueError, match=r"pad the inputs.*Received: \[\(2, 2, 2\), \(2, 3, 2\)\]"):
        draw(latent_model(), dataset, 2)
