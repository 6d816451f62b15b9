import itertools

import numpy as np
import pytest
import tensorflow as tf

from applications.text.batching import MAX_BUCKETS, bucketed_dataset, cheapest_cuts, num_batches, padded, quantiles
from applications.text.text import END, START


def pairs(num_rows=203, seed=0):
    generator = np.random.default_rng(seed)
    # Word ids are unique per row, so that a row can be recognised in its batch.
    sources = [np.full(generator.integers(1, 40), 10 + row, np.int32) for row in range(num_rows)]
    targets = [np.full(generator.integers(1, 20), 10 + row, np.int32) for row in range(num_rows)]
    return sources, targets


def batches(sources, targets, batch_size=16, **options):
    dataset = bucketed_dataset(sources, targets, batch_size, **options)
    return [(x["source"].numpy(), x["target_input"].numpy(), y.numpy()) for x, y in dataset]


def rows_of(epoch):
    return [(batch[0][:, 0] - 10).tolist() for batch in epoch]


def test_one_small_batch_exactly():
    ((source, target_input, target_output),) = batches([[7, 8], [9, 5]], [[6, 4], [5]], 2)
    np.testing.assert_array_equal(source, [[7, 8], [9, 5]])
    np.testing.assert_array_equal(target_input, [[2, 6, 4], [2, 5, 0]])
    np.testing.assert_array_equal(target_output, [[6, 4, 3], [5, 3, 0]])
    assert source.dtype == target_input.dtype == target_output.dtype == np.int32


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_row_once_and_whole(shuffle):
    sources, targets = pairs()
    epoch = batches(sources, targets, shuffle=shuffle)
    assert sorted(itertools.chain(*rows_of(epoch))) == list(range(203))
    assert len(epoch) == num_batches(sources, targets, 16) <= 13 + MAX_BUCKETS
    for source, target_input, target_output in epoch:
        rows = source[:, 0] - 10
        for row, x, y, z in zip(rows, source, target_input, target_output, strict=True):
            assert x[x > 0].tolist() == list(sources[row])
            assert y[y > 0].tolist() == [START, *targets[row]]
            assert z[z > 0].tolist() == [*targets[row], END]


def test_few_shapes():
    sources, targets = pairs()
    dataset = bucketed_dataset(sources, targets, 16, shuffle=True, num_epochs=5)
    shapes = {(*inputs["source"].shape, inputs["target_input"].shape[1]) for inputs, _ in dataset}
    lengths = {shape[1:] for shape in shapes}
    assert len(lengths) == MAX_BUCKETS and len(shapes) <= 2 * MAX_BUCKETS
    assert max(lengths) == (max(map(len, sources)), max(map(len, targets)) + 1)


def test_padding_is_less_than_without_buckets():
    sources, targets = pairs(1000)
    cells = sum(batch[0].size for batch in batches(sources, targets))
    assert cells < 0.85 * len(sources) * max(map(len, sources))


def test_groups_of_equal_size():
    assert quantiles(np.arange(1, 101), 4).tolist() == [26, 51, 76, 100]
    assert quantiles([3, 3, 9, 1], 4).tolist() == [1, 3, 9]


def test_order_depends_on_seed_and_epoch_alone():
    sources, targets = pairs()
    number = num_batches(sources, targets, 16)
    four = rows_of(batches(sources, targets, shuffle=True, seed=5, num_epochs=4))
    resumed = rows_of(batches(sources, targets, shuffle=True, seed=5, first_epoch=2, num_epochs=2))
    assert resumed == four[2 * number :] and four[:number] != four[number : 2 * number]
    assert rows_of(batches(sources, targets, shuffle=True, seed=6)) != four[:number]
    skipped = bucketed_dataset(sources, targets, 16, shuffle=True, seed=5, num_epochs=None).skip(number + 3)
    assert rows_of([(inputs["source"].numpy(),) for inputs, _ in skipped.take(5)]) == four[number + 3 : number + 8]


def test_length_is_known():
    sources, targets = pairs(50)
    assert len(bucketed_dataset(sources, targets, 16, num_epochs=3)) == 3 * num_batches(sources, targets, 16)
    assert bucketed_dataset(sources, targets, 16, num_epochs=None).cardinality() < 0


def test_a_batch_is_of_any_length_for_a_model():
    inputs, target = bucketed_dataset(*pairs(), 16).element_spec
    assert {x.shape.rank for x in tf.nest.flatten((inputs, target))} == {2} and target.shape[1] is None


def test_padded_rows():
    np.testing.assert_array_equal(padded([[5], [6, 7, 8], []]), [[5, 0, 0], [6, 7, 8], [0, 0, 0]])
    assert padded([[], []]).shape == (2, 1) and padded([[1]]).dtype == np.int32


def test_the_cheapest_cuts_have_the_least_padding():
    """Of all ways to cut the lengths that occur."""
    generator = np.random.default_rng(0)
    for _ in range(5):
        places, counts = np.unique(np.minimum(generator.geometric(0.2, size=60), 12), return_counts=True)
        cost = lambda ends: sum(count * ends[np.searchsorted(ends, x)] for x, count in zip(places, counts, strict=True))  # noqa: E731, B023
        least = min(cost((*ends, places[-1])) for ends in itertools.combinations(places[:-1], 2))
        assert cost(places[cheapest_cuts(counts, places, 3)]) == least
