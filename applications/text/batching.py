"""Batches of sentence pairs in a few fixed shapes, in an order that a resumed run reproduces.

Shapes: B rows of a batch, S source tokens, T target tokens (the words of the target, and start or end).
"""

import weakref

import numpy as np
import tensorflow as tf

from applications.common.batches import prefetched
from applications.text.rows import IdRows
from applications.text.text import END, PAD, START

# Maximum number of batch shapes, including a smaller last batch. XLA compiles a step once per shape.
MAX_SHAPES = 8
# Maximum number of candidates for the end of a bucket.
MAX_CUTS = 512


def num_batches(num_rows, batch_size):
    """Return the number of batches in one epoch of `bucketed_dataset`."""
    return -(-num_rows // batch_size)


def num_buckets(num_rows, batch_size):
    """Return the maximum number of shapes of full batches; a smaller last batch has its own shape."""
    return max(1, MAX_SHAPES - (num_rows % batch_size > 0))


def bucket_shapes(sources, targets, max_parts=MAX_SHAPES):
    """Return the padded lengths (S, T) of at most `max_parts` buckets, one row each, increasing in both columns.

    The pairs are sorted by the larger of two ranks, of the source length and of the target length, and cut so that
    the sum of S x T is smallest. The last bucket fits every pair.
    """
    lengths = _lengths(IdRows.of(sources), IdRows.of(targets))
    ranks = [np.searchsorted(np.sort(column), column, side="right") for column in lengths.T]
    keys, key_of_row = np.unique(np.max(ranks, axis=0), return_inverse=True)
    count = min(len(keys), MAX_CUTS)
    ends = np.linspace(0, len(keys) - 1, count).astype(int)
    cut_of_row = np.searchsorted(ends, key_of_row)
    shapes = np.zeros((count, 2), np.int64)
    np.maximum.at(shapes, cut_of_row, lengths)
    shapes = np.maximum.accumulate(shapes)
    cuts = cheapest_cuts(np.bincount(cut_of_row, minlength=count), shapes.prod(axis=1), max_parts)
    return shapes[cuts].astype(np.int32)


def other_sentence(x):
    """Return the rows of a batch rotated by half a batch; rows next to each other may have the same source."""
    return tf.roll(x, tf.shape(x)[0] // 2, axis=0)


def has_other(source):
    """Return whether each row of a batch of sources (B, S) differs from its replacement in `other_sentence`."""
    return tf.reduce_any(source != other_sentence(source), axis=1)


def bucketed_dataset(sources, targets, batch_size, seed=0, first_epoch=None):
    """Return batches of `({"source": (B, S), "target_input": (B, T)}, target (B, T))`, int32, padded with 0.

    `target_input` is the start id and the target; `target` is the target and the end id. Rows of similar length share a
    batch. A batch is padded to the bucket of its longest row, and the smaller batch of an epoch has the longest rows:
    all epochs together have at most `MAX_SHAPES` shapes.

    Args:
        sources, targets: `IdRows`, or lists of 1-D int arrays, without start and end. Rows are read batch by batch.
        batch_size: Rows of a batch.
        seed: Integer.
        first_epoch: `None` for one pass, from the shortest bucket to the longest, rows in order within a bucket.
            Otherwise the number of the first epoch: batches without end, with random rows in a random order that
            depends only on the seed and the number of the epoch.
    """
    sources, targets = IdRows.of(sources), IdRows.of(targets)
    lengths = _lengths(sources, targets)
    shapes = bucket_shapes(sources, targets, num_buckets(len(sources), batch_size))
    # The smallest bucket that each row fits into.
    buckets = (lengths[:, None] <= shapes).all(axis=2).argmax(axis=1).astype(np.int32)
    per_epoch = num_batches(len(sources), batch_size)
    # The order of the rows is computed on the CPU, whatever device the model trains on.
    with tf.device("CPU:0"):
        bucket_of_row = tf.constant(buckets)

    def rows_of_batches(epoch=None):
        order = tf.range(len(sources))
        if epoch is not None:
            order = tf.random.experimental.stateless_shuffle(order, [seed, 2 * epoch])
        # A stable sort: rows of a bucket stay in random order; the last ones start the first batch of the next bucket.
        order = tf.gather(order, tf.argsort(tf.gather(bucket_of_row, order), stable=True))
        filler = tf.fill([per_epoch * batch_size - tf.size(order)], -1)
        batches = tf.reshape(tf.concat([order, filler], axis=0), [per_epoch, batch_size])
        if epoch is not None:
            batches = tf.random.experimental.stateless_shuffle(batches, [seed, 2 * epoch + 1])
        return tf.data.Dataset.from_tensor_slices(batches)

    def read(rows):
        rows = rows[rows >= 0]
        sides = ([side[row] for row in rows.tolist()] for side in (sources, targets))
        return teacher_forced(*sides, shapes[buckets[rows].max()])

    # A weak reference, because TensorFlow never releases a function that it calls, and would keep the files open.
    reader = weakref.ref(read)

    def batch_of_rows(rows):
        source, target_input, target = tf.numpy_function(lambda rows: reader()(rows), [rows], [tf.int32] * 3)
        for x in (source, target_input, target):
            x.set_shape([None, None])
        return {"source": source, "target_input": target_input}, target

    if first_epoch is None:
        batches = rows_of_batches()
    else:
        batches = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(rows_of_batches)
    dataset = prefetched(batches.map(batch_of_rows))
    # Iterators and derived datasets hold a reference to the dataset, and so to the reader.
    dataset.reader = read
    return dataset


def teacher_forced(sources, targets, shape=(0, 0)):
    """Return the int32 arrays source (B, S), target_input and target (B, T) for lists of ids, padded to the longest
    row, or to the `shape` (S, T) if it is larger."""
    lengths = np.array([len(row) for row in targets], int)
    target = padded(targets, max(shape[1], lengths.max(initial=0) + 1))
    target_input = np.roll(target, 1, axis=1)
    target_input[:, 0] = START
    target[np.arange(len(targets)), lengths] = END
    return padded(sources, shape[0]), target_input, target


def padded(rows, length=1):
    """Return lists of ids as a padded int32 array (B, T): T is the longest row, at least 1 and `length`."""
    array = np.full((len(rows), max(1, length, *map(len, rows))), PAD, np.int32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def cheapest_cuts(counts, costs, max_parts):
    """Return the last positions, increasing, of the cheapest partition of n positions into at most `max_parts`
    intervals.

    `counts` (n,) are the members at each position. `costs` (n,), increasing, is the cost per member of an interval that
    ends there.
    """
    before = np.concatenate([[0], np.cumsum(counts)])
    # part[i, j]: the cost of the interval of positions i to j.
    part = (before[None, 1:] - before[:-1, None]) * costs[None].astype(float)
    part[np.tril_indices(len(costs), -1)] = np.inf
    best, starts = part[0], []
    for _ in range(max_parts - 1):
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


def _lengths(sources, targets):
    """Return (rows, 2): the number of tokens of the source, at least 1, and of the target with its start or end."""
    return np.stack([np.maximum(sources.lengths, 1), targets.lengths + 1], axis=1)
