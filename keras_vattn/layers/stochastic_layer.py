"""The base class of stochastic layers. It manages the seed, the KL weight, and the KL that `fit` logs.

A KL is an ordinary Keras loss. With each loss, the layer stores the unweighted KL and the batch size. When Keras
collects the losses with `_get_own_losses`, the layer adds these KLs to the metric that `fit` logs.

Before you change this file, note:
- Do not update the metric in `call`: `predict` and exported models would then compute the KL.
- Replicas are threads that share one list of losses, and each replica must read only its own losses.
- The list may contain losses from an earlier trace. They belong to another graph and must not be added to the metric.
- `to_bayesian` makes layers stochastic in place with `become_stochastic` and never calls `__init__`.
- Tests: test_divergence_in_the_log.py and test_training_calls.py in tests/layers, and tests/battery.
"""

import numbers
import threading

import keras
import tensorflow as tf
from keras import ops

from keras_vattn import random
from keras_vattn.annealing import final_value
from keras_vattn.draws.request import DRAWS, Seeds, training_requested
from keras_vattn.layers.added_divergences import AddedDivergence, AddedDivergences
from keras_vattn.layers.call_count import CallCount
from keras_vattn.support import keras_private
from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.gradients import is_recorded
from keras_vattn.support.quantization import QuantizedSublayers
from keras_vattn.support.validation import integer, nonnegative_number, one_of

REDUCTIONS = ("sum", "query_mean", "mean")


