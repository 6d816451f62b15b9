"""Faults of training on several replicas and workers."""

from faults.fault import Fault

MANY_PROCESSES = "Several processes import TensorFlow, which takes half a minute."
TWO_REPLICAS = (("tests/test_distribute.py",), "two_replicas_train_as_one")
TWO_WORKERS = (("tests/test_distribute.py",), "two_workers_train_as_one", MANY_PROCESSES)
LOST = (("tests/applications/common/test_replicas.py",), "a_lost_worker", MANY_PROCESSES)

FAULTS = [
    Fault(
        "distribute: a row belongs to two replicas",
        "distribute.py",
        "stop = rows * replica // num_replicas, rows * (replica + 1) // num_replicas",
        "stop = rows * replica // num_replicas, rows * (replica + 1) // num_replicas + 1",
        *TWO_REPLICAS,
    ),
    Fault(
        "distribute: every worker reads the share of the first",
        "distribute.py",
        "first = num_local * context.input_pipeline_id",
        "first = 0",
        *TWO_WORKERS,
    ),
    Fault(
        "distribute: a loss counts as much as another, however many examples it has",
        "distribute.py",
        'here.share = share / tf.distribute.get_replica_context().all_reduce("mean", share)',
        "here.share = tf.ones_like(share)",
        *TWO_REPLICAS,
    ),
    Fault(
        "distribute: a share without rows is in the log",
        "distribute.py",
        "variable.assign(tf.where(rows == 0, value, variable))",
        "pass",
        *TWO_REPLICAS,
    ),
    Fault(
        "distribute: a gradient is clipped before the sum",
        "distribute.py",
        "        model.optimizer.apply = _summed_first(_plain(model.optimizer.apply), here)\n"
        '        keras_private.skip_gradient_sum(getattr(model.optimizer, "inner_optimizer", model.optimizer))\n',
        "        pass\n",
        *TWO_REPLICAS,
    ),
    Fault(
        "distribute: gradients are summed twice",
        "distribute.py",
        '        keras_private.skip_gradient_sum(getattr(model.optimizer, "inner_optimizer", model.optimizer))\n',
        "",
        *TWO_REPLICAS,
    ),
    Fault(
        "distribute: the logs of several workers are scalars",
        "distribute.py",
        "tf.convert_to_tensor(x)[None] if stacks else x",
        "x",
        *TWO_WORKERS,
    ),
    Fault(
        "distribute: a finite dataset is said to have no end",
        "distribute.py",
        "        keras_private.set_cardinality(dataset, num_batches)\n",
        "        pass\n",
        ("tests/test_distribute.py",),
        "shards",
    ),
    Fault(
        "distribute: the sums of an epoch count once for each replica in a resumed run",
        "applications/common/checkpoint.py",
        "variable.assign(_to_numpy(variable) + array)",
        "tf.distribute.get_strategy().extended.call_for_each_replica(lambda: variable.assign_add(array))",
        *LOST,
    ),
    Fault(
        "distribute: all of them write the folder",
        "applications/common/training.py",
        "self.is_first = self.strategy.extended.should_checkpoint",
        "self.is_first = True",
        *LOST,
    ),
    Fault(
        "distribute: the loss of one is a traceback",
        "applications/common/command_line.py",
        'expected is None and "Collective ops is aborted" in str(error)',
        "False",
        *LOST,
    ),
    Fault(
        "distribute: they need not have the same data",
        "applications/common/replicas.py",
        "if different:",
        "if False:",
        ("tests/applications/common/test_replicas.py",),
        "not_the_same",
        MANY_PROCESSES,
    ),
    Fault(
        "distribute: a model that is prepared again counts its shares twice",
        "distribute.py",
        'return getattr(method, "instead_of", method)',
        "return method",
        ("tests/test_distribute.py",),
        "own_step",
    ),
    Fault(
        "distribute: the row in the place of none has a gradient",
        "distribute.py",
        "return tf.math.multiply_no_nan(x, tf.cast(share, x.dtype))",
        "return x * tf.cast(share, x.dtype)",
        ("tests/test_distribute.py",),
        "own_step",
    ),
]
