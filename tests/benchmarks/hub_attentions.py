"""Which models of KerasHub `to_bayesian` understands: the attention classes that each one's modules name.

    python tests/benchmarks/hub_attentions.py

prints a table. A model is converted whole where everything stands in the second column; with `skip_unknown=True` what
stands in the third stays as it is.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil

import keras
import keras_hub.src.models

from keras_vattn.conversion import is_understood

BLOCKS = {"TransformerEncoder", "TransformerDecoder"}


def classes_of(package):
    """The attentions that the modules of a model define or call, as classes; blocks that hold one of KerasHub's."""
    found = {}
    for path in sorted(pathlib.Path(package.__path__[0]).glob("*.py")):
        if path.name.endswith("_test.py") or path.name == "__init__.py":
            continue
        module = importlib.import_module(f"{package.__name__}.{path.stem}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            known = getattr(module, name, None) or getattr(keras.layers, name, None)
            if name in BLOCKS:
                found[name] = None
            elif (
                isinstance(known, type) and issubclass(known, keras.Layer) and "ttention" in name and "Mask" not in name
            ):
                found[name] = known
    return found


def holds_softmax(layer_class):
    """Whether a class makes a softmax, which is converted in place of the attention."""
    return "layers.Softmax(" in inspect.getsource(layer_class)


def main():
    print("| model | understood | not understood |\n|---|---|---|")
    for info in pkgutil.iter_modules(keras_hub.src.models.__path__):
        if not info.ispkg:
            continue
        package = importlib.import_module(f"keras_hub.src.models.{info.name}")
        found = classes_of(package)
        yes = sorted(name for name, each in found.items() if each is None or is_understood(each) or holds_softmax(each))
        no = sorted(set(found) - set(yes))
        if found:
            print(f"| {info.name} | {', '.join(yes) or '-'} | {', '.join(no) or '-'} |")


if __name__ == "__main__":
    main()
