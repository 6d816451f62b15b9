"""The cells of the notebooks run as they stand, top to bottom; and what their run does not show."""

import json
import pathlib

import keras
import matplotlib.pyplot as plt
import pytest

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "notebooks"


def with_options(method, **options):
    return lambda *arguments, **given: method(*arguments, **given | options)


# Keras sees that `compile` is not its own.
@pytest.mark.filterwarnings("ignore:.compile... was not called as part of model loading:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_cells(path, tmp_path, monkeypatch):
    """Training takes two steps, which are not compiled; no figure of a notebook is checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(keras.Model, "compile", with_options(keras.Model.compile, run_eagerly=True, jit_compile=False))
    monkeypatch.setattr(keras.Model, "fit", with_options(keras.Model.fit, epochs=1, steps_per_epoch=2))
    monkeypatch.setattr(keras.Model, "predict", with_options(keras.Model.predict, batch_size=1000))
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("agg")
    names = {"__name__": "notebook"}
    for index, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).removeprefix("%matplotlib inline\n")
            exec(compile(code, f"{path.name}, cell {index}", "exec"), names)
            for number in plt.get_fignums():
                plt.figure(number).canvas.draw()
            plt.close("all")
