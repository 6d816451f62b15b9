"""The optimizer and the learning rate that `FitOptions` describe."""

import keras

import keras_vattn
from applications.common.errors import InputError


def optimizer_of(options, num_batches, num_steps, rate=None):
    """Return the optimizer of `FitOptions`, for epochs of so many batches and so many steps in all; if another learning
    rate is given, with that."""
    rate = options.learning_rate if rate is None else rate
    warmup_steps = options.warmup_steps
    if warmup_steps is None:
        warmup_steps = 0 if options.warmup_epochs or options.schedule == "plateau" else num_steps // 10
    if num_steps <= warmup_steps:
        raise InputError(
            f"--warmup-steps: there are {num_steps} training steps in all; give fewer, or more --epochs. "
            f"Received: {warmup_steps}"
        )
    if options.schedule == "cosine":
        warmup = {"warmup_target": rate, "warmup_steps": warmup_steps} if warmup_steps else {}
        rate = keras.optimizers.schedules.CosineDecay(0.0 if warmup else rate, num_steps - warmup_steps, **warmup)
    elif options.schedule == "linear":
        rate = LinearDecay(rate, num_steps, warmup_steps)
    elif options.schedule == "exponential" or warmup_steps or options.warmup_epochs:
        factor = options.learning_rate_decay if options.schedule == "exponential" else 1.0
        rate = StepDecay(
            rate,
            factor,
            options.decay_after * num_batches,
            options.decay_every * num_batches,
            warmup_steps or options.warmup_epochs,
            num_batches if options.warmup_epochs else 1,
        )
    optimizer_class = {
        "adam": keras_vattn.fast.FusedAdam,
        "adamw": keras.optimizers.AdamW,
        "adagrad": keras.optimizers.Adagrad,
        "rmsprop": keras.optimizers.RMSprop,
        "sgd": keras.optimizers.SGD,
    }[options.optimizer]
    own = {} if options.weight_decay is None else {"weight_decay": options.weight_decay}
    if options.optimizer in ("adam", "adamw"):
        own["beta_2"] = options.beta_2
    optimizer = optimizer_class(
        rate,
        global_clipnorm=None if options.clip_value else options.clip_norm,
        clipvalue=options.clip_value,
        # Keras numbers its own names through the process; a checkpoint finds variables by name.
        name=options.optimizer,
        **own,
    )
    if options.optimizer == "adamw":
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return optimizer


@keras.saving.register_keras_serializable(package="applications")
class LinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that falls to 0 in equal parts, and grows from 0 before.

    Args:
        learning_rate: The largest one.
        num_steps: Steps in all.
        warmup: Steps in which it grows.
    """

    def __init__(self, learning_rate, num_steps, warmup=0):
        self.learning_rate = learning_rate
        self.num_steps = num_steps
        self.warmup = warmup

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        left = (self.num_steps - step) / (self.num_steps - self.warmup)
        grown = (step + 1.0) / self.warmup if self.warmup else 1.0
        return self.learning_rate * keras.ops.clip(keras.ops.minimum(left, grown), 0.0, 1.0)

    def get_config(self):
        return dict(vars(self))


@keras.saving.register_keras_serializable(package="applications")
class StepDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that is multiplied by a factor every so many steps, and grows from 0 before.

    Args:
        learning_rate: The first one.
        factor: Factor on it.
        after_steps: Steps before the first period.
        every_steps: Steps of a period.
        warmup: Number of parts in which it grows to the first one.
        warmup_every: Steps of a part.
    """

    def __init__(self, learning_rate, factor, after_steps, every_steps, warmup=0, warmup_every=1):
        self.learning_rate = learning_rate
        self.factor = factor
        self.after_steps = after_steps
        self.every_steps = every_steps
        self.warmup = warmup
        self.warmup_every = warmup_every

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        periods = keras.ops.maximum(keras.ops.floor((step - self.after_steps) / self.every_steps), 0.0)
        rate = self.learning_rate * keras.ops.power(self.factor, periods)
        if not self.warmup:
            return rate
        part = keras.ops.floor(step / self.warmup_every) + 1.0
        return rate * keras.ops.minimum(part / self.warmup, 1.0)

    def get_config(self):
        return dict(vars(self))
