"""Tests that docstring examples run and print the shown output, and that classes have their formulas in AsciiMath."""

import doctest
import importlib
import inspect
import pkgutil
import re

import keras
import pytest

import keras_vattn

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MODULES = [keras_vattn.__name__] + [
    module.name for module in pkgutil.walk_packages(keras_vattn.__path__, prefix="keras_vattn.")
]
HAVE_FORMULAS = (keras.layers.Layer, keras.losses.Loss, keras_vattn.Alignment, keras_vattn.LatentObjective)
# These base classes and this mixin have no formula, but their subclasses have one.
WITHOUT_FORMULA = {"Alignment", "Context", "MultiHeadMixin", "Prior", "Score"}


def docstrings():
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = []
    for name in MODULES:
        module = importlib.import_module(name)
        # An example may use only these two packages without an import.
        names = {"keras_vattn": keras_vattn, "keras": keras}
        tests += finder.find(module, globs=names)
    return {test.name: test for test in tests}


DOCSTRINGS = docstrings()
EXAMPLES = {name: test for name, test in DOCSTRINGS.items() if test.examples}


def formula(docstring):
    """Return the lines of the section `Formula:`, or `None`."""
    section = re.search(r"\n\nFormula:\n((?:    .+\n)+)\n", inspect.cleandoc(docstring) + "\n\n")
    return section and section[1].splitlines()


def is_balanced(line):
    outside = re.sub(r'"[^"]*"', "", line)
    shorter = None
    while shorter != outside:
        shorter, outside = outside, re.sub(r"\([^][(){}]*\)|\[[^][(){}]*\]|\{[^][(){}]*\}", "", outside)
    return not set(outside) & set('()[]{}"')


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_example(name):
    output = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(EXAMPLES[name], out=output.append)
    assert runner.failures == 0, "".join(output)


def test_number_of_examples():
    assert len(EXAMPLES) > 25


def test_classes_have_their_formulas():
    public = {name: getattr(keras_vattn, name) for name in keras_vattn.__all__}
    public = {name: x for name, x in public.items() if inspect.isclass(x) and issubclass(x, HAVE_FORMULAS)}
    assert {name for name, x in public.items() if not formula(x.__doc__)} == WITHOUT_FORMULA


def test_formulas_are_balanced():
    headed = {name: x.docstring for name, x in DOCSTRINGS.items() if re.search(r"^ *Formula\b.*:$", x.docstring, re.M)}
    lines = {name: formula(docstring) or ["("] for name, docstring in headed.items()}
    assert {name for name, x in lines.items() if len(x) > 6 or not all(map(is_balanced, x))} == set()
