"""Every example of a docstring runs and prints what it says."""

import doctest
import importlib
import pkgutil

import keras
import pytest

import keras_vattn

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MODULES = [keras_vattn.__name__] + [
    module.name for module in pkgutil.walk_packages(keras_vattn.__path__, prefix="keras_vattn.")
]


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = []
    for name in MODULES:
        module = importlib.import_module(name)
        # What a reader has imported, and nothing of the module.
        names = {"keras_vattn": keras_vattn, "keras": keras}
        tests += [test for test in finder.find(module, globs=names) if test.examples]
    return {test.name: test for test in tests}


EXAMPLES = examples()


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_example(name):
    output = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(EXAMPLES[name], out=output.append)
    assert runner.failures == 0, "".join(output)


def test_there_are_examples():
    assert len(EXAMPLES) > 25