class StochasticLayer(QuantizedSublayers, FeatureInputs, keras.layers.Layer):
    """Base class of layers with noise or a KL. It manages the seed, the weight and annealing of the KL, and the log.

    Your subclass calls these methods:

    - `track_divergence`, once in `__init__`, if the layer has a KL.
    - `add_divergence`, once in each call, if the layer has a KL.
    - `noise_seed`, for a seed if the call draws noise, and `None` otherwise. Calls draw in training and under
      `keras_vattn.posterior_draws`.
    - `stochastic_config`, for the arguments of this class in `get_config`.

    In the formula, q is the posterior and p is the prior of a query. b is one of B examples, and t is a valid query of
    this example. n is the number of entries (keys, heads, dimensions) over which the KL of a query is summed.

    Formula:
        "loss" = "kl_weight" * "kl_annealing"("training calls") * 1/N sum_(b,t) "KL"(q_(b,t) || p_(b,t))
        N = B quad "(sum)", quad N = sum_(b,t) 1 quad "(query_mean)", quad N = sum_(b,t) n_(b,t) quad "(mean)"

    Args:
        kl_weight: Constant factor that multiplies the KL in the loss, at least 0 (gamma_a of Bahuleyan et al. 2018, eq.
            8). Defaults to 1.0.
        kl_annealing: `None`, or a `keras.optimizers.schedules.LearningRateSchedule` that computes a second factor of
            the KL (lambda_KL of Bahuleyan et al. 2018, eq. 8) from the number of training calls of the layer. With
            `training=False`, the factor is `keras_vattn.annealing.final_value(kl_annealing)`. Defaults to `None`.
        kl_reduction: Divisor of the KL, which is summed over all valid queries and their entries. `"sum"` divides by
            the batch size, for nats per example; use it with a summed reconstruction loss. `"query_mean"` divides by
            the number of valid queries; use it with a mean over tokens. `"mean"` divides by the number of valid entries
            of all queries. Defaults to `"sum"`.
        seed: Integer or `None`. Seed of the draws and the dropout of the layer. Defaults to `None`.
        draws_noise: Whether the layer draws noise. With `False`, the layer creates no seed generator. Defaults to
            `True`.

    Example:

    >>> @keras.saving.register_keras_serializable(package="mine")
    ... class Channel(keras_vattn.StochasticLayer):
    ...     def __init__(self, sigma=0.5, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.sigma = sigma
    ...         self.track_divergence()
    ...     def call(self, x, training=None):
    ...         # The KL from q = N(x, sigma^2) to p = N(0, 1).
    ...         divergence = (self.sigma**2 + x**2 - 1) / 2 - keras.ops.log(self.sigma)
    ...         divergence = keras.ops.sum(divergence, axis=-1)
    ...         self.add_divergence(divergence, entries=x.shape[-1], training=training)
    ...         seed = self.noise_seed(training)
    ...         if seed is None:
    ...             return x
    ...         sigma = self.sigma * self.draw_temperature(training, 1.0)
    ...         return x + sigma * keras_vattn.random.normal(keras.ops.shape(x), seed)
    ...     def get_config(self):
    ...         config = {**super().get_config(), **self.stochastic_config()}
    ...         return {**config, "sigma": self.sigma}
    >>> layer, x = Channel(kl_weight=0.1), keras.ops.ones((2, 3))
    >>> with keras_vattn.posterior_draws(layer, seed=1):
    ...     drawn = layer(x)
    >>> bool(keras.ops.all(layer(x) == x)), bool(keras.ops.any(drawn == x))
    (True, False)
    >>> round(float(layer.losses[0]), 3)  # 0.1 times the KL in nats
    0.245
    """

    # A `Draws` under `keras_vattn.posterior_draws`, otherwise `None`. Every thread has its own value.
    draws = DRAWS
    logged_as = "kl"
    # Whether rows of the first axis depend on each other, as the nodes of a graph do.
    mixes_examples = False

    def __init__(self, kl_weight=1.0, kl_annealing=None, kl_reduction="sum", seed=None, draws_noise=True, **kwargs):
        super().__init__(**kwargs)
        self.become_stochastic(kl_weight, kl_annealing, kl_reduction, seed, draws_noise)

    def become_stochastic(self, kl_weight, kl_annealing, kl_reduction, seed, draws_noise=True):
        """Set the attributes of a stochastic layer from the arguments of the class."""
        if isinstance(kl_annealing, dict):
            kl_annealing = keras.saving.deserialize_keras_object(kl_annealing)
        if kl_annealing is not None and not isinstance(kl_annealing, keras.optimizers.schedules.LearningRateSchedule):
            raise ValueError(
                "`kl_annealing` must be None or a keras.optimizers.schedules.LearningRateSchedule, for instance "
                f"keras_vattn.LinearAnnealing(1000). Received: kl_annealing={kl_annealing!r}"
            )
        final_value(kl_annealing)  # raises ValueError if the schedule has no end
        self.kl_weight = nonnegative_number("kl_weight", kl_weight)
        self.kl_annealing = kl_annealing
        self.kl_reduction = one_of("kl_reduction", kl_reduction, REDUCTIONS)
        self.seed = integer("seed", seed, optional=True)
        self.seed_generator = keras.random.SeedGenerator(self.seed) if draws_noise else None
        self.kl_tracker = None
        self.call_count = None
        self.kl_above_floor_tracker = None
        self._shows_divergence = self._shows_floor = False
        self._added = AddedDivergences()
        self.annealing_start = 0

    def track_divergence(self, shown=True, name=None):
        """Create the metric that logs the KL and the counter of training calls. A layer with a KL must call this.

        Args:
            shown: Whether the log always shows the KL. With `False`, the log shows it once a call has added a KL.
            name: Name of the layer in the log, or `None` to use the attribute `name` of the layer.
        """
        name = f"{name or self.name}_{self.logged_as}"
        self._shows_divergence, self._logged_name = shown, name
        self.kl_tracker = DivergenceMean(name=name)
        self.kl_above_floor_tracker = DivergenceMean(name=f"{name}_above_floor")
        self.call_count = CallCount(self)

    @property
    def name_in_the_log(self):
        """The name of the KL in the log, or `None` if the log does not show the KL."""
        return self._logged_name if self._shows_divergence else None

    @property
    def training_calls(self):
        """The count of training calls, a saved variable outside `weights`, or `None` for a layer without a KL."""
        return None if self.call_count is None else self.call_count.variable

    @property
    def variables(self):
        return super().variables if self.call_count is None else [*super().variables, self.training_calls]

    @property
    def metrics(self):
        hidden = [] if self._shows_divergence else [self.kl_tracker]
        hidden += [] if self._shows_floor else [self.kl_above_floor_tracker]
        return [x for x in super().metrics if not any(x is tracker for tracker in hidden)]

    @property
    def is_stochastic(self):
        """Whether the layer draws from a posterior. Dropout alone does not count."""
        return True

    def rematerialized_call(self, layer_call, *arguments, **options):
        """Do not recompute noise or a KL: the noise would differ, and the KL would have no gradient."""
        if self.seed_generator is None and self.kl_tracker is None:
            return super().rematerialized_call(layer_call, *arguments, **options)
        return layer_call

    def require_built(self):
        """Raise ValueError if the layer has no weights yet."""
        if not self.built:
            raise ValueError(f"Call the layer once before reading its distributions. Received: {self.name}.built=False")

    def noise_seed(self, training):
        """Return an int32 seed (2,) if this call samples, or `None` if it uses the mean."""
        draws = self.draws
        if not training and draws is None:
            return None
        if training or draws.seed is None:
            return random.draw_seed(self.seed_generator)
        return random.fold_in_replica(draws.seed_of_batch())

    def draw_seeds(self, training):
        """Return the `Seeds` of a call. Inference has a dropout seed only if a `Sampler` requests dropout."""
        if self.seed_generator is None:
            return Seeds()
        noise, dropout = self.noise_seed(training), None
        if training or training_requested(self):
            dropout = random.draw_seed(self.seed_generator) if noise is None else noise
        return Seeds(noise, dropout, bool(training))

    def draw_temperature(self, training, temperature):
        """Return the factor of sigma: 1 in training. Otherwise `posterior_draws` overrides `temperature`."""
        if training:
            return 1.0
        draws = self.draws
        return temperature if draws is None or draws.temperature is None else draws.temperature

    def add_divergence(
        self, divergence, valid=None, entries=1, training=None, penalised=None, floor=None, examples=None
    ):
        """Add the KL of this call to the losses. Call this method once per call of the layer.

        The log receives the unweighted KL when `model.losses` is read, as in `fit` and `evaluate`. A call alone does
        not change the log.

        Args:
            divergence: KL in nats, float32, (B, ...), one value per query. With `None`, the method only updates the
                count of training calls.
            valid: Boolean tensor that broadcasts to `divergence`, `False` for queries to exclude, or `None`.
            entries: Number of entries per query over which the KL was summed: a number, or a tensor that broadcasts to
                `divergence`. Only `kl_reduction="mean"` uses it.
            training: The argument `training` of the call.
            penalised: `None`, or a tensor of the shape of `divergence` that replaces the KL in the loss, for example a
                KL with free bits.
            floor: Lower bound of `divergence`, of the same shape, or `None` for 0. The log also shows the KL minus this
                bound. The loss contains the full KL.
            examples: Number of examples, a number or scalar tensor. `None` uses the length of the first axis.

        Raises:
            ValueError: If the layer has not called `track_divergence`.
            ValueError: If `keras.RematScope` or `tf.recompute_grad` recomputes an enclosing layer in training.
        """
        if divergence is None:
            self.count_call(training)
            return
        if self.kl_tracker is None:
            raise ValueError(
                "A layer with a KL must call `track_divergence` in its `__init__`. "
                f"Received: {type(self).__name__}(name={self.name!r}), which has not called it"
            )
        if training and not is_recorded():
            raise ValueError(
                "A KL has no gradient inside a layer that `keras.RematScope` or `tf.recompute_grad` recomputes: "
                "create the enclosing layer or model outside the scope. "
                f"Received: {type(self).__name__}(name={self.name!r})"
            )
        if valid is not None:
            valid = ops.broadcast_to(ops.cast(valid, "bool"), ops.shape(divergence))
        batch_size = ops.shape(divergence)[0] if examples is None else examples
        if self.kl_reduction == "sum":
            denominator = batch_size
        else:
            entries = 1.0 if self.kl_reduction == "query_mean" else ops.cast(entries, "float32")
            denominator = _masked_sum(ops.ones_like(divergence) * entries, valid)
        total = _masked_sum(divergence, valid)
        penalised_total = total if penalised is None else _masked_sum(penalised, valid)
        loss = self._current_kl_weight(training) * _quotient(penalised_total, denominator)
        # Without this cast, Keras would fail to add a half-precision KL to a float32 loss.
        loss = ops.cast(loss, "float64" if keras.config.floatx() == "float64" else "float32")
        above_floor = total
        if floor is not None:
            # Do not sum before subtracting: the difference of two large float32 sums is mostly rounding error.
            above_floor = _masked_sum(ops.cast(divergence, "float32") - floor, valid)
            self._shows_floor = True
        self._added.prune(keras_private.own_losses(self))
        self._added.add(AddedDivergence(loss, total, above_floor, batch_size, _replica_thread()))
        self.add_loss(loss)
        self._shows_divergence = True

    def _get_own_losses(self):
        losses, added = self._losses_of_this_replica()
        self._log([x for x in added if x.is_current and not x.is_logged])
        return losses

    def _losses_of_this_replica(self):
        """Return the losses of this replica, and their `AddedDivergence` objects."""
        losses, thread = keras_private.own_losses(self), _replica_thread()
        added = self._added.prune(losses)
        if thread is None:
            return losses, added
        # Replicas share one list of losses. Without this filter, each replica would return the losses of all replicas.
        other_replicas = {id(x.loss) for x in added if x.thread != thread}
        return [x for x in losses if id(x) not in other_replicas], [x for x in added if x.thread == thread]

    def _log(self, added):
        """Add KLs to the log. If `call` added them, `predict` would also compute the KL."""
        if not added:
            return
        for divergence in added:
            divergence.is_logged = True
        # If one step calls the layer several times, the log shows the sum of the KLs, as the loss does.
        last = added[-1].batch_size
        self.kl_tracker.add([_rescaled(x.total, x.batch_size, last) for x in added], last)
        if self._shows_floor:
            self.kl_above_floor_tracker.add([_rescaled(x.above_floor, x.batch_size, last) for x in added], last)

    def divergence_of_last_call(self, weighted=False):
        """Return the KL of the layer in the last call of the model, or `None` if the layer added no KL.

        The KL is a float32 scalar in nats, averaged over the batch. With `weighted`, return the value in the loss.
        """
        added = [x for x in self._losses_of_this_replica()[1] if x.is_current]
        return sum(x.loss if weighted else _quotient(x.total, x.batch_size) for x in added) if added else None

    def _current_kl_weight(self, training):
        if not training:
            return self.kl_weight * final_value(self.kl_annealing)
        weight = self.kl_weight
        if self.kl_annealing is not None:
            step = ops.maximum(self.training_calls.value - self.annealing_start, 0)
            weight = weight * ops.cast(self.kl_annealing(step), "float32")
        self.count_call(training)
        return weight

    def count_call(self, training):
        """Increment the count of training calls if this is a training call. `add_divergence` calls this method."""
        if training and self.call_count is not None:
            self.training_calls.assign_add(1)

    def stochastic_config(self):
        """Return the arguments of this class, for `get_config`."""
        if self.call_count is not None:
            self.call_count.warn_of_legacy_file()
        return {
            "kl_weight": self.kl_weight,
            "kl_annealing": keras.saving.serialize_keras_object(self.kl_annealing),
            "kl_reduction": self.kl_reduction,
            "seed": self.seed,
        }


