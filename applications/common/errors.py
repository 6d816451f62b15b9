"""The one error that means "your input, not our program"."""


class InputError(ValueError):
    """A file or an option that a program cannot use.

    The message is one sentence that a person can act on. It begins with the place, ``file:line`` or the name of the
    option, and says what was expected there. Programs print it without a traceback and stop.
    """
