"""The one error that means "your input, not our program"."""

import contextlib
import itertools
import zipfile
import zlib

# Messages of errors that were raised where TensorFlow calls Python, by the marks that their graphs' errors have.
_messages = {}
_numbers = itertools.count(1)
# Errors of Keras, NumPy and h5py for a file that is damaged, or another one.
_UNREADABLE = (
    *(AttributeError, EOFError, ImportError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)


class InputError(ValueError):
    """A file or an option that a program cannot use.

    The message is one sentence. It begins with the place, ``file:line`` or the name of the option, and says what was
    expected there. Programs print it without a traceback and stop.
    """


@contextlib.contextmanager
def reading(place, expected="a file that can be read"):
    """Turn the errors of libraries that read a damaged file, or another one, into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        (received, *_) = str(error).strip().split("\n")
        raise InputError(f"{place}: expected {expected}. Received: {received}") from error


def pass_through(error):
    """Return a message for the error of a graph in which an `InputError` was raised, so that it is found there."""
    tag = f"InputError {next(_numbers)}:"
    _messages[tag] = str(error)
    return f"{tag} {error}"


def input_error_in(error):
    """Return the `InputError` that was passed through the graph whose error this is, or `None`."""
    text = str(error)
    # A list: threads that read on may pass others.
    return next((InputError(message) for tag, message in list(_messages.items()) if tag in text), None)
