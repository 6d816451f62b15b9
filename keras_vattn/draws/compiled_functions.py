"""The compiled functions of a model while a thread draws and others do not."""

import functools

import tensorflow as tf

from keras_vattn.draws.marks import LOCK, TURN, sees_marks
from keras_vattn.draws.stochastic_layers import stochastic_layers

NAMES = ("train_function", "test_function", "predict_function")


class FunctionByMarks:
    """A compiled function of a model, one for every set of marks that its layers have in the calling thread.

    Args:
        model: A `keras.Model`.
        name: One of `NAMES`.
        plain: The function of the model without marks, or `None` to make it.
    """

    def __init__(self, model, name, plain):
        self.model, self.name = model, name
        self.layers = [layer for layer in stochastic_layers(model) if sees_marks(layer)]
        self.unmarked = (None,) * len(self.layers)
        self.functions = {} if plain is None else {self.unmarked: plain}
        # Which batch a pass over data is at: those who have the turn make one pass at a time.
        self.batch = None

    def __call__(self, *arguments):
        marks = tuple(layer.draws for layer in self.layers)
        seeded = [x for x in marks if x is not None and x.seed is not None]
        if not seeded:
            return self.under(marks)(*arguments)
        if self.batch is None:
            # A function holds on to the variable that it is traced with; replicas have one each.
            first = tf.VariableAggregation.ONLY_FIRST_REPLICA
            self.batch = tf.Variable(-1, trainable=False, dtype="int64", aggregation=first)
        self.batch.assign_add(1)
        for x in seeded:
            x.batch = self.batch
        try:
            return self.under(marks)(*arguments)
        finally:
            for x in seeded:
                x.batch = None

    def under(self, marks):
        """Return the function for these marks of the layers."""
        with LOCK:
            if marks not in self.functions:
                living = {None, *(x for of_layers in TURN.marks for x in of_layers.values())}
                self.functions = {key: x for key, x in self.functions.items() if living.issuperset(key)}
                self.functions[marks] = self._made()
            return self.functions[marks]

    def _made(self):
        """Return a function made by Keras that is never an attribute of the model: another thread would call it."""
        made = {}

        def keep(name, value):
            made[name] = value
            return name, self if name == self.name else value

        vars(self.model)["_setattr_hook"] = keep
        try:
            getattr(type(self.model), f"make_{self.name}")(self.model, force=True)
        finally:
            del vars(self.model)["_setattr_hook"]
        return made[self.name]


def make_by_marks(model):
    """Have Keras make compiled functions by the marks of a model, until the current turn ends."""
    with LOCK:
        for name in NAMES:
            # Keras tracks nothing of it.
            vars(model)[f"make_{name}"] = functools.partial(_make, model, name)
        TURN.at_end[model] = _restore


def _make(model, name, force=False):
    """Replace `make_predict_function` and its like in a context; `compile` has Keras call it again."""
    with LOCK:
        function = getattr(model, name)
        if force or not isinstance(function, FunctionByMarks):
            function = FunctionByMarks(model, name, None if force else function)
            setattr(model, name, function)
        if function.batch is not None and TURN.is_mine():
            # Another pass begins.
            function.batch.assign(-1)
        return function


def _restore(model):
    for name in NAMES:
        vars(model).pop(f"make_{name}", None)
        function = getattr(model, name)
        if isinstance(function, FunctionByMarks):
            setattr(model, name, function.under(function.unmarked))
