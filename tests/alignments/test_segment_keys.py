"""Tests that `SegmentKeys`, a list of (row, key) entries, gives the weights, priors and KLs of dense rows."""

import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import PRIORS, REPARAMETERISED, divergence_of, parameters, prior_of
from keras import tree
from log_laplace import LogLaplace

from keras_vattn import DenseKeys, Hard, SegmentKeys, Softmax
from keras_vattn.support.masks import LOWEST

HEADS, ROWS, KEYS_COUNT = 2, 4, 5
GENERATOR = np.random.default_rng(3)
# Row 2 has one valid key and row 3 has none. The entries are listed in random order.
SEEN = np.array([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
ORDER = GENERATOR.permutation(SEEN.sum())
ROW_IDS, KEY_IDS = (x[ORDER] for x in np.nonzero(SEEN))
ALIGNMENTS = {**REPARAMETERISED, "softmax": Softmax(), "log-laplace": LogLaplace()}
DENSE = DenseKeys(tf.constant(SEEN))


def entries(dense):
    """Return the listed entries, (..., E), of a dense array (..., N, M)."""
    return np.asarray(dense)[..., ROW_IDS, KEY_IDS]


def segments(mask=None):
    return SegmentKeys(ROW_IDS, ROWS, KEY_IDS, mask)


def inputs(heads):
    shape = (HEADS,) if heads else ()
    draw = lambda *axes: GENERATOR.normal(size=(*shape, *axes)).astype("float32")  # noqa: E731
    return 2.0 * draw(ROWS, KEYS_COUNT), draw(ROWS, KEYS_COUNT), draw(KEYS_COUNT, 3)


def listed(noise):
    return tree.map_structure(lambda x: tf.constant(_listed(x)), noise)


def _listed(x):
    x = x.numpy()
    if x.ndim and x.shape[-1] == KEYS_COUNT:
        return entries(x)
    # Gamma noise has an additional last axis.
    return np.moveaxis(entries(np.moveaxis(x, -1, 0)), 0, -1)


def outcome(alignment, prior, logits, other, key, keys, noise):
    """Return weights, KL, and the gradients of a function of both by the logits of q, the logits of p and the keys."""
    sources = [tf.constant(x) for x in (logits, other, key)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        weights = alignment.normalize(alignment.perturb(sources[0], noise, keys), noise, keys)
        objective = tf.reduce_sum(tf.square(weights) * tf.sin(3.0 * sources[0]))
        divergence = None
        if alignment.is_stochastic:
            p = {"logits": sources[1]} if prior is None else parameters(alignment, prior, sources[2], keys)
            divergence = divergence_of(alignment, sources[0], p, keys, noise)
            objective += tf.reduce_sum(tf.where(tf.constant(SEEN.any(-1)), divergence, 0.0))
    return weights, divergence, tape.gradient(objective, sources, unconnected_gradients="zero")


# All pairs of an alignment and a prior, each with two flags: whether there are heads, and whether weights are sampled.
PAIRS = [
    (x, y, (i + j) % 2 == 1, (i // 2 + j) % 2 == 1) for i, x in enumerate(ALIGNMENTS) for j, y in enumerate(PRIORS)
]


@pytest.mark.parametrize(("name", "prior", "drawn", "heads"), PAIRS)
def test_weights_divergence_and_gradients_equal_dense_keys(name, prior, drawn, heads):
    alignment = ALIGNMENTS[name]
    prior_layer = prior_of(alignment, prior)
    logits, other, key = inputs(heads)
    noise = alignment.noise(logits.shape, tf.constant([1, 2])) if drawn else None
    dense = outcome(alignment, prior_layer, logits, other, key, DENSE, noise)
    in_list = None if noise is None else listed(noise)
    listed_outcome = outcome(alignment, prior_layer, entries(logits), entries(other), key, segments(), in_list)
    np.testing.assert_allclose(listed_outcome[0], entries(dense[0]), rtol=1e-5, atol=1e-7)
    if alignment.is_stochastic:
        valid = SEEN.any(-1)
        np.testing.assert_allclose(
            listed_outcome[1].numpy()[..., valid], dense[1].numpy()[..., valid], rtol=1e-4, atol=1e-5
        )
    gradients = [entries(dense[2][0]), entries(dense[2][1]), dense[2][2]]
    for one, two in zip(listed_outcome[2], gradients, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [False, True])
def test_reductions(heads):
    x = inputs(heads)[0]
    keys, listed_x = segments(), entries(x)
    valid = SEEN.any(-1)
    for name in ("sum", "max", "count"):
        one, two = (np.broadcast_to(getattr(k, name)(v), x.shape[:-1]) for k, v in ((keys, listed_x), (DENSE, x)))
        np.testing.assert_allclose(one[..., valid], two[..., valid], rtol=1e-6)
    assert keys.any_valid().numpy().tolist() == valid.tolist()
    for name in ("softmax", "log_softmax", "one_hot", "zero_masked", "mask_out"):
        np.testing.assert_allclose(
            getattr(keys, name)(listed_x), entries(getattr(DENSE, name)(x)), rtol=1e-5, atol=1e-6
        )
    row, key = np.arange(ROWS, dtype="float32"), np.arange(KEYS_COUNT, dtype="float32")
    np.testing.assert_array_equal(keys.spread(row), entries(np.broadcast_to(DENSE.spread(row), SEEN.shape)))
    np.testing.assert_array_equal(keys.per_entry(key), entries(np.broadcast_to(DENSE.per_entry(key), SEEN.shape)))


def test_padding_has_no_weight_no_divergence_and_no_gradient():
    mask = tf.constant(GENERATOR.random(len(ROW_IDS)) < 0.7)
    logits = entries(inputs(False)[0])
    alignment, keys = REPARAMETERISED["weibull"], segments(mask)
    p = {"prior": prior_of(alignment, "fixed"), "log_psi": None}
    poisoned = tf.where(mask, logits, np.nan)
    with tf.GradientTape() as tape:
        tape.watch(poisoned)
        total = tf.reduce_sum(divergence_of(alignment, poisoned, p, keys))
    assert (tape.gradient(total, poisoned).numpy()[~mask.numpy()] == 0).all()
    short = SegmentKeys(ROW_IDS[mask], ROWS, KEY_IDS[mask])
    np.testing.assert_allclose(
        divergence_of(alignment, poisoned, p, keys),
        divergence_of(alignment, logits[mask], p, short),
        rtol=1e-5,
    )
    np.testing.assert_allclose(keys.softmax(poisoned).numpy()[mask], short.softmax(logits[mask]), rtol=1e-6)
    assert (keys.softmax(poisoned).numpy()[~mask.numpy()] == 0).all()


def test_masked_entries_have_no_gradient_even_if_all_logits_are_lowest():
    keys = SegmentKeys([0, 0, 0, 1], 2, mask=tf.constant([True, True, False, False]))
    logits = tf.constant([LOWEST, LOWEST, 7.0, np.nan])
    for function in (keys.softmax, keys.log_softmax):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            total = tf.reduce_sum(function(logits) * tf.constant([1.0, 2.0, 3.0, 4.0]))
        gradient = tape.gradient(total, logits).numpy()
        assert np.isfinite(gradient).all() and (gradient[2:] == 0.0).all()


def test_a_mask_per_head_over_one_list():
    """If the mask has a head axis that the logits lack, the gradient still has the shape of the logits."""
    keys = SegmentKeys(ROW_IDS, ROWS, mask=tf.constant(GENERATOR.random((HEADS, len(ROW_IDS))) < 0.7))
    logits = tf.constant(entries(inputs(False)[0]))
    for name in ("softmax", "log_softmax"):
        results = []
        for x in (logits, tf.broadcast_to(logits, keys.valid.shape)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(tf.sin(3.0 * getattr(keys, name)(x)))
            results.append(tape.gradient(total, x))
        np.testing.assert_allclose(results[0], tf.reduce_sum(results[1], axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_second_derivatives_equal_dense_keys(name):
    x = tf.constant(GENERATOR.normal(size=6), tf.float32)
    results = []
    for keys, shape in ((SegmentKeys([0, 0, 0, 1, 1, 1], 2), (6,)), (DenseKeys(), (2, 3))):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                total = tf.reduce_sum(tf.reshape(tf.sin(3.0 * getattr(keys, name)(tf.reshape(x, shape))), (-1,)) * x)
            gradient = inner.gradient(total, x)
        results.append(outer.jacobian(gradient, x))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_average():
    value = GENERATOR.normal(size=(KEYS_COUNT, 3)).astype("float32")
    np.testing.assert_allclose(segments().average(value), DENSE.average(value), rtol=1e-5, atol=1e-7)


def test_errors():
    with pytest.raises(ValueError, match=r"`row_ids` must be integers.*Received: row_ids of shape \(2,\), float32"):
        SegmentKeys([0.5, 1.2], 2)
    with pytest.raises(ValueError, match=r"`key_ids` must have shape \(E,\).*Received: key_ids.shape=\(1,\)"):
        SegmentKeys([0, 1], 2, [0])
    with pytest.raises(ValueError, match=r"needs `key_ids`.*Received: key_ids=None"):
        SegmentKeys([0, 1], 2).per_entry(tf.zeros(3))
    for alignment in (Softmax(), Hard()):
        with pytest.raises(ValueError, match=r"needs keras_vattn.DenseKeys.*Received: SegmentKeys"):
            alignment.posterior(tf.zeros(len(ROW_IDS)), segments()).sample(seed=(0, 1))
