"""Checks every public layer on two replicas."""

import numpy as np
import tensorflow as tf
from battery_cases import BATCH
from battery_checks import training_argument, value_and_gradients
from battery_latent import LATENT_CASES
from battery_table import rows
from keras import tree


def replica_arrays(case):
    """Return a batch. With free bits, which apply to the mean over the batch, both halves of the batch are equal."""
    arrays = case.arrays()
    if "free-bits" not in case.name:
        return arrays
    return {name: tf.tile(x[: BATCH // 2], [2, *[1] * (x.shape.rank - 1)]) for name, x in arrays.items()}


def run_replicas(strategy, step, inputs):
    """Run `step` on one half of the inputs per replica; each leaf of the result is a list over replicas."""

    def half(x):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.split(x, 2)[context.replica_id_in_sync_group]
        )

    run = tf.function(lambda inputs: strategy.run(step, args=(inputs,)))
    results = run({name: half(x) for name, x in inputs.items()})
    return tree.map_structure(strategy.experimental_local_results, results)


# Layers without a loss or a state are excluded: their replicas differ only in the draws.
@rows(
    lambda case: case.rows_are_independent and (case.divergence or case in LATENT_CASES), expensive=True, by_class=True
)
def test_two_replicas_are_one_without_noise(case, two_replicas, no_noise):
    arrays = replica_arrays(case)
    masks = case.masks()
    with two_replicas.scope():
        layer = case.built()
    single = case.built()
    single.set_weights(layer.get_weights())
    training = bool(training_argument(case, True)) or None

    def step(inputs):
        arrays = {name: x for name, x in inputs.items() if name in case.widths}
        masks = {name: x for name, x in inputs.items() if name not in case.widths}
        return step_results(layer, arrays, masks)

    def step_results(layer, arrays, masks):
        _, value, gradients = value_and_gradients(case, layer, arrays, masks, training)
        return [value, sum(layer.losses, tf.zeros(())), *(gradients[w.path] for w in layer.trainable_weights)]

    results = run_replicas(two_replicas, step, {**arrays, **masks})
    expected = step_results(single, arrays, masks)
    for replicas, one in zip(results, expected, strict=True):
        assert len(replicas) == 2
        np.testing.assert_allclose((replicas[0] + replicas[1]) / 2, one, rtol=1e-4, atol=1e-6)


@rows(lambda case: case.draws and case.rows_are_independent, expensive=True, by_class=True)
def test_two_replicas_draw_differently(case, two_replicas):
    arrays = {name: x[:1] + tf.zeros_like(x) for name, x in case.arrays(steps=8).items()}
    with two_replicas.scope():
        layer = case.built(seed=3)
    first, second = run_replicas(two_replicas, lambda x: case.noisy(layer(**x, training=True)), arrays)
    assert np.any(np.asarray(first) != np.asarray(second))
