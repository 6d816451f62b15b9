"""Training on several GPUs or machines by `tf.distribute`: what Keras's `fit` still lacks for it."""

import functools
import threading

import tensorflow as tf
from keras import tree

__all__ = ["prepare", "shares"]


def prepare(model):
    """Make `fit` and `evaluate` of a compiled model right on several replicas, and return the model.

    A step of several replicas becomes the step of one that has the whole batch, up to rounding and the noise, for a
    loss that is a mean over examples, as all losses here are by default, KLs included: each replica counts by its
    number of examples, which may be 0, and the gradient is clipped after the sum over replicas. Keras counts replicas
    equally, and clips the gradient of each. Under `MultiWorkerMirroredStrategy` it fails: it builds the model with
    values of all replicas, and takes means of scalars over an axis.

    Call it after `compile`, which undoes it. The model is saved as it would be; with one replica nothing changes.
    `predict` stays as it is.

    Args:
        model: A compiled `keras.Model` that was made in the scope of the strategy.

    Raises:
        ValueError: If the model is not compiled, or would be compiled by XLA, which several replicas cannot be.

    Example:

    >>> import numpy as np
    >>> import tensorflow as tf
    >>> strategy = tf.distribute.get_strategy()  # instead: MirroredStrategy() or MultiWorkerMirroredStrategy()
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse", jit_compile=False)
    >>> batches = tf.data.Dataset.from_tensor_slices((np.ones((5, 3)), np.ones((5, 1)))).batch(4)
    >>> model = keras_vattn.workers.prepare(model)
    >>> history = model.fit(keras_vattn.workers.shares(batches, strategy), verbose=0, shuffle=False)
    """
    if not model.compiled:
        raise ValueError("Call `prepare` after `compile`. Received: a model that is not compiled")
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return model
    if model.jit_compile:
        raise ValueError(
            "TensorFlow compiles no step of several replicas by XLA: compile the model with jit_compile=False. "
            f"Received: model.jit_compile={model.jit_compile}"
        )
    # The replicas of a process are threads.
    here = threading.local()
    model.train_step = _of_share(model, model.train_step, here, strategy)
    model.test_step = _of_share(model, model.test_step, None, strategy)
    _reduce_before_clipping(model.optimizer, here)
    build = model._maybe_symbolic_build

    @functools.wraps(build)
    def of_one_replica(iterator=None, data_batch=None):
        if iterator is not None:
            *_, batches = next(iter(iterator))
            data_batch = tree.map_structure(lambda x: strategy.experimental_local_results(x)[0], next(batches))
        build(data_batch=data_batch)

    model._maybe_symbolic_build = of_one_replica
    return model


def shares(batches, strategy):
    """Return a dataset for `fit` in which every replica has its rows of each batch of a `tf.data.Dataset`.

    Every worker makes the same batches, and keeps the rows of its replicas. Without this Keras deals out rows across
    the batches, so that those of uneven sizes become others, and epochs run into each other.

    Args:
        batches: Dataset of structures of tensors (B, ...), the same on every worker; B may change. Where its length is
            not known, `fit` needs `steps_per_epoch`, as for one without an end.
        strategy: `tf.distribute.Strategy`. With one replica the batches are returned as they are.

    Example:

    >>> import tensorflow as tf
    >>> batches = tf.data.Dataset.range(7).batch(4)
    >>> keras_vattn.workers.shares(batches, tf.distribute.get_strategy()) is batches
    True
    """
    if strategy.num_replicas_in_sync == 1:
        return batches
    num_batches = int(batches.cardinality())
    is_finite = num_batches >= 0
    # Nobody reads beyond the last batch, and TensorFlow need not ask all workers before every step whether it has come.
    batches = batches.repeat() if is_finite else batches

    def of_worker(context):
        num_replicas = context.num_replicas_in_sync
        num_local = num_replicas // context.num_input_pipelines
        first = num_local * context.input_pipeline_id

        def of_replicas(*batch):
            batch = batch if isinstance(batches.element_spec, tuple) else batch[0]

            def of_replica(replica):
                rows = tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
                start, stop = rows * replica // num_replicas, rows * (replica + 1) // num_replicas
                return tf.nest.map_structure(lambda x: x[start:stop], batch)

            return tf.data.Dataset.range(first, first + num_local).map(of_replica)

        dataset = batches.flat_map(of_replicas)
        if num_batches != tf.data.UNKNOWN_CARDINALITY:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return dataset.prefetch(2 * num_local)

    dataset = strategy.distribute_datasets_from_function(of_worker)
    if is_finite:
        # The number of steps, which Keras asks for.
        dataset._cardinality = num_batches
    return dataset


def _of_share(model, step, here, strategy):
    """Return a step on a share of a batch, which may have no rows."""
    several_workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)

    @functools.wraps(step)
    def of_share(data):
        rows = tf.shape(next(x for x in tree.flatten(data) if x is not None))[0]
        if here is not None:
            share = tf.cast(rows, "float32")
            here.share = share / tf.distribute.get_replica_context().all_reduce("mean", share)
        # A share without rows is one of ones, which counts nowhere: the mean over none would be NaN.
        missing = [[0, tf.cast(rows == 0, tf.int32)]]
        data = tree.map_structure(
            lambda x: None if x is None else tf.pad(x, missing + [[0, 0]] * (len(x.shape) - 1), **_ones(x)), data
        )
        totals = [x.value for x in model.metrics_variables]
        before = [tf.convert_to_tensor(x) for x in totals]
        logs = step(data)
        for variable, value in zip(totals, before, strict=True):
            variable.assign(tf.where(rows == 0, value, variable))
        # Of several workers Keras takes a mean over the first axis.
        return tree.map_structure(lambda x: tf.convert_to_tensor(x)[None] if several_workers else x, logs)

    return of_share


def _ones(x):
    # No text is a number, and a row of zeros might be nothing but padding, which cuDNN refuses.
    return {} if x.dtype == tf.string else {"constant_values": tf.ones((), x.dtype)}


def _reduce_before_clipping(optimizer, here):
    """Have an optimizer sum the gradients of the replicas, each by its share, before it does anything else."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    scale, apply, reduce = optimizer.scale_loss, optimizer.apply_gradients, inner._all_reduce_sum_gradients
    optimizer.scale_loss = lambda loss: scale(loss) * tf.cast(here.share, loss.dtype)
    optimizer.apply_gradients = lambda grads_and_vars: apply(reduce(grads_and_vars))
    inner._all_reduce_sum_gradients = list
