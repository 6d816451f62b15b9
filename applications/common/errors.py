"""Defines `InputError`, the error for mistakes in a user's files and options."""

import contextlib
import itertools
import zipfile
import zlib

# If a dataset raises an `InputError`, TensorFlow replaces it. The text of the new error contains the tag.
_messages = {}
_numbers = itertools.count(1)
_UNREADABLE = (
    *(AttributeError, EOFError, ImportError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)


class InputError(ValueError):
    """Raised if a program cannot use a file or an option.

    The message is one sentence. It begins with ``file:line`` or the name of the option, and says what was expected.
    Programs print the message without a traceback and exit.
    """


@contextlib.contextmanager
def reading(place, expected="a file that can be read"):
    """Convert the errors that libraries raise for a damaged file or a wrong format to an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        (received, *_) = str(error).strip().split("\n")
        raise InputError(f"{place}: expected {expected}. Received: {received}") from error


def pass_through(error):
    """Return the message of an `InputError` with a tag, which `input_error_in` recognises."""
    tag = f"InputError {next(_numbers)}:"
    _messages[tag] = str(error)
    return f"{tag} {error}"


def input_error_in(error):
    """Return the `InputError` whose tag the text of `error` contains, or `None`."""
    text = str(error)
    # Other threads may add messages, so iterate over a copy.
    return next((InputError(message) for tag, message in list(_messages.items()) if tag in text), None)
