"""Prepare a model and a dataset for Keras's `fit` on several GPUs or machines with `tf.distribute`."""

import contextvars
import functools

import tensorflow as tf
from keras import tree

from keras_vattn.support import keras_private

__all__ = ["prepare", "shard"]

# Factor on the gradient of a replica: the replica's number of rows, divided by the mean over replicas.
_REPLICA_WEIGHT = contextvars.ContextVar("replica_weight", default=1.0)


def prepare(model):
    """Prepare a compiled model for `fit` and `evaluate` on several replicas, and return the model.

    Afterwards, a training step on several replicas has the same result as a step on one replica with the whole batch,
    apart from rounding and noise. The loss must be a mean over examples, which is the default of all losses and KLs in
    keras_vattn. `prepare` changes three things:

    - The gradient of a replica is weighted by the replica's number of examples, which may be 0. Keras weights all
      replicas equally.
    - Gradients are summed over replicas and then clipped. Keras clips the gradient of each replica before the sum.
    - `fit` works with `MultiWorkerMirroredStrategy`. Without `prepare`, `fit` raises an error.

    Layers such as `keras.layers.BatchNormalization` still read only the rows of one replica. Metrics in the log of an
    epoch cover all examples. Values logged for a single batch are means over replicas. So are values that your own
    `train_step` returns in addition to metrics.

    If you compile the model again, call `prepare` again. `prepare` affects neither saved files nor `predict`. With only
    one replica, `prepare` changes nothing.

    Args:
        model: A compiled `keras.Model` that was created in the scope of the strategy. A custom `train_step` must call
            `compute_loss`, and must apply gradients with `model.optimizer`.

    Raises:
        ValueError: If the model is not compiled. If there are several replicas, and the model uses XLA (`jit_compile`)
            or several steps at a time (`steps_per_execution`).

    Example:

    >>> import numpy as np
    >>> import tensorflow as tf
    >>> strategy = tf.distribute.get_strategy()  # or MultiWorkerMirroredStrategy()
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse", jit_compile=False)
    >>> rows = np.ones((5, 3)), np.ones((5, 1))
    >>> batches = tf.data.Dataset.from_tensor_slices(rows).batch(4)
    >>> model = keras_vattn.distribute.prepare(model)
    >>> batches = keras_vattn.distribute.shard(batches, strategy)
    >>> history = model.fit(batches, verbose=0, shuffle=False)
    """
    if not model.compiled:
        raise ValueError("Call `prepare` after `compile`. Received: a model that is not compiled")
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return model
    if model.jit_compile or model.steps_per_execution != 1:
        raise ValueError(
            "With several replicas, use neither XLA nor several steps per execution: compile the model with "
            f"jit_compile=False and steps_per_execution=1. Received: jit_compile={model.jit_compile}, "
            f"steps_per_execution={model.steps_per_execution}"
        )
    model.train_step = _step_on_shard(model, _original_method(model.train_step), strategy, trains=True)
    model.test_step = _step_on_shard(model, _original_method(model.test_step), strategy, trains=False)
    if model.optimizer is not None:
        model.optimizer.apply = _sum_gradients_first(_original_method(model.optimizer.apply))
        keras_private.skip_gradient_sum(getattr(model.optimizer, "inner_optimizer", model.optimizer))
    build = _original_method(keras_private.symbolic_build(model))

    def build_from_first_replica(iterator=None, data_batch=None):
        if iterator is not None:
            *_, batches = next(iter(iterator))
            data_batch = tree.map_structure(lambda x: strategy.experimental_local_results(x)[0], next(batches))
        build(data_batch=data_batch)

    keras_private.set_symbolic_build(model, _replacement_for(build, build_from_first_replica))
    return model


