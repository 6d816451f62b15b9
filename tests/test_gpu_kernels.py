"""That a GPU runs every training step whole: no operation without a kernel, no large tensor in host memory."""

import pytest
import tensorflow as tf
from gpu_kernels import operations
from training_steps import BATCH, ONE_OF_EACH_PATH, RUNS, traced


@pytest.mark.parametrize(("name", "policy"), [run for run in RUNS if run[0] in ONE_OF_EACH_PATH])
def test_a_training_step_stays_on_the_gpu(name, policy):
    # The numbers of the groups of query chunks are in host memory, where slices read them.
    leaving = [x for x in operations(traced(name, policy), BATCH) if x.leaves and x.type != "Range"]
    assert leaving == []


def test_what_leaves_the_gpu_is_seen_in_a_condition_of_a_loop():
    @tf.function
    def function(x):
        def body(i, x):
            half = tf.tensor_scatter_nd_add(tf.cast(x, tf.float16), [[0]], tf.ones((1,), tf.float16))
            whole = tf.cast(half, tf.int32)
            return i + 1, tf.cond(tf.reduce_any(x > 0), lambda: tf.cast(whole + 1, tf.float32), lambda: x)

        return tf.while_loop(lambda i, x: i < 3, body, (0, x))

    found = {(x.type, x.leaves) for x in operations(function.get_concrete_function(tf.ones((BATCH,))), BATCH)}
    assert ("TensorScatterAdd", "no kernel") in found
    assert ("AddV2", "host memory") in found
    assert ("AddV2", "") in found  # the count of the loop
