"""Splits arrays into batches, in an order that a resumed run reproduces."""

import numpy as np
import tensorflow as tf


def prefetched(dataset, num_batches=2):
    """Return a dataset that prepares up to `num_batches` batches ahead, without autotuning.

    With autotuning, TensorFlow 2.21 waits at the end of each pass over the data, which can double its duration.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(num_batches).with_options(options)


def array_batches(arrays, batch_size, seed=0, first_epoch=None):
    """Return a dataset of batches: one pass over the examples in order, or endless shuffled passes.

    Args:
        arrays: Nested structure of arrays with N examples each, for instance (inputs, targets).
        batch_size: Examples per batch. The last batch of an epoch may be smaller.
        seed: Seed of the shuffling.
        first_epoch: `None` for one pass over the examples in order. An integer makes the dataset endless, beginning
            with this epoch. The order in an epoch depends only on the seed and the number of the epoch.
    """
    with tf.device("CPU:0"):
        arrays = tf.nest.map_structure(tf.constant, arrays)
    if first_epoch is None:
        return prefetched(tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size))
    num_rows = len(tf.nest.flatten(arrays)[0])

    def rows_of(epoch):
        order = tf.random.experimental.stateless_shuffle(tf.range(num_rows), tf.stack([seed, epoch]))
        return tf.data.Dataset.from_tensor_slices(order).batch(batch_size)

    rows = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(rows_of)
    return prefetched(rows.map(lambda rows: tf.nest.map_structure(lambda x: tf.gather(x, rows), arrays)))


def num_array_batches(arrays, batch_size):
    """Return how many batches `array_batches` yields per epoch."""
    return -(-len(tf.nest.flatten(arrays)[0]) // batch_size)
