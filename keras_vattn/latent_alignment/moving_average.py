"""Compute the moving average of one value per training call, the baseline of a score-function gradient.

A variable (2,) stores the sum of the weighted values and the sum of the weights. The ratio has no bias towards 0.
"""

from keras import ops


def average_weight(layer):
    """Create the weight that stores the moving average, in the `build` method of a layer."""
    return layer.add_weight(
        name="average",
        shape=(2,),
        initializer="zeros",
        trainable=False,
        autocast=False,
        dtype="float32",
        aggregation="mean",
    )


def average_of(average):
    """Return the moving average, or 0 before the first training call."""
    return ops.divide_no_nan(average[0], average[1])


def update_average(average, values, mask, decay):
    """Update the average with the mean of the unmasked values (B, T). A fully masked batch has no effect."""
    valid = ops.ones_like(values) if mask is None else ops.cast(mask, "float32")
    count = ops.sum(valid)
    mean = ops.divide_no_nan(ops.sum(ops.where(valid > 0, values, 0.0)), count)
    update = ops.stack([mean, ops.ones((), "float32")])
    average.assign(ops.where(count > 0, decay * average + (1.0 - decay) * update, average))
