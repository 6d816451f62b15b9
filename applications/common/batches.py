"""Batches of arrays, in an order that a resumed run reproduces."""

import numpy as np
import tensorflow as tf


def prefetched(dataset, num_batches=2):
    """Return a dataset that prepares up to `num_batches` batches ahead.

    Autotuning is off: TensorFlow 2.21 tunes a dataset after 10, 20, 40, ... ms, and a finished iteration waits for the
    next tuning, which doubles its time in the worst case.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(num_batches).with_options(options)


def array_batches(arrays, batch_size, seed=0, first_epoch=None):
    """Return batches of the rows of arrays.

    Args:
        arrays: Nested structure of arrays of N rows each, for instance (inputs, targets).
        batch_size: Rows of a batch; the last batch of an epoch may have fewer.
        seed: Seed of the order.
        first_epoch: `None` for one pass over the rows in order. Otherwise the number of the first epoch: the batches
            then repeat without end, and their order depends only on the seed and the number of the epoch.
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
    """Return the number of batches in an epoch of `array_batches`."""
    return -(-len(tf.nest.flatten(arrays)[0]) // batch_size)
