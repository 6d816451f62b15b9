"""Batches of sentence pairs in a handful of fixed shapes, in an order that a resumed run repeats.

Shapes: B rows of a batch, S source tokens, T target tokens (one more than the target has words).
"""

import numpy as np
import tensorflow as tf

from applications.common.batches import prefetched
from applications.text.rows import IdRows
from applications.text.text import END, PAD, START

MAX_BUCKETS = 8


def quantiles(lengths, most):
    """Return all different lengths, growing, or of more than so many those that divide the rows into groups of about
    equal size; the last one is the largest."""
    different = np.unique(lengths)
    if len(different) <= most:
        return different
    return np.unique(np.quantile(lengths, np.arange(1, most + 1) / most, method="higher"))


def buckets(sources, targets):
    """Return the bucket of each pair, int (N,), and the padded lengths (S, T) of each bucket.

    Pairs are ordered by the longer side, each side ranked among its like; the buckets cut this order into equal parts.
    """
    lengths = np.stack([np.maximum(sources.lengths, 1), targets.lengths + 1], axis=1)
    ranks = np.max([np.searchsorted(np.sort(column), column, side="right") for column in lengths.T], axis=0)
    ends = quantiles(ranks, MAX_BUCKETS)
    bucket_of_row = np.searchsorted(ends, ranks)
    shapes = np.zeros((len(ends), 2), np.int64)
    np.maximum.at(shapes, bucket_of_row, lengths)
    return bucket_of_row, shapes


def num_batches(sources, targets, batch_size):
    """Return how many batches one epoch of `bucketed_dataset` has."""
    bucket_of_row, _ = buckets(IdRows.of(sources), IdRows.of(targets))
    return int(np.sum(-(-np.bincount(bucket_of_row) // batch_size)))


def other_sentence(x):
    """Return the rows of a batch in another order: of each the one half a batch away, as a file may have pairs of one
    source in a row."""
    return tf.roll(x, tf.shape(x)[0] // 2, axis=0)


def has_other(source):
    """Return which rows of a batch of sources, (B, S), are not what `other_sentence` puts in their place."""
    return tf.reduce_any(source != other_sentence(source), axis=1)


def bucketed_dataset(sources, targets, batch_size, *, shuffle=False, seed=0, first_epoch=0, num_epochs=1):
    """Return batches of `({"source": (B, S), "target_input": (B, T)}, target (B, T))`, int32, padded with 0.

    `target_input` is the start id and the target; `target` is the target and the end id. A batch has rows of one bucket
    and its lengths; the last batch of a bucket in an epoch may be smaller. The order depends on `seed` and the number
    of the epoch alone.

    Args:
        sources, targets: `IdRows`, or lists of 1-D int arrays, without start and end. A batch is read when it is made.
        batch_size: Rows of a batch.
        shuffle: Whether rows come in another random order in every epoch. Defaults to `False`.
        seed: Integer.
        first_epoch: Number of the first epoch to yield.
        num_epochs: Number of epochs to yield; `None` goes on for ever.
    """
    sources, targets = IdRows.of(sources), IdRows.of(targets)
    bucket_of_row, shapes = buckets(sources, targets)
    # The order of the rows is made on the CPU, whatever device the model trains on.
    with tf.device("CPU:0"):
        bucket_tensor = tf.constant(bucket_of_row, tf.int32)

    def rows_of_batches(epoch):
        rows = tf.range(len(sources))
        if shuffle:
            rows = tf.random.experimental.stateless_shuffle(rows, [seed, epoch])
        return tf.data.Dataset.from_tensor_slices(rows).bucket_by_sequence_length(
            lambda row: bucket_tensor[row],
            bucket_boundaries=list(range(1, len(shapes))),
            bucket_batch_sizes=[batch_size] * len(shapes),
        )

    def read(rows):
        sides = ([side[row] for row in rows] for side in (sources, targets))
        return teacher_forced(*sides, shapes[bucket_of_row[rows[0]]])

    def batch_of_rows(rows):
        source, target_input, target = tf.numpy_function(read, [rows], [tf.int32] * 3)
        for x in (source, target_input, target):
            x.set_shape([None, None])
        return {"source": source, "target_input": target_input}, target

    last_epoch = np.iinfo(np.int64).max if num_epochs is None else first_epoch + num_epochs
    dataset = tf.data.Dataset.range(first_epoch, last_epoch).flat_map(rows_of_batches).map(batch_of_rows)
    if num_epochs is not None:
        num = num_epochs * num_batches(sources, targets, batch_size)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num))
    return prefetched(dataset)


def teacher_forced(sources, targets, shape=(0, 0)):
    """Return the int32 arrays source (B, S), target_input and target (B, T) of lists of ids, padded to the longest of
    them, or to a shape (S, T) if that is larger."""
    lengths = np.array([len(row) for row in targets], int)
    target = padded(targets, max(shape[1], lengths.max(initial=0) + 1))
    target_input = np.roll(target, 1, axis=1)
    target_input[:, 0] = START
    target[np.arange(len(targets)), lengths] = END
    return padded(sources, shape[0]), target_input, target


def padded(rows, length=1):
    """Return lists of ids as one int32 array (B, longest), at least of one column, or of a length."""
    array = np.full((len(rows), max(1, length, *map(len, rows))), PAD, np.int32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def cheapest_cuts(counts, costs, most):
    """Return the last places of the cheapest parts of a row, growing.

    Args:
        counts: (n,), members at each place.
        costs: (n,), growing, the cost of a member of a part that ends at a place.
        most: Parts at most.
    """
    before = np.concatenate([[0], np.cumsum(counts)])
    # part[i, j]: the cost of a part of the places i to j.
    part = (before[None, 1:] - before[:-1, None]) * costs[None].astype(float)
    part[np.tril_indices(len(costs), -1)] = np.inf
    best, starts = part[0], []
    for _ in range(most - 1):
        total = np.concatenate([[np.inf], best[:-1]])[:, None] + part
        start = total.argmin(axis=0)
        starts.append(np.where(total.min(axis=0) < best, start, 0))
        best = np.minimum(best, total.min(axis=0))
    cuts, last = [], len(costs) - 1
    for start in reversed(starts):
        if start[last]:
            cuts.append(last)
            last = int(start[last]) - 1
    return np.array([last, *reversed(cuts)])
