"""The error type for mistakes in a user's files and options."""

import contextlib
import itertools
import zipfile
import zlib

# Messages of `InputError`s raised in Python code that a graph calls, by the tag that the error of the graph contains.
_messages = {}
_numbers = itertools.count(1)
# Errors of Keras, NumPy and h5py for a file that is damaged or of another kind.
_UNREADABLE = (
    *(AttributeError, EOFError, ImportError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)


class InputError(ValueError):
    """A file or an option that a program cannot use.

    The message is one sentence. It begins with the place, ``file:line`` or the name of the option, and says what was
    expected. Programs print it without a traceback and exit.
    """


@contextlib.contextmanager
def reading(place, expected="a file that can be read"):
    """Turn the errors of libraries for a damaged file, or a file of another kind, into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        (received, *_) = str(error).strip().split("\n")
        raise InputError(f"{place}: expected {expected}. Received: {received}") from error


def pass_through(error):
    """Return a tagged message for the error of a graph; `input_error_in` recovers the `InputError` from it."""
    tag = f"InputError {next(_numbers)}:"
    _messages[tag] = str(error)
    return f"{tag} {error}"


def input_error_in(error):
    """Return the `InputError` whose tagged message an error contains, or `None`."""
    text = str(error)
    # Iterate over a copy: other threads may add messages.
    return next((InputError(message) for tag, message in list(_messages.items()) if tag in text), None)
