"""Build the optimizer and the learning rate schedule from `FitOptions`."""

import keras
from keras.optimizers import schedules

import keras_vattn
from applications.common.errors import InputError


def optimizer_of(options, num_batches, num_steps, rate=None):
    """Return the optimizer for `FitOptions`, for a run of `num_steps` steps.
    `num_batches`: steps per epoch. `rate` overrides the learning rate of the options."""
    rate = options.learning_rate if rate is None else rate
    warmup_steps = options.warmup_steps
    if warmup_steps is None:
        warmup_steps = 0 if options.warmup_epochs or options.schedule == "plateau" else num_steps // 10
    if num_steps <= warmup_steps:
        raise InputError(
            f"--warmup-steps: must be fewer than the {num_steps} steps of the run; lower it, or raise --epochs. "
            f"Received: {warmup_steps}"
        )
    if options.schedule == "cosine":
        warmup = {"warmup_target": rate, "warmup_steps": warmup_steps} if warmup_steps else {}
        rate = schedules.CosineDecay(0.0 if warmup else rate, num_steps - warmup_steps, **warmup)
    elif options.schedule == "linear":
        rate = linear_decay(rate, num_steps, warmup_steps)
    elif options.schedule == "exponential" or warmup_steps or options.warmup_epochs:
        factor = options.learning_rate_decay if options.schedule == "exponential" else 1.0
        decay = schedules.ExponentialDecay(rate, options.decay_every * num_batches, factor, staircase=True)
        steps_per_increment = num_batches if options.warmup_epochs else 1
        num_increments = warmup_steps or options.warmup_epochs
        rate = WarmUp(decay, options.decay_after * num_batches, num_increments, steps_per_increment)
    optimizer_class = {
        "adam": keras_vattn.fast.FusedAdam,
        "adamw": keras.optimizers.AdamW,
        "adagrad": keras.optimizers.Adagrad,
        "rmsprop": keras.optimizers.RMSprop,
        "sgd": keras.optimizers.SGD,
    }[options.optimizer]
    arguments = {} if options.weight_decay is None else {"weight_decay": options.weight_decay}
    if options.optimizer in ("adam", "adamw"):
        arguments["beta_2"] = options.beta_2
    optimizer = optimizer_class(
        rate,
        global_clipnorm=None if options.clip_value else options.clip_norm,
        clipvalue=options.clip_value,
        # Default names contain a process-wide number, but `Checkpoint.take_over` matches variables by name.
        name=options.optimizer,
        **arguments,
    )
    if options.optimizer == "adamw":
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return optimizer


def linear_decay(learning_rate, num_steps, warmup_steps):
    """Return a schedule: linear growth over `warmup_steps` steps, then a linear decay to 0."""
    decay = schedules.PolynomialDecay(learning_rate, num_steps - warmup_steps, end_learning_rate=0.0)
    return WarmUp(decay, warmup_steps, warmup_steps)


class WarmUp(schedules.LearningRateSchedule):
    """Multiplies a schedule by a factor that grows from 1 / `num_increments` to 1.
    The factor grows by 1 / `num_increments` every `steps_per_increment` steps. With 0 increments, the factor is 1.
    The schedule itself starts at `first_step`."""

    def __init__(self, schedule, first_step, num_increments, steps_per_increment=1):
        self.schedule = schedule
        self.first_step = first_step
        self.num_increments = num_increments
        self.steps_per_increment = steps_per_increment

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        rate = self.schedule(keras.ops.maximum(step - self.first_step, 0.0))
        if not self.num_increments:
            return rate
        increment = keras.ops.floor(step / self.steps_per_increment) + 1.0
        return rate * keras.ops.minimum(increment / self.num_increments, 1.0)
