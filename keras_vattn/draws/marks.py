"""The marks of `keras_vattn.posterior_draws`: which layers draw at inference, how, and in which thread."""

import contextlib
import dataclasses
import sys
import threading
import weakref

import tensorflow as tf

from keras_vattn import random

# For what is read and written again; never held while a function is traced or run. A generator that is collected while
# its thread holds the lock takes its marks away in that very thread.
LOCK = threading.RLock()
# From a layer to the tuple of its marks, the innermost last. A tuple is replaced, never changed: reading needs no lock.
_MARKS = weakref.WeakKeyDictionary()


@dataclasses.dataclass(eq=False)
class Draws:
    """How a marked layer draws.

    Attributes:
        seed: int32 tensor (2,), `None` for the layer's own generator.
        temperature: Factor on sigma, `None` for the layer's own.
        thread: The thread that the mark counts in, with the replica threads that `tf.distribute` starts for it.
        batch: The number of the batch while a compiled function of the model runs, an integer variable, else `None`.
    """

    seed: object = None
    temperature: object = None
    thread: threading.Thread = dataclasses.field(default_factory=threading.current_thread)
    batch: object = None

    def seed_of_batch(self):
        """Return the seed of the first batch, and another one of each that follows it."""
        if self.batch is None:
            return self.seed
        return tf.where(self.batch > 0, random.fold_in(self.seed, self.batch), self.seed)


class InnermostDraws:
    """Attribute of a class of layers: the innermost living `Draws` of a layer that counts in this thread, or `None`."""

    def __get__(self, layer, owner=None):
        if layer is None:
            return self
        marks = _MARKS.get(layer)
        if not marks:
            return None
        thread = _responsible_thread()
        return next((mark for mark in reversed(marks) if mark.thread is thread), None)


def sees_marks(layer):
    """Return whether `layer.draws` is the mark of a layer, which may be any of Keras."""
    return isinstance(getattr(type(layer), "draws", None), InnermostDraws) and "draws" not in vars(layer)


@contextlib.contextmanager
def marked(draws):
    """Mark layers, and take away these marks, and no others, at the end.

    Args:
        draws: Dictionary from layers to `Draws`.
    """
    try:
        with LOCK:
            for layer, mark in draws.items():
                _MARKS[layer] = (*_MARKS.get(layer, ()), mark)
        yield
    finally:
        with LOCK:
            for layer, mark in draws.items():
                left = tuple(x for x in _MARKS.pop(layer, ()) if x is not mark)
                if left:
                    _MARKS[layer] = left


def _responsible_thread():
    """Return this thread; in a replica thread of `tf.distribute`, the one that started it."""
    thread = threading.current_thread()
    if not type(thread).__module__.startswith("tensorflow."):
        return thread
    # TensorFlow hands nothing of ours on to a replica thread, but who started it waits in a frame that holds it.
    frames = sys._current_frames()
    for candidate in threading.enumerate():
        if candidate is not thread and _holds(frames.get(candidate.ident), thread):
            return candidate
    raise RuntimeError(
        "A layer under `posterior_draws` was called in a thread of tf.distribute whose starter is not to be found: "
        f"enter `posterior_draws` inside the function that `strategy.run` runs. Received: thread={thread.name}"
    )


def _holds(frame, thread):
    """Return whether a variable of `tf.distribute`, in this frame or below it, is a list with the thread in it."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("tensorflow.python.distribute."):
            lists = (x for x in frame.f_locals.values() if isinstance(x, list))
            if any(one is thread for x in lists for one in x):
                return True
        frame = frame.f_back
    return False
