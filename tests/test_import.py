import inspect
import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

import keras_vattn

BASES = ("Score", "Context", "Prior", "RecurrentCell", "RecurrentDecoder", "StochasticLayer", "MultiHeadMixin")
ROOT = pathlib.Path(keras_vattn.__file__).parent.parent


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_backend_is_refused_before_it_is_imported():
    result = run("import keras_vattn", KERAS_BACKEND="jax")
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "KERAS_BACKEND=tensorflow" in last
    assert "Received: backend='jax'" in last
    assert "During handling" not in result.stderr


def test_a_backend_of_the_configuration_file_is_refused(monkeypatch):
    from keras_vattn.support.backend import require_tensorflow

    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ImportError, match=r"KERAS_BACKEND=tensorflow.*Received: backend='torch'"):
        require_tensorflow()


@pytest.mark.parametrize("value", ["1", "True"])
def test_keras_2_instead_of_keras_3_gives_a_warning(value, monkeypatch, recwarn):
    """Models of `tf.keras` ignore weights and losses of our layers, so TF_USE_LEGACY_KERAS gives a warning."""
    from keras_vattn.support.backend import require_tensorflow

    for other in ("", "0"):
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", other)
        require_tensorflow()
    assert not recwarn
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", value)
    with pytest.warns(UserWarning, match=r"TF_USE_LEGACY_KERAS=1, `tf\.keras` is Keras 2.*Unset it, or use `keras`"):
        require_tensorflow()


def public_objects():
    objects = {name: getattr(keras_vattn, name) for name in keras_vattn.__all__}
    for module_name, module in list(objects.items()):
        if inspect.ismodule(module):
            objects.update({f"{module_name}.{name}": getattr(module, name) for name in module.__all__})
    return {name: value for name, value in objects.items() if callable(value)}


def test_all_names_what_is_public():
    public = {
        name
        for name, value in vars(keras_vattn).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith("keras_vattn")
    }
    assert public <= set(keras_vattn.__all__)
    for name in keras_vattn.__all__:
        assert hasattr(keras_vattn, name)


@pytest.mark.parametrize("name", list(public_objects()))
def test_every_public_object_has_a_docstring_with_an_example(name):
    documentation = inspect.getdoc(public_objects()[name])
    assert documentation
    assert ">>>" in documentation


def test_every_public_object_has_an_entry_in_the_documentation():
    entries = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "api.md").read_text("utf-8")))
    modules = {name for name in keras_vattn.__all__ if inspect.ismodule(getattr(keras_vattn, name))}
    assert {path.split(".")[-1] for path in public_objects()} | modules <= entries


def test_every_public_layer_can_be_saved():
    for path, value in public_objects().items():
        name = path.split(".")[-1]
        if inspect.isclass(value) and issubclass(value, keras.layers.Layer) and name not in BASES:
            assert keras.saving.get_registered_name(value) == f"keras_vattn>{name}"
