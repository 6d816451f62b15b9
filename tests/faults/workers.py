"""Faults of training on several replicas and workers."""

from faults.fault import Fault

TWO_REPLICAS = (("tests/test_workers.py",), "two_replicas_train_as_one")
TWO_WORKERS = (("tests/test_workers.py",), "two_workers_train_as_one")
LOST = (("tests/applications/common/test_workers.py",), "a_lost_worker")

FAULTS = [
    Fault(
        "workers: a row belongs to two replicas",
        "workers.py",
        "stop = rows * replica // num_replicas, rows * (replica + 1) // num_replicas",
        "stop = rows * replica // num_replicas, rows * (replica + 1) // num_replicas + 1",
        *TWO_REPLICAS,
    ),
    Fault(
        "workers: every worker reads the share of the first",
        "workers.py",
        "first = num_local * context.input_pipeline_id",
        "first = 0",
        *TWO_WORKERS,
    ),
    Fault(
        "workers: a loss counts as much as another, however many examples it has",
        "workers.py",
        'here.share = share / tf.distribute.get_replica_context().all_reduce("mean", share)',
        "here.share = tf.ones_like(share)",
        *TWO_REPLICAS,
    ),
    Fault(
        "workers: a share without rows is in the log",
        "workers.py",
        "variable.assign(tf.where(rows == 0, value, variable))",
        "pass",
        *TWO_REPLICAS,
    ),
    Fault(
        "workers: a gradient is clipped before the sum",
        "workers.py",
        "    optimizer.apply_gradients = lambda grads_and_vars: apply(reduce(grads_and_vars))\n"
        "    inner._all_reduce_sum_gradients = list\n",
        "",
        *TWO_REPLICAS,
    ),
    Fault(
        "workers: gradients are summed twice",
        "workers.py",
        "    inner._all_reduce_sum_gradients = list\n",
        "",
        *TWO_REPLICAS,
    ),
    Fault(
        "workers: the logs of several workers are scalars",
        "workers.py",
        "tf.convert_to_tensor(x)[None] if several_workers else x",
        "x",
        *TWO_WORKERS,
    ),
    Fault(
        "workers: a finite dataset is said to have no end",
        "workers.py",
        "        dataset._cardinality = num_batches\n",
        "        pass\n",
        ("tests/test_workers.py",),
        "shares",
    ),
    Fault(
        "workers: the sums of an epoch count once for each replica in a resumed run",
        "applications/common/checkpoint.py",
        "variable.assign(_to_numpy(variable) + array)",
        "tf.distribute.get_strategy().extended.call_for_each_replica(lambda: variable.assign_add(array))",
        *LOST,
    ),
    Fault(
        "workers: all of them write the folder",
        "applications/common/training.py",
        "self.is_first = is_first(self.strategy)",
        "self.is_first = True",
        *LOST,
    ),
    Fault(
        "workers: the loss of one is a traceback",
        "applications/common/command_line.py",
        'expected is None and "Collective ops is aborted" in str(error)',
        "False",
        *LOST,
    ),
    Fault(
        "workers: they need not have the same data",
        "applications/common/workers.py",
        "if len(set(strategy.gather(digest, axis=0).numpy().tolist())) > 1:",
        "if False:",
        ("tests/applications/common/test_workers.py",),
        "other_data",
    ),
]
