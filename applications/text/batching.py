"""Groups sentence pairs into batches of a few fixed shapes, in an order that a resumed run reproduces.

Shapes: B pairs in a batch, S source tokens, T target tokens (including the start token or the end token).
"""

import weakref

import numpy as np
import tensorflow as tf

from applications.common.batches import prefetched
from applications.text.rows import IdRows
from applications.text.text import END, PAD, START

# Maximum number of batch shapes. XLA compiles a training step once per shape.
MAX_SHAPES = 8
MAX_CUTS = 512


def num_batches(num_rows, batch_size):
    """Return the number of batches in one epoch of `bucketed_dataset`."""
    return -(-num_rows // batch_size)


def num_buckets(num_rows, batch_size):
    """Return the maximum number of buckets: `MAX_SHAPES`, minus one for a smaller last batch."""
    return max(1, MAX_SHAPES - (num_rows % batch_size > 0))


def bucket_shapes(sources, targets, max_parts=MAX_SHAPES):
    """Return the padded lengths (S, T) of at most `max_parts` buckets: int32 (buckets, 2), sorted.

    Pairs are sorted by the larger of two ranks: of the source length and of the target length. The sorted pairs are cut
    into buckets that minimize the total padded size, the sum of S x T over all pairs. The last bucket fits every pair.
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
    """Rotate the rows of a batch by half its length, because adjacent rows may be equal."""
    return tf.roll(x, tf.shape(x)[0] // 2, axis=0)


def has_other(source):
    """Return booleans (B,): whether `other_sentence` changes the tokens of each row of `source` (B, S)."""
    return tf.reduce_any(source != other_sentence(source), axis=1)


def bucketed_dataset(sources, targets, batch_size, seed=0, first_epoch=None):
    """Return a dataset of batches `({"source": (B, S), "target_input": (B, T)}, target (B, T))`.

    All arrays are int32, padded with 0. `target_input` begins with the start id, and `target` ends with the end id.
    Pairs of similar length share a batch. A batch is padded to the bucket of its longest pair. If `batch_size` does not
    divide the number of pairs, the longest pairs form one smaller batch. There are at most `MAX_SHAPES` batch shapes.

    Args:
        sources, targets: `IdRows`, or lists of 1-D int arrays, without start and end ids. Rows are read batch by batch.
        batch_size: Number of pairs per batch.
        seed: Integer, for the order of the pairs and of the batches.
        first_epoch: `None` for one pass from the shortest bucket to the longest, without shuffling. An integer makes
            the dataset endless, beginning with this epoch. The order depends only on the seed and the epoch.
    """
    sources, targets = IdRows.of(sources), IdRows.of(targets)
    lengths = _lengths(sources, targets)
    shapes = bucket_shapes(sources, targets, num_buckets(len(sources), batch_size))
    buckets = (lengths[:, None] <= shapes).all(axis=2).argmax(axis=1).astype(np.int32)
    per_epoch = num_batches(len(sources), batch_size)
    with tf.device("CPU:0"):
        bucket_of_row = tf.constant(buckets)

    def rows_of_batches(epoch=None):
        order = tf.range(len(sources))
        if epoch is not None:
            order = tf.random.experimental.stateless_shuffle(order, [seed, 2 * epoch])
        # Without a stable sort, pairs in the same bucket would not be shuffled.
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

    # TensorFlow never releases this lambda. Without the weak reference, files would stay open.
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
    # Without this attribute, Python would delete `read` before the dataset.
    dataset.reader = read
    return dataset


def teacher_forced(sources, targets, shape=(0, 0)):
    """Pad a batch of id lists. Return int32 arrays source (B, S), target_input (B, T) and target (B, T).
    S and T are the maximum lengths in the batch, but not less than `shape`."""
    lengths = np.array([len(row) for row in targets], int)
    target = padded(targets, max(shape[1], lengths.max(initial=0) + 1))
    target_input = np.roll(target, 1, axis=1)
    target_input[:, 0] = START
    target[np.arange(len(targets)), lengths] = END
    return padded(sources, shape[0]), target_input, target


def padded(rows, length=1):
    """Pad lists of ids to int32 (B, T). T is the largest of 1, `length` and the lengths of the lists."""
    array = np.full((len(rows), max(1, length, *map(len, rows))), PAD, np.int32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def cheapest_cuts(counts, costs, max_parts):
    """Return the last positions of at most `max_parts` intervals with the minimum total cost.

    The intervals partition the positions. `counts[i]` items lie at position i. Each item in an interval that ends at
    position j costs `costs[j]`. `costs` must increase.
    """
    before = np.concatenate([[0], np.cumsum(counts)])
    # part[i, j]: cost of an interval from i to j.
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
    """Return source and target lengths (pairs, 2). Targets include one special id."""
    return np.stack([np.maximum(sources.lengths, 1), targets.lengths + 1], axis=1)
