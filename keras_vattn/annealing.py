"""Annealing schedules, which compute the weight of a KL term from the training step.

Every schedule is a `keras.optimizers.schedules.LearningRateSchedule`, so the schedules of Keras work as well.
"""

import keras
from keras import ops

from keras_vattn.support.validation import integer, number

__all__ = ["CyclicalAnnealing", "LinearAnnealing", "LogisticAnnealing", "final_value"]


@keras.saving.register_keras_serializable(package="keras_vattn")
class LinearAnnealing(keras.optimizers.schedules.LearningRateSchedule):
    """KL weight that changes linearly from `initial_value` to `final_value`, and then stays constant.

    Formula:
        "weight" = "initial_value" + ("final_value" - "initial_value") * "fraction"
        "fraction" = min(1, max(0, ("step" - "start_step") / "num_steps"))

    Args:
        num_steps: Positive integer. Number of steps from `initial_value` to `final_value`.
        start_step: Integer, at least 0. Last step at which the weight is `initial_value`. Defaults to 0.
        initial_value: Number, at least 0. Defaults to 0.0.
        final_value: Number, at least 0. Inference uses this weight too. Defaults to 1.0.

    Call arguments:
        step: Integer or integer tensor of any shape.

    Returns:
        The dimensionless weight, a float32 tensor with the shape of `step`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> schedule = keras_vattn.LinearAnnealing(num_steps=1000)
    >>> float(schedule(250))
    0.25

    Reference:
        Bowman et al. 2016, "Generating Sentences from a Continuous Space", section 3.1.
    """

    def __init__(self, num_steps, start_step=0, initial_value=0.0, final_value=1.0):
        super().__init__()
        self.num_steps = integer("num_steps", num_steps, minimum=1)
        self.start_step = integer("start_step", start_step, minimum=0)
        self.initial_value = number("initial_value", initial_value, minimum=0)
        self.final_value = number("final_value", final_value, minimum=0)

    def __call__(self, step):
        elapsed = ops.clip(_step_tensor(step) - self.start_step, 0, self.num_steps)
        fraction = ops.cast(elapsed, "float32") / float(self.num_steps)
        return (1.0 - fraction) * self.initial_value + fraction * self.final_value

    def get_config(self):
        return {
            "num_steps": self.num_steps,
            "start_step": self.start_step,
            "initial_value": self.initial_value,
            "final_value": self.final_value,
        }


@keras.saving.register_keras_serializable(package="keras_vattn")
class LogisticAnnealing(keras.optimizers.schedules.LearningRateSchedule):
    """KL weight that follows a logistic curve and stops rising at `final_value`.

    Formula:
        "weight" = min("final_value", "sigmoid"("slope" * ("step" - "center")))

    Args:
        center: Number. Step at which the logistic curve reaches 0.5.
        slope: Positive number. The curve rises from 0.27 to 0.73 within `2 / slope` steps.
        final_value: Number in (0, 1]. Largest weight, also used at inference. Defaults to 1.0.

    Call arguments:
        step: Integer or integer tensor of any shape.

    Returns:
        The dimensionless weight, a float32 tensor with the shape of `step`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> schedule = keras_vattn.LogisticAnnealing(center=4500, slope=0.002)
    >>> float(schedule(4500))
    0.5

    Reference:
        Bahuleyan et al. 2018, "Variational Attention for Sequence-to-Sequence Models", section 4. Their code computes
        the weight as (tanh((step - 4500) / 1000) + 1) / 2 = sigmoid((step - 4500) / 500), and stops updating it after
        step 3000. `LogisticAnnealing(center=4500, slope=0.002, final_value=0.047426)` computes the same weights.
    """

    def __init__(self, center, slope, final_value=1.0):
        super().__init__()
        self.center = number("center", center)
        self.slope = number("slope", slope, above=0)
        self.final_value = number("final_value", final_value, above=0, maximum=1)

    def __call__(self, step):
        distance = ops.cast(_step_tensor(step), "float64") - self.center
        # exp(x) / (1 + exp(x)) would be NaN for large x.
        return ops.minimum(ops.cast(ops.sigmoid(self.slope * distance), "float32"), self.final_value)

    def get_config(self):
        return {"center": self.center, "slope": self.slope, "final_value": self.final_value}


