import numpy as np
import pytest
import tensorflow as tf

from keras_vattn.support.loop import scan

INPUTS = np.random.default_rng(1).normal(size=(2, 4, 3)).astype("float32")


def step(x, state):
    total, count = state["total"] + x["x"], state["count"] + 1
    return {"total": total, "half": (total[:, :1] / 2,)}, {"total": total, "count": count}


def initial(batch):
    return {"total": tf.zeros((batch, 3)), "count": tf.constant(0)}


def check(outputs, state, inputs=INPUTS):
    totals = inputs.cumsum(axis=1)
    np.testing.assert_allclose(outputs["total"], totals, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["half"][0], totals[..., :1] / 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state["total"], totals[:, -1], rtol=1e-5, atol=1e-6)
    assert int(state["count"]) == inputs.shape[1]


def test_eager():
    check(*scan(step, initial(2), {"x": INPUTS}, 4))


@pytest.mark.parametrize(("shape", "jit_compile"), [((2, 4, 3), True), ((None, None, 3), False)])
def test_graph(shape, jit_compile):
    @tf.function(input_signature=[tf.TensorSpec(shape)], jit_compile=jit_compile)
    def run(x):
        return scan(step, initial(tf.shape(x)[0]), {"x": x}, tf.shape(x)[1])

    check(*run(INPUTS))
    outputs, _ = run.get_concrete_function().structured_outputs
    assert outputs["total"].shape.rank == 3
    assert outputs["total"].shape[-1] == 3


def test_no_inputs():
    outputs, state = scan(lambda x, state: (state, state * 2), tf.constant([1.0, 3.0]), {}, 3)
    np.testing.assert_array_equal(outputs, [[1, 2, 4], [3, 6, 12]])
    np.testing.assert_array_equal(state, [8, 24])


@pytest.mark.parametrize("eager", [True, False])
def test_no_step(eager):
    """The outputs have known shapes although no step runs."""
    run = lambda: scan(step, initial(2), {"x": INPUTS[:, :0]}, 0)  # noqa: E731
    outputs, state = run() if eager else tf.function(run)()
    assert outputs["total"].shape == (2, 0, 3)
    assert outputs["half"][0].shape == (2, 0, 1)
    np.testing.assert_array_equal(state["total"], np.zeros((2, 3)))
    assert int(state["count"]) == 0


@pytest.mark.parametrize("eager", [True, False])
def test_a_state_of_another_shape_is_rejected(eager):
    run = lambda: scan(lambda x, state: (state, state[:, :2]), tf.zeros((2, 3)), {"x": INPUTS}, 4)  # noqa: E731
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"\[2,2\]"):
        run() if eager else tf.function(run)()
