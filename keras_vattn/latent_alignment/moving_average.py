"""A moving average over training calls, used as the baseline of a score function. One float32 weight (2,) stores the
decayed sum of the values and of their weights, so the quotient has no bias towards 0."""

from keras import ops


def average_weight(layer):
    """Create the weight of the average, in `build` of the layer."""
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
    """Return the average, or 0 before the first training call."""
    return ops.divide_no_nan(average[0], average[1])


def update_average(average, values, mask, decay):
    """Update the average with the mean of the values (B, T) where the mask, boolean (B, T) or `None`, is true."""
    valid = ops.ones_like(values) if mask is None else ops.cast(mask, "float32")
    count = ops.sum(valid)
    mean = ops.divide_no_nan(ops.sum(ops.where(valid > 0, values, 0.0)), count)
    update = ops.stack([mean, ops.ones((), "float32")])
    # A batch of padding leaves the average unchanged.
    average.assign(ops.where(count > 0, decay * average + (1.0 - decay) * update, average))
