import gc
import itertools
import weakref

import numpy as np
import pytest
import tensorflow as tf

from applications.text import batching
from applications.text.batching import MAX_SHAPES, bucket_shapes, bucketed_dataset, num_batches
from applications.text.rows import IdRows
from applications.text.text import END, START


def pairs(num_rows=203, seed=0):
    generator = np.random.default_rng(seed)
    # Each row consists of one word id of its own, which identifies the row in a batch.
    sources = [np.full(generator.integers(1, 40), 10 + row, np.int32) for row in range(num_rows)]
    targets = [np.full(generator.integers(1, 20), 10 + row, np.int32) for row in range(num_rows)]
    return sources, targets


def batches(sources, targets, batch_size=16, num_epochs=1, **options):
    dataset = bucketed_dataset(sources, targets, batch_size, **options)
    dataset = dataset.take(num_epochs * num_batches(len(sources), batch_size))
    return [(x["source"].numpy(), x["target_input"].numpy(), y.numpy()) for x, y in dataset]


def rows_of(epoch):
    return [(batch[0][:, 0] - 10).tolist() for batch in epoch]


def test_one_small_batch_exactly(monkeypatch):
    monkeypatch.setattr(batching, "MAX_SHAPES", 1)
    ((source, target_input, target_output),) = batches([[7, 8], [9]], [[5], [6, 4]])
    np.testing.assert_array_equal(source, [[7, 8], [9, 0]])
    np.testing.assert_array_equal(target_input, [[2, 5, 0], [2, 6, 4]])
    np.testing.assert_array_equal(target_output, [[5, 3, 0], [6, 4, 3]])
    assert source.dtype == target_input.dtype == target_output.dtype == np.int32


@pytest.mark.parametrize("first_epoch", [None, 0])
def test_every_row_occurs_once(first_epoch):
    sources, targets = pairs()
    epoch = batches(sources, targets, first_epoch=first_epoch)
    assert sorted(itertools.chain(*rows_of(epoch))) == list(range(203))
    assert len(epoch) == num_batches(203, 16) == 13
    for source, target_input, target_output in epoch:
        rows = source[:, 0] - 10
        for row, x, y, z in zip(rows, source, target_input, target_output, strict=True):
            assert x[x > 0].tolist() == list(sources[row])
            assert y[y > 0].tolist() == [START, *targets[row]]
            assert z[z > 0].tolist() == [*targets[row], END]


def test_few_shapes_and_one_trace_each():
    sources, targets = pairs()
    shapes = bucket_shapes(sources, targets)
    assert len(shapes) == MAX_SHAPES
    assert shapes[-1].tolist() == [max(map(len, sources)), max(map(len, targets)) + 1]
    traces = []

    @tf.function
    def step(source, target_input):
        traces.append((source.shape, target_input.shape))
        return tf.reduce_sum(source) + tf.reduce_sum(target_input)

    for source, target_input, _ in batches(sources, targets, num_epochs=5, first_epoch=0):
        step(tf.constant(source), tf.constant(target_input))
    # The last batch of an epoch is smaller.
    assert len(traces) == MAX_SHAPES and {source[0] for source, _ in traces} == {16, 203 % 16}
    assert len(set(traces)) == len(traces)


def test_the_buckets_have_the_least_padding():
    """No other way to split the lengths into buckets needs less padding."""
    generator = np.random.default_rng(0)
    for _ in range(5):
        lengths = np.minimum(generator.geometric(0.2, size=60), 12)
        rows = [np.ones(length) for length in lengths]
        # S = length and T = length + 1, so this loop can try every way to split one sorted list of lengths.
        places = np.unique(lengths)
        cost = lambda ends: sum((x := min(end for end in ends if end >= length)) * (x + 1) for length in lengths)  # noqa: E731, B023
        least = min(cost((*ends, places[-1])) for ends in itertools.combinations(places[:-1], 2))
        shapes = bucket_shapes(rows, rows, 3)
        assert shapes.shape == (3, 2)
        assert cost(shapes[:, 0]) == least
    assert len(bucket_shapes(rows[:1], rows[:1])) == 1
    assert bucket_shapes(rows, rows, 1).tolist() == [[places[-1], places[-1] + 1]]


def test_many_lengths_share_few_buckets(monkeypatch):
    monkeypatch.setattr(batching, "MAX_CUTS", 5)
    sources, targets = pairs(300)
    shapes = bucket_shapes(sources, targets)
    assert 1 < len(shapes) <= 5
    assert (np.diff(shapes, axis=0) >= 0).all()
    assert shapes[-1].tolist() == [max(map(len, sources)), max(map(len, targets)) + 1]


def test_padding_is_less_than_without_buckets():
    sources, targets = pairs(1000)
    cells = sum(batch[0].size for batch in batches(sources, targets))
    assert cells < 0.85 * len(sources) * max(map(len, sources))


def test_order_depends_on_seed_and_epoch_alone():
    sources, targets = pairs()
    uninterrupted = rows_of(batches(sources, targets, seed=5, first_epoch=0, num_epochs=4))
    resumed = rows_of(batches(sources, targets, seed=5, first_epoch=2, num_epochs=2))
    assert resumed == uninterrupted[26:]
    assert uninterrupted[:13] != uninterrupted[13:26]
    assert {frozenset(batch) for batch in uninterrupted[:13]} != {frozenset(batch) for batch in uninterrupted[13:26]}
    assert rows_of(batches(sources, targets, seed=6, first_epoch=0)) != uninterrupted[:13]


def test_length_is_known():
    sources, targets = pairs(50)
    assert len(bucketed_dataset(sources, targets, 16)) == 4
    assert len(list(bucketed_dataset(sources, targets, 16, first_epoch=0).take(9))) == 9


def test_a_dataset_frees_its_rows():
    """A dataset frees its rows, although TensorFlow never releases functions passed to `tf.numpy_function`."""
    rows = IdRows.of([[4, 5], [6], [7, 8, 9]])
    weak, batches = weakref.ref(rows), iter(bucketed_dataset(rows, rows, 2))
    assert [len(target) for _, target in batches] == [2, 1]
    del rows, batches
    gc.collect()
    assert weak() is None
