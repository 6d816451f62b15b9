"""Checks the seeds, noise and posterior draws of every public layer."""

import numpy as np
import pytest
import tensorflow as tf
from battery_checks import assert_close, assert_equal, differ
from battery_parts import VectorLatentCase
from battery_table import rows, takes_training

import keras_vattn


@rows(lambda case: case.draws, expensive=True)
def test_seeds(case):
    arrays = case.arrays(batch=8, steps=8)
    layers = [case.built(seed=seed) for seed in (3, 3, 4)]
    for layer in layers[1:]:
        layer.set_weights(layers[0].get_weights())
    first, same, other = (layer(**arrays, training=True) for layer in layers)
    assert_equal(first, same)
    assert differ(case, first, other)
    second, second_same = (layer(**arrays, training=True) for layer in layers[:2])
    assert differ(case, first, second)
    assert_equal(second, second_same)


@rows(
    lambda case: (
        case.draws and case.noise_in_attention and case.rows_are_independent and not isinstance(case, VectorLatentCase)
    ),
    costly=True,
)
def test_noise_differs_between_steps(case):
    """All steps have the same inputs, so only the noise can make their outputs differ."""
    layer = case.built(seed=3)
    steps = 4
    arrays = case.arrays(batch=16, steps=steps)
    for name, x in arrays.items():
        arrays[name] = (x[:1] if name in case.source_arguments else x[:1, :1]) + tf.zeros_like(x)
    result = case.noisy(layer(**arrays, training=True))
    for one in range(steps):
        for two in range(one):
            assert np.any(np.asarray(result[:, one]) != np.asarray(result[:, two]))


@rows(lambda case: case.draws and case.rows_are_independent, costly=True)
def test_noise_differs_between_examples(case):
    layer = case.built(seed=3)
    arrays = {name: x[:1] + tf.zeros_like(x) for name, x in case.arrays(batch=3, steps=8).items()}
    output = np.asarray(case.noisy(layer(**arrays, training=True)))
    assert np.any(output[0] != output[1])
    assert np.any(output[1] != output[2])


@rows(takes_training, costly=True)
def test_inference_is_deterministic(case):
    layer, arrays = case.built(), case.arrays()
    first = layer(**arrays, training=False)
    assert_equal(layer(**arrays, training=False), first)
    assert_equal(layer(**arrays), first)


# Dropout is excluded, because dropout scales the entries that remain.
@rows(lambda case: takes_training(case) and not case.dropout)
def test_inference_is_the_mean(case, no_noise):
    """Inference returns the mean. If a sample is a single key, which has no mean, the case defines `without_noise`."""
    layer, arrays = case.built(), case.arrays()
    assert_close(layer(**arrays, training=True), case.without_noise(layer, arrays), rtol=1e-6, atol=1e-6)


@rows(lambda case: case.draws_from_posterior, costly=True)
def test_posterior_draws(case):
    layer, arrays = case.built(seed=3), case.arrays()
    mean = layer(**arrays)
    with keras_vattn.posterior_draws(layer):
        first, second = layer(**arrays), layer(**arrays)
        assert len(layer.losses) == case.divergence
    assert differ(case, first, mean)
    assert differ(case, first, second)
    with keras_vattn.posterior_draws(layer, seed=1):
        assert_equal(layer(**arrays), layer(**arrays))
    if case.tempered:
        with keras_vattn.posterior_draws(layer, temperature=0.0):
            assert_close(layer(**arrays), mean, rtol=1e-6, atol=1e-7)
    assert_equal(layer(**arrays), mean)


@rows(lambda case: not case.draws_from_posterior)
def test_posterior_draws_of_a_layer_without_a_posterior(case):
    layer, arrays = case.built(), case.arrays()
    if not case.values_draws:
        with pytest.raises(ValueError, match="Received: model="), keras_vattn.posterior_draws(layer):
            pass
        return
    mean, in_training = layer(**arrays), layer(**arrays, training=True)
    with keras_vattn.posterior_draws(layer):
        assert_equal(layer(**arrays), in_training)
    assert differ(case, in_training, mean)
    assert_equal(layer(**arrays), mean)