def shard(batches, strategy):
    """Split each batch of a `tf.data.Dataset` among the replicas, and return a dataset for `fit`.

    Every worker reads the same batches and selects the rows for its own replicas. Without `shard`, Keras regroups the
    rows if the batches differ in size. An epoch can then include rows of the next epoch.

    Args:
        batches: A `tf.data.Dataset` of dense tensors (B, ...), or of structures of such tensors. Every worker must pass
            the same dataset. B may differ between batches. If the dataset is infinite or its length is unknown, `fit`
            needs `steps_per_epoch`.
        strategy: A `tf.distribute.Strategy`. If it has only one replica, `batches` is returned unchanged.

    Raises:
        ValueError: If `batches` is not a dataset of dense tensors (B, ...).

    Example:

    >>> import tensorflow as tf
    >>> batches = tf.data.Dataset.range(7).batch(4)
    >>> keras_vattn.distribute.shard(batches, tf.distribute.get_strategy()) is batches
    True
    """
    specs = tf.nest.flatten(batches.element_spec) if isinstance(batches, tf.data.Dataset) else []
    if not specs or not all(isinstance(x, tf.TensorSpec) and x.shape.rank != 0 for x in specs):
        received = getattr(batches, "element_spec", type(batches).__name__)
        raise ValueError(f"`batches` must be a tf.data.Dataset of dense tensors (B, ...). Received: {received}")
    if strategy.num_replicas_in_sync == 1:
        return batches
    num_batches = int(batches.cardinality())
    is_finite = num_batches >= 0
    # With a finite dataset, the workers would communicate at each step, to check whether a worker has reached the end.
    batches = batches.repeat() if is_finite else batches

    def worker_dataset(context):
        num_replicas = context.num_replicas_in_sync
        num_local = num_replicas // context.num_input_pipelines
        first = num_local * context.input_pipeline_id

        def split_batch(*batch):
            batch = batch if isinstance(batches.element_spec, tuple) else batch[0]
            lengths = [tf.shape(x, tf.int64)[0] for x in tf.nest.flatten(batch)]
            rows = lengths[0]
            tf.debugging.assert_equal(lengths, rows, "all tensors of a batch must have the same number of rows")

            def replica_rows(replica):
                start, stop = rows * replica // num_replicas, rows * (replica + 1) // num_replicas
                return tf.nest.map_structure(lambda x: x[start:stop], batch)

            return tf.data.Dataset.range(first, first + num_local).map(replica_rows)

        dataset = batches.flat_map(split_batch)
        if num_batches != tf.data.UNKNOWN_CARDINALITY:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return dataset.prefetch(2 * num_local)

    dataset = strategy.distribute_datasets_from_function(worker_dataset)
    if is_finite:
        # `fit` reads the number of steps from the cardinality.
        keras_private.set_cardinality(dataset, num_batches)
    return dataset


def _replacement_for(original, replacement):
    replacement = functools.wraps(original)(replacement)
    replacement.original_method = original
    return replacement


def _original_method(method):
    return getattr(method, "original_method", method)


def _step_on_shard(model, step, strategy, trains):
    # With several workers, Keras averages logs over the first axis, so scalars need one axis.
    stacks = strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)

    def step_on_shard(data):
        rows = tf.shape(next(x for x in tree.flatten(data) if x is not None))[0]
        if trains:
            num_rows = tf.cast(rows, "float32")
            _REPLICA_WEIGHT.set(num_rows / tf.distribute.get_replica_context().all_reduce("mean", num_rows))
        # A replica without rows gets a row of ones with weight 0. A mean over zero rows would be NaN.
        missing = [[0, tf.cast(rows == 0, tf.int32)]]
        data = tree.map_structure(
            lambda x: None if x is None else tf.pad(x, missing + [[0, 0]] * (len(x.shape) - 1), **_ones(x)), data
        )
        sums = _sums_of_metrics(model)
        before = [tf.convert_to_tensor(x) for x in sums]
        logs = step(data)
        for variable, value in zip(sums, before, strict=True):
            variable.assign(tf.where(rows == 0, value, variable))
        logs = logs | {name: x for name, x in model.get_metrics_result().items() if name in logs}
        return tree.map_structure(lambda x: tf.convert_to_tensor(x)[None] if stacks else x, logs)

    return _replacement_for(step, step_on_shard)


def _ones(x):
    # Zeros could be padding, and cuDNN rejects a row that contains only padding.
    return {} if x.dtype == tf.string else {"constant_values": tf.ones((), x.dtype)}


def _sums_of_metrics(model):
    """Return the variables of a model's metrics and logged KLs."""
    names = "kl_tracker", "kl_above_floor_tracker"
    trackers = [getattr(layer, name, None) for layer in keras_private.flatten_layers(model) for name in names]
    variables = [
        *model.metrics_variables,
        *(x for tracker in trackers if tracker is not None for x in tracker.variables),
    ]
    return list({id(x): x.value for x in variables}.values())


def _sum_gradients_first(apply):
    """Return a function that weights gradients by the replica's number of rows, sums them, and calls `apply`."""

    def sum_and_apply(grads, trainable_variables=None):
        def weighted(x):
            if isinstance(x, tf.IndexedSlices):
                return tf.IndexedSlices(weighted(x.values), x.indices, x.dense_shape)
            # An ordinary product of 0 and NaN would be NaN.
            return tf.math.multiply_no_nan(x, tf.cast(_REPLICA_WEIGHT.get(), x.dtype))

        gradients = [weighted(x) for x in grads if x is not None]
        summed = iter(tf.distribute.get_replica_context().all_reduce("sum", gradients))
        return apply([None if x is None else next(summed) for x in grads], trainable_variables)

    return _replacement_for(apply, sum_and_apply)
