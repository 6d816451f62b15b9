import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vattn.annealing import CyclicalAnnealing, LinearAnnealing, LogisticAnnealing, final_value

SCHEDULES = [
    LinearAnnealing(num_steps=100, start_step=10, initial_value=0.1, final_value=0.7),
    LogisticAnnealing(center=4500, slope=0.002, final_value=0.047426),
    CyclicalAnnealing(cycle_length=40, ramp_fraction=0.25, num_cycles=3, final_value=0.5),
]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__)


def test_linear_values():
    schedule = SCHEDULES[0]
    values = [float(schedule(step)) for step in (0, 10, 60, 110, 10**12)]
    np.testing.assert_allclose(values, [0.1, 0.1, 0.4, 0.7, 0.7], rtol=1e-6)


def test_linear_in_one_step():
    schedule = LinearAnnealing(num_steps=1, initial_value=0.1, final_value=0.7)
    np.testing.assert_allclose([schedule(step) for step in (0, 1, 2)], [0.1, 0.7, 0.7], rtol=1e-6)


def test_linear_counts_exactly_past_the_float32_integers():
    schedule = LinearAnnealing(num_steps=2, start_step=2**40)
    assert [float(schedule(2**40 + step)) for step in (0, 1, 2)] == [0.0, 0.5, 1.0]


def test_logistic_is_the_published_curve():
    schedule = LogisticAnnealing(center=4500, slope=0.002)
    for step in (0, 1000, 3000, 4500, 7000):
        published = (math.tanh((step - 4500) / 1000) + 1) / 2
        assert float(schedule(step)) == pytest.approx(published, rel=1e-6)


def test_logistic_stops_where_the_published_code_does():
    published = round((math.tanh((3000 - 4500) / 1000) + 1) / 2, 6)
    assert published == 0.047426
    schedule = SCHEDULES[1]
    assert float(schedule(2000)) == pytest.approx(1 / (1 + math.exp(5)), rel=1e-6)
    assert float(schedule(3001)) == pytest.approx(published)
    assert float(schedule(10**6)) == pytest.approx(published)


def test_logistic_is_finite_where_the_naive_sigmoid_is_not():
    schedule = LogisticAnnealing(center=1, slope=1.0)
    for step in (89, 444, 10**12):
        assert float(schedule(step)) == 1.0
    late = LogisticAnnealing(center=1e12, slope=100.0)
    assert float(late(0)) == 0.0


def test_cyclical_values():
    schedule = SCHEDULES[2]
    values = [float(schedule(step)) for step in (0, 5, 10, 39, 40, 45, 119, 120, 125, 10**12)]
    np.testing.assert_allclose(values, [0, 0.25, 0.5, 0.5, 0, 0.25, 0.5, 0.5, 0.5, 0.5], rtol=1e-6)


def test_cyclical_without_end():
    schedule = CyclicalAnnealing(cycle_length=10)
    assert float(schedule(10**12)) == 0.0
    assert float(schedule(10**12 + 9)) == 1.0


@every_schedule
def test_eager_graph_and_xla_agree(schedule):
    steps = tf.constant([0, 7, 50, 2999, 4600, 10**12], tf.int64)
    eager = schedule(steps)
    assert eager.dtype == tf.float32
    assert np.isfinite(eager).all()
    for jit_compile in (False, True):
        traced = tf.function(schedule, jit_compile=jit_compile)(steps)
        np.testing.assert_allclose(traced, eager, rtol=1e-6)
    variable = keras.Variable(4600, dtype="int64", trainable=False)
    assert float(schedule(variable)) == float(eager[4])


@every_schedule
def test_ends_at_its_final_value(schedule):
    assert float(schedule(10**12)) == pytest.approx(schedule.final_value, rel=1e-6)
    assert final_value(schedule) == schedule.final_value


def test_serves_as_a_learning_rate():
    optimizer = keras.optimizers.SGD(LinearAnnealing(num_steps=4))
    optimizer.build([keras.Variable(0.0)])
    optimizer.iterations.assign(2)
    assert float(optimizer.learning_rate) == 0.5


KERAS = keras.optimizers.schedules


@pytest.mark.parametrize(
    "schedule",
    [
        KERAS.PolynomialDecay(0.0, 100, end_learning_rate=0.7, power=2.0),
        KERAS.PiecewiseConstantDecay([10, 20], [0.0, 0.5, 0.25]),
        KERAS.CosineDecay(0.5, 100, alpha=0.4),
        KERAS.CosineDecay(0.1, 100, alpha=0.5, warmup_target=0.8, warmup_steps=10),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_a_schedule_of_keras_ends_at_its_final_value(schedule):
    assert final_value(schedule) == pytest.approx(float(schedule(10**6)), rel=1e-6)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert final_value(copy) == final_value(schedule)


@pytest.mark.parametrize(
    "schedule",
    [
        KERAS.ExponentialDecay(1.0, 10, 0.9),
        KERAS.InverseTimeDecay(1.0, 10, 0.5),
        KERAS.PolynomialDecay(1.0, 10, cycle=True),
        KERAS.CosineDecayRestarts(1.0, 10),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_a_schedule_without_an_end_is_rejected(schedule):
    """A KL schedule must have an end. Otherwise an arbitrary weight would decide which epoch has the best val_loss."""
    with pytest.raises(ValueError, match=f"has no end.*`final_value`.*Received: schedule=<.*{type(schedule).__name__}"):
        final_value(schedule)


def test_a_class_can_define_its_final_value():
    class Halving(KERAS.ExponentialDecay):
        final_value = 0.25

    assert final_value(Halving(1.0, 10, 0.5)) == 0.25
    assert final_value(None) == 1.0
    with pytest.raises(ValueError, match=r"Received: schedule=0\.5"):
        final_value(0.5)


@pytest.mark.parametrize(
    ("make", "received"),
    [
        (lambda: LinearAnnealing(0), "num_steps=0"),
        (lambda: LinearAnnealing(1.5), "num_steps=1.5"),
        (lambda: LinearAnnealing(10, start_step=-1), "start_step=-1"),
        (lambda: LinearAnnealing(10, final_value=-0.1), "final_value=-0.1"),
        (lambda: LinearAnnealing(10, initial_value=math.nan), "initial_value=nan"),
        (lambda: LogisticAnnealing(10, slope=0.0), "slope=0.0"),
        (lambda: LogisticAnnealing(10, 1.0, final_value=1.5), "final_value=1.5"),
        (lambda: LogisticAnnealing(math.inf, 1.0), "center=inf"),
        (lambda: CyclicalAnnealing(0), "cycle_length=0"),
        (lambda: CyclicalAnnealing(10, ramp_fraction=0), "ramp_fraction=0"),
        (lambda: CyclicalAnnealing(10, num_cycles=0), "num_cycles=0"),
    ],
)
def test_errors_name_what_was_received(make, received):
    with pytest.raises(ValueError, match="Received: " + received):
        make()
