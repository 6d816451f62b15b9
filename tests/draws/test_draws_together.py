"""Several draws in one call of the model: the same as one at a time, and no more rows than asked for."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from predictive_cases import X, self_attention, sequence_model
from tiers import slow_except

import keras_vattn
from keras_vattn import Attention, AttentionDecoder, DeterministicAttention, GaussianAttention, GaussianLatent
from keras_vattn import posterior_predictive as draw


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


class Claims(OwnAlignment):
    """Draws from a stack of seeds too."""

    takes_seed_stacks = True

    def noise(self, shape, seed):
        return keras_vattn.random.uniform(shape, seed) ** 2


class OverridesAClaim(Claims):
    """What the class above says of its own `noise` does not speak for this one."""

    def noise(self, shape, seed):
        return tf.random.stateless_uniform(shape, seed)


class OnlyMadeOtherwise(Claims):
    """Draws as the class above."""

    def __init__(self):
        super().__init__(3.0)

    def get_config(self):
        return {}


class Noisy:
    """A mixin that comes before a class with the claim."""

    def noise(self, shape, seed):
        return tf.random.stateless_uniform(shape, seed)


class Mixed(Noisy, keras_vattn.Weibull):
    pass


class ClaimingNoise(layers.Layer):
    """A layer from elsewhere, with a rate of its own, that draws through the library."""

    takes_seed_stacks = True

    def __init__(self):
        super().__init__()
        self.rate = 0.5
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, x):
        seed = keras_vattn.random.draw_seed(self.seed_generator)
        return x + keras_vattn.random.normal(keras.ops.shape(x), seed)


class WithOwnPart(ClaimingNoise):
    """Holds an alignment that makes no claim."""

    def __init__(self):
        super().__init__()
        self.own = OwnAlignment()


class DrawsMore(ClaimingNoise):
    def call(self, x):
        return super().call(x) + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)


MODELS = {
    "latent": lambda x: GaussianLatent(2)(x),
    "gaussian": self_attention(GaussianAttention, dropout=0.4),
    "weibull": self_attention(Attention, alignment="weibull"),
    "lognormal": self_attention(Attention, alignment="lognormal", prior="contextual"),
    "gumbel": self_attention(Attention, alignment="gumbel_softmax"),
    "dirichlet": self_attention(Attention, alignment="dirichlet"),
    "own-alignment": lambda x: Attention(alignment=OwnAlignment())(x, x),
    "claims": lambda x: Attention(alignment=Claims())(x, x),
    "only-made-otherwise": lambda x: Attention(alignment=OnlyMadeOtherwise())(x, x),
    "overrides-a-claim": lambda x: Attention(alignment=OverridesAClaim())(x, x),
    "mixed": lambda x: Attention(alignment=Mixed())(x, x),
    "claiming-noise": lambda x: ClaimingNoise()(GaussianLatent(2)(x)),
    "with-own-part": lambda x: WithOwnPart()(GaussianLatent(2)(x)),
    "draws-more": lambda x: DrawsMore()(GaussianLatent(2)(x)),
    "decoder-of-own-alignment": lambda x: AttentionDecoder(2, Attention(score="bilinear", alignment=OwnAlignment()))(
        x, x
    ),
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
ALONE = {"own-alignment", "own-noise", "keras-attention", "lstm", "bidirectional"}
ALONE |= {"overrides-a-claim", "mixed", "with-own-part", "draws-more", "decoder-of-own-alignment"}


@pytest.mark.parametrize(
    "name",
    slow_except(
        [*MODELS, *BOTH, *DROPOUTS],
        *("latent", "gaussian", "weibull", "own-alignment", "with-own-part", "mixed", "own-noise"),
        *("decoder", "multi-head-weibull", "dropout", "multi-head", "inner-model"),
    ),
)
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