@keras.saving.register_keras_serializable(package="keras_vattn")
class CyclicalAnnealing(keras.optimizers.schedules.LearningRateSchedule):
    """KL weight that rises from 0 in each cycle and then stays constant until the cycle ends.

    After `num_cycles` cycles the weight is `final_value`.

    Formula:
        "weight" = "final_value" * min(1, "position" / "ramp_fraction")
        "position" = ("step" mod "cycle_length") / "cycle_length"

    Args:
        cycle_length: Positive integer. Number of steps in one cycle.
        ramp_fraction: Number in (0, 1]. Fraction of a cycle in which the weight rises. Defaults to 0.5.
        num_cycles: Positive integer. Number of cycles before the weight stays at `final_value`. With `None`, the
            cycles never stop. Defaults to `None`.
        final_value: Number, at least 0. Weight at the end of every ramp, and at inference. Defaults to 1.0.

    Call arguments:
        step: Integer or integer tensor of any shape.

    Returns:
        The dimensionless weight, a float32 tensor with the shape of `step`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> schedule = keras_vattn.CyclicalAnnealing(cycle_length=100, num_cycles=4)
    >>> [float(schedule(step)) for step in (0, 25, 50, 99, 100, 400)]
    [0.0, 0.5, 1.0, 1.0, 0.0, 1.0]

    Reference:
        Fu et al. 2019, "Cyclical Annealing Schedule: A Simple Approach to Mitigating KL Vanishing", equations 6 and 7,
        with steps counted from 0. The paper divides the training into 4 cycles and uses a ramp_fraction of 0.5.
    """

    def __init__(self, cycle_length, ramp_fraction=0.5, num_cycles=None, final_value=1.0):
        super().__init__()
        self.cycle_length = integer("cycle_length", cycle_length, minimum=1)
        self.ramp_fraction = number("ramp_fraction", ramp_fraction, above=0, maximum=1)
        self.num_cycles = integer("num_cycles", num_cycles, minimum=1, optional=True)
        self.final_value = number("final_value", final_value, minimum=0)

    def __call__(self, step):
        step = _step_tensor(step)
        position = ops.cast(ops.mod(step, self.cycle_length), "float32") / float(self.cycle_length)
        ramp = ops.minimum(position / self.ramp_fraction, 1.0)
        if self.num_cycles is not None:
            ramp = ops.where(step >= self.num_cycles * self.cycle_length, ops.ones_like(ramp), ramp)
        return self.final_value * ramp

    def get_config(self):
        return {
            "cycle_length": self.cycle_length,
            "ramp_fraction": self.ramp_fraction,
            "num_cycles": self.num_cycles,
            "final_value": self.final_value,
        }


def final_value(schedule):
    """Return the KL weight that a layer with this schedule uses outside training.

    Args:
        schedule: A `keras.optimizers.schedules.LearningRateSchedule` or `None`.

    Returns:
        A float: 1.0 for `None`, otherwise the attribute `final_value` of the schedule. For Keras's `PolynomialDecay`,
        `CosineDecay` and `PiecewiseConstantDecay`, which lack this attribute, their last value.

    Raises:
        ValueError: If `schedule` is neither a schedule nor `None`, or has no final value, like `ExponentialDecay`.

    Example:

    >>> schedule = keras_vattn.LogisticAnnealing(4500, slope=0.002, final_value=0.05)
    >>> keras_vattn.annealing.final_value(schedule)
    0.05
    >>> schedule = keras.optimizers.schedules.PolynomialDecay(0.0, 1000, 0.5)
    >>> keras_vattn.annealing.final_value(schedule)
    0.5
    """
    schedules = keras.optimizers.schedules
    if schedule is None:
        return 1.0
    if not isinstance(schedule, schedules.LearningRateSchedule):
        raise ValueError(
            "`schedule` must be a keras.optimizers.schedules.LearningRateSchedule or None; for a constant weight use "
            f"`kl_weight`. Received: schedule={schedule!r}"
        )
    if hasattr(schedule, "final_value"):
        return float(schedule.final_value)
    if isinstance(schedule, schedules.PiecewiseConstantDecay):
        return float(schedule.values[-1])
    if isinstance(schedule, schedules.PolynomialDecay) and not schedule.cycle:
        return float(schedule.end_learning_rate)
    if isinstance(schedule, schedules.CosineDecay):
        start = schedule.initial_learning_rate if schedule.warmup_target is None else schedule.warmup_target
        return float(start * schedule.alpha)
    raise ValueError(
        "Outside training, a layer multiplies the KL by the final value of the schedule, but this schedule has no end: "
        "use keras_vattn.LinearAnnealing, for example, or define `final_value` in the class of the schedule. "
        f"Received: schedule={schedule!r}"
    )


def _step_tensor(step):
    # TensorFlow would convert a Python int to int32, which cannot represent 2**31.
    return ops.cast(ops.convert_to_tensor(step, "int64" if isinstance(step, int) else None), "int64")
