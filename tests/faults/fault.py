import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    """A patch, and the tests that must fail under it.

    Attributes:
        name: What is wrong with it.
        file: In keras_vattn/, or from the project's folder on.
        old: Text that the file has once.
        new: What stands in its place.
        tests: Files or folders.
        keyword: Which of their tests, as `pytest -k` has it.
        slow_because: Why no test of the default tier finds it; `None` where one does.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple
    keyword: str
    slow_because: str | None = None
