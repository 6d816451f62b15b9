"""Checks that a layer with a KL adds exactly one loss per call, with the correct value, and other layers add none."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from battery_cases import STEPS
from battery_checks import assert_equal, training_argument, value_and_gradients
from battery_decoder import DecoderCase
from battery_table import every_row, rows, rows_of_each_trait
from keras import ops
from tensorflow_probability.python.distributions import kl_divergence

from keras_vattn import GaussianLatent, random
from keras_vattn.distributions.row_distribution import mean_divergence


@every_row
def test_one_loss_per_call(case):
    check_one_loss(case, STEPS)


@rows_of_each_trait
def test_one_loss_per_call_of_one_step(case):
    check_one_loss(case, 1)


def check_one_loss(case, steps):
    layer = case.built()
    arrays = case.arrays(steps=steps)
    for training in (True, False):
        layer(**arrays, **training_argument(case, training))
        assert len(layer.losses) == case.divergence
        for loss in layer.losses:
            assert loss.dtype == tf.float32
            assert loss.shape == ()
            assert float(loss) >= 0.0 or (training and case.estimates_divergence)
    if case.divergence:
        np.testing.assert_allclose(layer.losses[0], case.expected_loss(layer, arrays), rtol=1e-5)


def has_both(case):
    """Return whether the layer returns q and p and has no free bits, which would change its loss."""
    layer = case.make()
    free = getattr(layer, "free_bits", 0.0) or getattr(layer, "free_nats", 0.0)
    return hasattr(layer, "prior_distribution") and not free


@rows(lambda case: case.divergence and has_both(case))
def test_the_divergence_of_the_distributions_equals_the_loss_exactly(case, no_noise):
    """The loss is the reduced KL of the posterior and the prior distribution, in training too unless training estimates
    the KL. A KL that is estimated at inference is the mean over sixteen fixed samples."""
    layer, arrays = case.built(), case.arrays()
    layer(**arrays, training=True)
    estimates = getattr(layer, "estimates_divergence", False)
    layer(**arrays, training=not estimates and not case.dropout)
    q, p = layer.posterior_distribution(**arrays), layer.prior_distribution(**arrays)
    if estimates and layer.estimates_divergence:
        divergence = mean_divergence(q, p, layer._scored((), arrays).keys, random.as_seed(0), 16)
    else:
        divergence = kl_divergence(q, p)
        if not q.event_shape.rank and hasattr(layer, "alignment"):
            divergence = layer._scored((), arrays).keys.sum(divergence)
    if hasattr(layer, "num_heads"):
        divergence = ops.sum(divergence, axis=-2)
    batch_size = ops.cast(ops.shape(divergence)[0], "float32")
    assert float(layer.losses[0]) == float(ops.sum(divergence) / batch_size)


# Dropout on the weights would change the posterior.
@rows(lambda case: case.divergence and not case.dropout)
def test_training_and_inference_have_the_divergence_of_the_same_posterior(case, no_noise):
    layer, arrays = case.built(), case.arrays()
    layer(**arrays, training=True)
    np.testing.assert_allclose(layer.losses[0], case.expected_loss(layer, arrays), rtol=1e-5)


@rows(lambda case: case.divergence and case.draws, by_class=True)
def test_gradients_under_a_scope_that_recomputes(case):
    """`keras.RematScope` changes neither the draws of a layer nor the gradient of its KL."""
    plain = case.built(seed=3)
    with keras.RematScope("full"):
        layer = case.built(seed=3)
    layer.set_weights(plain.get_weights())
    (*_, value, gradients), (*_, expected, expected_gradients) = (
        value_and_gradients(case, x, case.arrays()) for x in (layer, plain)
    )
    assert_equal([value, *gradients.values()], [expected, *expected_gradients.values()])


def test_a_layer_inside_a_recomputed_model():
    inputs = keras.Input((3, 4))
    with keras.RematScope("full"):
        model = keras.Model(inputs, GaussianLatent(2)(inputs))
    x = np.ones((2, 3, 4), "float32")
    assert model(x).shape == (2, 3, 2)
    with pytest.raises(ValueError, match=r"Received: GaussianLatent\(name="):
        model(x, training=True)


@rows(lambda case: case.divergence and not isinstance(case, DecoderCase), costly=True)
def test_divergence_is_computed_in_float32(case):
    """The KL of half-precision parameters differs from the exact KL of the same parameters by float32 rounding only."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = case.built()
    arrays = case.arrays()
    layer(**arrays)
    # An estimated KL is a difference of two rounded log densities, so the tolerance is larger.
    rtol = 5e-4 if getattr(layer, "estimates_divergence", False) else 1e-4
    np.testing.assert_allclose(layer.losses[0], case.expected_loss(layer, arrays), rtol=rtol)
    if hasattr(layer, "prior_distribution"):
        # The dtype is float32, or int32 for samples of a categorical distribution.
        assert layer.prior_distribution(**arrays).dtype != tf.bfloat16
    assert float(layer.losses[0]) != float(ops.cast(ops.cast(layer.losses[0], "bfloat16"), "float32"))
