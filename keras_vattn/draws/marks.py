"""The marks of `keras_vattn.posterior_draws`: which layers draw at inference, how, and in which thread."""

import contextlib
import dataclasses
import threading
import weakref

import tensorflow as tf

from keras_vattn import random

# For what is read and written again; never held while a function is traced or run. A generator that is collected while
# its thread holds the lock takes its marks away in that very thread.
LOCK = threading.Condition(threading.RLock())


@dataclasses.dataclass(eq=False)
class Draws:
    """How a marked layer draws.

    Attributes:
        seed: int32 tensor (2,), `None` for the layer's own generator.
        temperature: Factor on sigma, `None` for the layer's own.
        batch: The number of the batch while a compiled function of the model runs, an integer variable, else `None`.
    """

    seed: object = None
    temperature: object = None
    batch: object = None

    def seed_of_batch(self):
        """Return the seed, in a batch after the first another one."""
        if self.batch is None:
            return self.seed
        return tf.where(self.batch > 0, random.fold_in(self.seed, self.batch), self.seed)


class Turn:
    """The lock of all draws, with the marks of its owner: one thread, and the replica threads that `tf.distribute`
    starts for it. Any thread may leave it.

    Attributes:
        marks: A tuple of dictionaries from layers to `Draws`, the innermost last. It is replaced, never changed:
            reading needs no lock.
        at_end: A dictionary from models, held weakly, to functions of them that are called when the turn ends.
    """

    def __init__(self):
        self.marks, self.at_end, self._owner = (), weakref.WeakKeyDictionary(), (None, None)

    def is_mine(self):
        """Return whether it is the turn of this thread, or of the thread that this replica thread works for."""
        thread, graph = self._owner
        return thread is threading.current_thread() or graph is _graph_of_thread()

    @contextlib.contextmanager
    def taken(self, marks):
        """Wait for the turn, and mark layers in it: `marks` is a dictionary from layers to `Draws`, empty for none."""
        with LOCK:
            # Who is collected right here, or whose thread has ended inside, notifies nobody.
            while not LOCK.wait_for(lambda: not self.marks or self.is_mine() or self._is_left(), timeout=1.0):
                pass
            if self.marks and not self.is_mine():
                self._end()
            if not self.marks:
                self._owner = threading.current_thread(), _graph_of_thread()
            self.marks = (*self.marks, marks)
        try:
            yield
        finally:
            with LOCK:
                left = tuple(x for x in self.marks if x is not marks)
                if self.marks and not left:
                    self._end()
                self.marks = left

    def _is_left(self):
        """Return whether the thread that has the turn has ended."""
        return not self._owner[0].is_alive()

    def _end(self):
        self.marks, self._owner = (), (None, None)
        LOCK.notify_all()
        for model, function in list(self.at_end.items()):
            function(model)
        self.at_end.clear()


TURN = Turn()


class InnermostDraws:
    """Attribute of a class of layers: the innermost `Draws` of a layer, `None` where it has none or it is another
    thread's turn."""

    def __get__(self, layer, owner=None):
        if layer is None:
            return self
        found = [marks[layer] for marks in TURN.marks if layer in marks]
        return found[-1] if found and TURN.is_mine() else None


def sees_marks(layer):
    """Return whether `layer.draws` is the mark of a layer, which may be any of Keras."""
    return isinstance(getattr(type(layer), "draws", None), InnermostDraws) and "draws" not in vars(layer)


def _graph_of_thread():
    """Return the outermost graph here: every thread has its own, and a replica thread has its starter's."""
    graph = tf.compat.v1.get_default_graph()
    while graph.building_function:
        graph = graph.outer_graph
    return graph