class DivergenceMean(keras.metrics.Mean):
    """`keras.metrics.Mean` that sums in float32, also inside a layer with a mixed dtype policy."""

    def add_variable(self, shape, initializer, dtype=None, aggregation="sum", name=None):
        # Without `autocast=False`, a mixed dtype policy would read the sum in half precision, which can overflow.
        return keras.Variable(
            initializer,
            shape=shape,
            dtype=dtype,
            trainable=False,
            autocast=False,
            aggregation=aggregation,
            synchronization="on_read",
            name=name,
        )

    def add(self, totals, count):
        """Add `totals`, a list of sums over a batch of `count` examples."""
        self.total.assign_add(tf.add_n(totals))
        self.count.assign_add(ops.cast(count, "float32"))


def _replica_thread():
    """Return this replica's thread id, or `None` if there is only one replica."""
    context = tf.distribute.get_replica_context()
    return None if context is None or context.num_replicas_in_sync == 1 else threading.get_ident()


def _quotient(total, count):
    """Return total / count, or 0 if the count is 0. Multiplying by 1 / count has a cheaper gradient than dividing."""
    if isinstance(count, numbers.Number):
        return total * (1.0 / count) if count else ops.zeros_like(total)
    return ops.divide_no_nan(total, ops.cast(count, "float32"))


def _rescaled(total, count, new_count):
    if count is new_count or (all(isinstance(x, numbers.Number) for x in (count, new_count)) and count == new_count):
        return total
    return _quotient(total, count) * ops.cast(new_count, "float32")


def _masked_sum(divergence, valid):
    divergence = ops.cast(divergence, "float32")
    return ops.sum(divergence if valid is None else ops.where(valid, divergence, ops.zeros_like(divergence)))
