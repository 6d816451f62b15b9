"""The compiled functions of a model while one thread draws and another does not."""

import contextlib
import weakref

import tensorflow as tf

from keras_vattn.draws.marks import LOCK, sees_marks
from keras_vattn.draws.stochastic_layers import stochastic_layers

NAMES = ("train_function", "test_function", "predict_function")
# From a model to the number of contexts of `posterior_draws` that it is in.
_COUNTS = weakref.WeakKeyDictionary()


class FunctionByMarks:
    """A compiled function of a model, another one for every choice of marks that the layers have in the calling thread.

    Args:
        model: A `keras.Model`.
        name: One of `NAMES`.
        plain: The function of the model without marks, or `None` to make it.
    """

    def __init__(self, model, name, plain):
        self.model, self.name = model, name
        self.layers = [layer for layer in stochastic_layers(model) if sees_marks(layer)]
        # There from the start: Keras makes a function and calls what the model has a moment later, when another thread
        # may have left the context and put this one back.
        self.plain = self._make() if plain is None else plain
        self.functions = {(None,) * len(self.layers): self.plain}
        # From the same keys to the number of the batch that a seeded one is at.
        self.batches = {}

    def forget(self, marks):
        """Drop the functions that drew under any of these marks."""
        self.functions = {key: function for key, function in self.functions.items() if not marks.intersection(key)}
        self.batches = {key: batch for key, batch in self.batches.items() if not marks.intersection(key)}

    def begin(self):
        """Number the batches from 0 again, those of this thread."""
        if self._key() in self.batches:
            self.batches[self._key()].assign(-1)

    def _key(self):
        return tuple(layer.draws for layer in self.layers)

    def __call__(self, *arguments):
        key = self._key()
        function = self.functions.get(key)
        if function is None:
            with LOCK:
                function = self.functions.get(key) or self._make()
                self.functions = {**self.functions, key: function}
        seeded = [mark for mark in key if mark is not None and mark.seed is not None]
        if not seeded:
            return function(*arguments)
        if key not in self.batches:
            # The function holds on to the variable that it is traced with; replicas have one each.
            first = tf.VariableAggregation.ONLY_FIRST_REPLICA
            self.batches[key] = tf.Variable(-1, trainable=False, dtype="int64", aggregation=first)
        batch = self.batches[key]
        batch.assign_add(1)
        for mark in seeded:
            mark.batch = batch
        try:
            return function(*arguments)
        finally:
            for mark in seeded:
                mark.batch = None

    def _make(self):
        stand_in = StandIn(self.model)
        getattr(type(self.model), f"make_{self.name}")(stand_in, force=True)
        return getattr(stand_in, self.name)


class StandIn:
    """Stands for a model where Keras makes a compiled function of it, and keeps that function to itself.

    A model that had it for a moment could be asked for it, in that moment, by another thread.
    """

    def __init__(self, model):
        vars(self).update(model=model, made={})

    # `super()` in a method of the model looks at it.
    __class__ = property(lambda self: type(vars(self)["model"]))

    def __getattr__(self, name):
        made = vars(self)["made"]
        return made[name] if name in made else getattr(vars(self)["model"], name)

    def __setattr__(self, name, value):
        if name in NAMES:
            vars(self)["made"][name] = value
        else:
            setattr(vars(self)["model"], name, value)


@contextlib.contextmanager
def functions_by_marks(models, marks):
    """Give each thread compiled functions of these models that draw as its marks say, and take them away at the end.

    Args:
        models: List of `keras.Model`.
        marks: The `Draws` of this context.
    """
    entered = []
    try:
        with LOCK:
            for model in models:
                _COUNTS[model] = _COUNTS.get(model, 0) + 1
                entered.append(model)
                for name in NAMES:
                    # Keras tracks nothing of it.
                    vars(model)[f"make_{name}"] = _make_by_marks(model, name)
        yield
    finally:
        with LOCK:
            for model in entered:
                _leave(model, set(marks))


def _make_by_marks(model, name):
    """Return what `make_predict_function` and its like do in a context; `compile` has Keras call it again."""

    def make(force=False):
        with LOCK:
            function = getattr(model, name)
            if model not in _COUNTS:
                # Another thread left the context between looking the method up and calling it.
                return getattr(type(model), f"make_{name}")(model, force=force)
            if force or not isinstance(function, FunctionByMarks):
                function = FunctionByMarks(model, name, None if force else function)
                setattr(model, name, function)
            function.begin()
            return function

    return make


def _leave(model, marks):
    _COUNTS[model] -= 1
    is_last = not _COUNTS[model]
    if is_last:
        del _COUNTS[model]
    for name in NAMES:
        function = getattr(model, name)
        if isinstance(function, FunctionByMarks):
            function.forget(marks)
            if is_last:
                setattr(model, name, function.plain)
        if is_last:
            del vars(model)[f"make_{name}"]
