"""Tests hard attention in a decoder: expected gradient against the enumerated bound, masks, baselines, training."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_vattn import (
    Attention,
    AttentionDecoder,
    Hard,
    NegativeBound,
    RewardToGo,
    TokenLogLikelihood,
    posterior_draws,
)

STEPS, SOURCE, VOCABULARY = 3, 3, 4
PATHS = np.array(list(itertools.product(range(SOURCE), repeat=STEPS)))  # (27, 3)
generator = np.random.default_rng(3)
INPUTS = generator.normal(size=(1, STEPS, 2)).astype("float32")
REGIONS = generator.normal(size=(1, SOURCE, 4)).astype("float32")
WORDS = np.array([[1, 3, 2]])


class Forced(Hard):
    """Always samples the positions in `path`, (B, T), whatever the logits are."""

    path = PATHS

    def noise(self, shape, seed):
        return {"gumbel": tf.constant(1e6 * np.eye(SOURCE, dtype="float32")[self.path])}


class HardModel:
    """A decoder with hard attention, over all paths at once. A word depends on the state and optionally on the drawn
    region."""

    def __init__(self, query, sees_context, path=PATHS, **options):
        keras.utils.set_random_seed(0)
        alignment = Forced()
        alignment.path = path
        self.count = len(path)
        self.decoder = AttentionDecoder(5, Attention("additive", alignment), cell="max_out_lstm", query=query)
        self.words = TokenLogLikelihood(VOCABULARY)
        self.bound = RewardToGo(**options)
        self.sees_context = sees_context
        self()
        # The initial kernels are small; doubling them makes the effect of a draw visible.
        for variable in self.variables:
            variable.assign(2.0 * variable)

    @property
    def variables(self):
        return [*self.decoder.trainable_variables, *self.words.trainable_variables]

    def __call__(self, inputs_mask=None, memory_mask=None, **options):
        """Return the values (B, T), the log-likelihoods of the words, and the outputs of the decoder."""
        inputs, regions, words = (np.repeat(x, self.count, axis=0) for x in (INPUTS, REGIONS, WORDS))
        masks = {"inputs_mask": inputs_mask, "memory_mask": memory_mask}
        decoded = self.decoder(
            inputs, regions, return_attention_scores=True, return_logits=True, training=True, **masks
        )
        hidden = decoded["hidden"]
        if self.sees_context:
            hidden = ops.concatenate([hidden, decoded["context"]], axis=-1)
        log_likelihood = self.words(hidden[:, :, None], words)
        value = self.bound(
            log_likelihood,
            decoded["weights"],
            decoded["logits"],
            value_mask=memory_mask,
            log_likelihood_mask=inputs_mask,
            training=True,
            **options,
        )
        return value, log_likelihood[..., 0], decoded


def log_p(decoded, possible=True):
    return tf.nn.log_softmax(tf.where(possible, decoded["logits"], -1e9))


def log_p_of_path(decoded, possible=True, counted=True):
    """Return log p of the drawn positions, (B,)."""
    drawn = tf.reduce_sum(tf.where(decoded["weights"] > 0, log_p(decoded, possible), 0.0), axis=-1)
    return tf.reduce_sum(tf.where(counted, drawn, 0.0), axis=1)


def entropies(decoded, possible=True):
    return -tf.reduce_sum(tf.exp(log_p(decoded, possible)) * log_p(decoded, possible), axis=-1)


def gradient(tape, value, variables):
    gradients = tape.gradient(value, variables, unconnected_gradients="zero")
    return np.concatenate([np.ravel(tf.convert_to_tensor(x)) for x in gradients])


BASELINES = {
    "none": {"baseline": None},
    "moving-average": {"baseline": "moving_average"},
    "entropy": {"baseline": None, "entropy_weight": 0.7},
}


@pytest.mark.parametrize("options", BASELINES.values(), ids=BASELINES)
@pytest.mark.parametrize("query,sees_context", [("previous", False), ("current", True)])
def test_the_expected_gradient_equals_the_enumerated_gradient(query, sees_context, options):
    """Weighted by p(path), the estimates of all 27 paths through three positions sum to the exact gradient."""
    model = HardModel(query, sees_context, **options)
    if options["baseline"]:
        # Set an average, as earlier calls would do.
        model.bound.average.assign([-1.3, 1.0])
    with tf.GradientTape(persistent=True) as tape:
        value, log_likelihood, decoded = model()
        probability = tf.exp(log_p_of_path(decoded))
        bonus = options.get("entropy_weight", 0.0) * entropies(decoded)
        exact = tf.reduce_sum(probability * tf.reduce_sum(log_likelihood + bonus, axis=1))
        estimate = tf.reduce_sum(tf.stop_gradient(probability) * tf.reduce_sum(value, axis=1))
    np.testing.assert_allclose(tf.reduce_sum(probability), 1.0, rtol=1e-5)
    np.testing.assert_allclose(value, log_likelihood, rtol=1e-6)
    estimated, expected = (gradient(tape, x, model.variables) for x in (estimate, exact))
    np.testing.assert_allclose(estimated, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
    scores = [variable for variable in model.variables if "score" in variable.path]
    assert np.abs(gradient(tape, exact, scores)).max() > 1e-2


def test_the_gradient_under_masks():
    """The last step and the last region are masked, so two steps have two positions each."""
    path = np.array([[*row, 0] for row in itertools.product(range(2), repeat=2)])
    inputs_mask = tf.constant([[True, True, False]] * 4)
    memory_mask = tf.constant([[True, True, False]] * 4)
    model = HardModel("previous", False, path, entropy_weight=0.7)
    model.bound.average.assign([-1.3, 1.0])
    possible = memory_mask[:, None]
    with tf.GradientTape(persistent=True) as tape:
        value, log_likelihood, decoded = model(inputs_mask, memory_mask)
        probability = tf.exp(log_p_of_path(decoded, possible, inputs_mask))
        values = tf.where(inputs_mask, log_likelihood + 0.7 * entropies(decoded, possible), 0.0)
        exact = tf.reduce_sum(probability * tf.reduce_sum(values, axis=1))
        estimate = tf.reduce_sum(tf.stop_gradient(probability) * tf.reduce_sum(value, axis=1))
    np.testing.assert_allclose(tf.reduce_sum(probability), 1.0, rtol=1e-5)
    assert not np.any(value[:, 2])
    estimated, expected = (gradient(tape, x, model.variables) for x in (estimate, exact))
    np.testing.assert_allclose(estimated, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
    assert np.all(np.isfinite(estimated))


def test_the_reward_is_the_sum_to_go_minus_the_baseline():
    """The gradient with respect to the logits of step t is (R_t - b_t) (one-hot(z_t) - p_t), with every baseline."""
    log_likelihood = np.array([[-1.0, -2.0, -4.0]], "float32")
    logits = tf.constant(generator.normal(size=(1, 3, 2)), tf.float32)
    weights = tf.constant([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    layer = RewardToGo(baseline_decay=0.5)

    def rewards(**options):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = tf.reduce_sum(layer(log_likelihood, weights, logits, training=True, **options))
        ratio = tape.gradient(value, logits) / (weights - tf.nn.softmax(logits))
        np.testing.assert_allclose(ratio[..., 0], ratio[..., 1], rtol=1e-4)
        return ratio[0, :, 0].numpy()

    to_go = np.array([-7.0, -6.0, -4.0])
    # The first call has no average. Afterwards the average is -7/3 per word.
    np.testing.assert_allclose(rewards(), to_go, rtol=1e-4)
    np.testing.assert_allclose(rewards(), to_go + 7.0 / 3.0 * np.array([3, 2, 1]), rtol=1e-3, atol=1e-4)
    # A batch without words leaves the average unchanged. Padded words do not count.
    before = layer.average.numpy()
    nothing = tf.constant([[False, False, False]])
    layer(log_likelihood, weights, logits, log_likelihood_mask=nothing, training=True)
    np.testing.assert_array_equal(layer.average, before)
    padded = layer(log_likelihood[..., None], weights, logits, logits_mask=tf.constant([[True, False, True]]))
    np.testing.assert_array_equal(padded, [[-1.0, 0.0, -4.0]])
    other = np.array([[-3.0, -1.0, -0.5]], "float32")
    np.testing.assert_allclose(rewards(baseline_log_likelihood=other), to_go - [-4.5, -1.5, -0.5], rtol=1e-4)


def test_no_gradient_terms_at_inference():
    layer, logits = RewardToGo(entropy_weight=1.0), tf.zeros((1, 2, 3))
    weights, log_likelihood = tf.one_hot([[0, 2]], 3), tf.constant([[-1.0, -2.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = layer(log_likelihood, weights, logits)
    np.testing.assert_array_equal(value, log_likelihood)
    assert tape.gradient(value, logits) is None
    np.testing.assert_array_equal(layer.average, [0.0, 0.0])


def test_rows_without_a_region_and_extreme_logits_stay_finite():
    logits = tf.constant([[[1e4, -1e4, 0.0], [1e4, -1e4, 0.0]]])
    layer = RewardToGo(entropy_weight=1.0)
    for value_mask in (None, tf.constant([[False, False, False]])):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            weights = tf.one_hot([[1, 0]], 3) if value_mask is None else tf.zeros((1, 2, 3))
            value = layer(tf.constant([[-1.0, -2.0]]), weights, logits, value_mask=value_mask, training=True)
        actual = tape.gradient(value, logits)
        assert np.all(np.isfinite(value)) and np.all(np.isfinite(actual))
        assert bool(np.any(actual)) == (value_mask is None)


@pytest.mark.slow
def test_a_model_learns_where_to_look():
    """Only the region that the input names contains the word."""
    count, words = 512, 5
    generator = np.random.default_rng(0)
    positions = generator.integers(SOURCE, size=(count, 2))
    contents = generator.integers(words, size=(count, SOURCE))
    inputs = np.eye(SOURCE, dtype="float32")[positions]
    regions = np.concatenate(
        [np.tile(np.eye(SOURCE), (count, 1, 1)), np.eye(words)[contents]], axis=-1, dtype="float32"
    )
    targets = np.take_along_axis(contents, positions, axis=1)
    keras.utils.set_random_seed(1)
    queries, memory, target = (
        keras.Input(shape, dtype=dtype)
        for shape, dtype in (((2, SOURCE), "float32"), ((SOURCE, SOURCE + words), "float32"), ((2,), "int32"))
    )
    attention = Attention("additive", "hard", seed=1)
    decoder = AttentionDecoder(32, attention, query="current", feeding="sampled")
    decoded = decoder(queries, memory, return_attention_scores=True, return_logits=True)
    hidden = keras.layers.Dense(32, "relu")(decoded["context"])
    log_likelihood = TokenLogLikelihood(words)(hidden[:, :, None], target)
    bound = RewardToGo(entropy_weight=0.05)(log_likelihood, decoded["weights"], decoded["logits"])
    model = keras.Model([queries, memory, target], bound)
    model.compile(keras.optimizers.Adam(0.02), NegativeBound(), jit_compile=False)
    model.fit([inputs, regions, targets], targets, batch_size=64, epochs=15, verbose=0)
    attended = keras.Model([queries, memory], decoded["weights"])
    weights = attended.predict([inputs, regions], verbose=0)
    assert np.mean(weights.argmax(axis=-1) == positions) > 0.95
    with posterior_draws(model, seed=0):
        drawn = model([inputs, regions, targets])
    np.testing.assert_array_less(np.mean(drawn), 0.0)
    assert np.mean(np.sum(drawn, axis=1)) > -0.5


@pytest.mark.slow
def test_weights_that_are_not_one_hot_raise_an_error():
    """The loss rejects weights that are not one-hot, because their gradient would silently be wrong."""
    inputs, regions, target = keras.Input((STEPS, 2)), keras.Input((SOURCE, 4)), keras.Input((STEPS,), dtype="int32")
    decoder = AttentionDecoder(5, Attention("additive"), query="previous")
    decoded = decoder(inputs, regions, return_attention_scores=True, return_logits=True)
    log_likelihood = TokenLogLikelihood(VOCABULARY)(decoded["hidden"][:, :, None], target)
    model = keras.Model([inputs, regions, target], RewardToGo()(log_likelihood, decoded["weights"], decoded["logits"]))
    model.compile("sgd", NegativeBound())
    arrays = [INPUTS, REGIONS, WORDS.astype("int32")]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"one-hot.*omit RewardToGo"):
        model.fit(arrays, WORDS, verbose=0)
    assert np.isfinite(model.predict(arrays, verbose=0)).all()


def test_errors():
    layer, log_likelihood = RewardToGo(), tf.zeros((2, 3))
    good = tf.zeros((2, 3, 4))
    for arguments, options, message in (
        ((tf.zeros((2, 3, 5)), good, good), {}, r"`log_likelihood` must have shape \(B, T\) or \(B, T, 1\)"),
        ((log_likelihood, good, tf.zeros((2, 3))), {}, r"`logits` must have shape \(B, T, S\)"),
        ((log_likelihood, tf.zeros((2, 3, 5)), good), {}, "`weights` must have shape"),
        ((log_likelihood, good, good), {"value_mask": tf.ones((2, 3), "bool")}, "`value_mask` must have shape"),
        ((log_likelihood, good, good), {"baseline_log_likelihood": tf.zeros((2, 4))}, "`baseline_log_likelihood`"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(*arguments, **options)
