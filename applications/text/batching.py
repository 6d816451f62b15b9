"""Batches of sentence pairs in a handful of fixed shapes, in an order that a resumed run repeats.

Shapes: B rows of a batch, S source tokens, T target tokens (one more than the target has words).
"""

import numpy as np
import tensorflow as tf

from applications.text.text import END, START

MAX_BUCKETS = 8
# Places where a bucket may end that are looked at.
MAX_CUTS = 512


def num_batches(num_rows, batch_size):
    """How many batches one epoch of `bucketed_dataset` has."""
    return -(-num_rows // batch_size)


def bucket_shapes(sources, targets):
    """Padded lengths of the buckets: of all cuts of one order of the pairs, that with the least sum of S x T.

    The order is by the side that is the longer one, each compared with its like; at most 512 places of it are tried.

    Args:
        sources, targets: lists of 1-D arrays.

    Returns:
        An int32 array (at most `MAX_BUCKETS`, 2) of (S, T), growing in both columns. The last row fits every pair.
    """
    lengths = _lengths(sources, targets)
    ranks = [np.searchsorted(np.sort(column), column, side="right") for column in lengths.T]
    keys, key_of_row = np.unique(np.max(ranks, axis=0), return_inverse=True)
    count = min(len(keys), MAX_CUTS)
    ends = np.linspace(0, len(keys) - 1, count).astype(int)
    cut_of_row = np.searchsorted(ends, key_of_row)
    shapes = np.zeros((count, 2), np.int64)
    np.maximum.at(shapes, cut_of_row, lengths)
    shapes = np.maximum.accumulate(shapes)
    cuts = _cheapest_cuts(np.bincount(cut_of_row, minlength=count), shapes.prod(axis=1))
    return shapes[cuts].astype(np.int32)


def _cheapest_cuts(counts, costs):
    """Cut a row into at most `MAX_BUCKETS` parts, where a member of a part costs what the part's last place does.

    Args:
        counts: (n,) members at each place.
        costs: (n,) what a member costs where the part ends at a place; growing.

    Returns:
        The last place of each part, growing.
    """
    before = np.concatenate([[0], np.cumsum(counts)])
    # part[i, j]: the cost of a part of the places i to j.
    part = (before[None, 1:] - before[:-1, None]) * costs[None].astype(float)
    part[np.tril_indices(len(costs), -1)] = np.inf
    best, starts = part[0], []
    for _ in range(MAX_BUCKETS - 1):
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


def bucketed_dataset(
    sources,
    targets,
    batch_size,
    *,
    shuffle=False,
    seed=0,
    first_epoch=0,
    num_epochs=1,
):
    """Batches of `({"source": (B, S), "target_input": (B, T)}, target_output (B, T))`, int32, padded with 0.

    `target_input` is the start id and the target, `target_output` the target and the end id. Rows of similar length
    share a batch. A batch is padded to the shape of its longest row's bucket, so an epoch has at most `MAX_BUCKETS`
    shapes, and one more if the last batch is smaller: at most that many compilations under XLA.

    The order depends on `seed` and the number of the epoch alone. A run of 10 epochs and one that stops after 4 and
    goes on with `first_epoch=4` see the same batches:

    ```
    dataset = bucketed_dataset(..., shuffle=True, seed=seed, first_epoch=4, num_epochs=None)
    model.fit(dataset, initial_epoch=4, epochs=10, steps_per_epoch=num_batches(len(sources), batch_size))
    ```

    Args:
        sources, targets: lists of 1-D int arrays without start and end, as many of the one as of the other.
        batch_size: int, rows of a batch.
        shuffle: bool, default False: rows run from the shortest bucket to the longest, otherwise in their order.
            True: rows are dealt to batches anew in every epoch, and batches come in random order.
        seed: int, default 0.
        first_epoch: int, default 0, the number of the first epoch to yield.
        num_epochs: int, how many epochs to yield, default 1; None goes on for ever (then tell `fit` how many steps an
            epoch has).

    Returns:
        A `tf.data.Dataset`; with `num_epochs` its length is known.

    Raises:
        ValueError: for lists that do not correspond, or no rows.
    """
    shapes = bucket_shapes(sources, targets)
    buckets = _buckets(sources, targets, shapes)
    per_epoch = num_batches(len(sources), batch_size)
    # The data stays on the CPU, whatever device the model trains on.
    with tf.device("CPU:0"):
        bucket_of_row = tf.constant(buckets, tf.int32)
        shape_of_bucket = tf.constant(shapes)
        source = tf.constant(_pad(sources, shapes[-1, 0]))
        target_input = tf.constant(_pad([[START, *row] for row in targets], shapes[-1, 1]))
        target_output = tf.constant(_pad([[*row, END] for row in targets], shapes[-1, 1]))

    def rows_of_batches(epoch):
        order = tf.range(len(sources))
        if shuffle:
            order = tf.random.experimental.stateless_shuffle(order, [seed, 2 * epoch])
        # A stable sort: rows of a bucket keep their random order, and those that a bucket has left over open the
        # next one's first batch.
        order = tf.gather(order, tf.argsort(tf.gather(bucket_of_row, order), stable=True))
        filler = tf.fill([per_epoch * batch_size - tf.size(order)], -1)
        batches = tf.reshape(tf.concat([order, filler], axis=0), [per_epoch, batch_size])
        if shuffle:
            batches = tf.random.experimental.stateless_shuffle(batches, [seed, 2 * epoch + 1])
        return tf.data.Dataset.from_tensor_slices(batches)

    def batch_of_rows(rows):
        rows = tf.boolean_mask(rows, rows >= 0)
        shape = shape_of_bucket[tf.reduce_max(tf.gather(bucket_of_row, rows))]
        inputs = {
            "source": tf.gather(source, rows)[:, : shape[0]],
            "target_input": tf.gather(target_input, rows)[:, : shape[1]],
        }
        return inputs, tf.gather(target_output, rows)[:, : shape[1]]

    last_epoch = np.iinfo(np.int64).max if num_epochs is None else first_epoch + num_epochs
    dataset = tf.data.Dataset.range(first_epoch, last_epoch).flat_map(rows_of_batches).map(batch_of_rows)
    if num_epochs is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_epochs * per_epoch))
    return dataset.prefetch(tf.data.AUTOTUNE)


def _lengths(sources, targets):
    """(rows, 2): tokens of the source, at least 1, and of the target with its start or end."""
    if len(sources) != len(targets) or len(sources) == 0:
        raise ValueError(
            f"sources and targets need one array per row. Received: {len(sources)} sources and {len(targets)} targets"
        )
    return np.array([(max(len(source), 1), len(target) + 1) for source, target in zip(sources, targets, strict=True)])


def _buckets(sources, targets, shapes):
    """The first bucket that each row fits into."""
    return (_lengths(sources, targets)[:, None, :] <= shapes[None]).all(axis=-1).argmax(axis=1)


def _pad(rows, length):
    padded = np.zeros((len(rows), length), np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
