"""The cells of the notebooks run as they stand, top to bottom; and what their run does not show."""

import json
import pathlib

import keras
import matplotlib.pyplot as plt
import pytest
from keras import ops

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


def test_z_stands_beside_as_many_words_as_it_is_wide():
    """There Keras 3.15 takes zeros (1, T, 1) for a bias, and a sum with them has one word, silently."""
    cells = json.loads((FOLDER / "ved.ipynb").read_text(encoding="utf-8"))["cells"]
    (line,) = (line for cell in cells for line in cell["source"] if line.startswith("repeated = "))
    z, words = keras.Input((16,)), keras.Input((None, 4))
    names = {"ops": ops, "encoded": {"z": z}, "words": words}
    exec(line, names)
    model = keras.Model([z, words], names["repeated"])
    assert model([ops.ones((1, 16)), ops.ones((1, 16, 4))]).shape == (1, 16, 16)
