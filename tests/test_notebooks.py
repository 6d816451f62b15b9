"""What a run of the notebooks does not show; pytest runs all of their cells, see notebook_start.py."""

import json
import pathlib

import keras
from keras import ops

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "notebooks"


def test_z_stands_beside_as_many_words_as_it_is_wide():
    """There Keras 3.15 takes zeros (1, T, 1) for a bias, and a sum with them has one word, silently."""
    cells = json.loads((FOLDER / "ved.ipynb").read_text(encoding="utf-8"))["cells"]
    (line,) = (line for cell in cells for line in cell["source"] if line.startswith("repeated = "))
    z, words = keras.Input((16,)), keras.Input((None, 4))
    names = {"ops": ops, "encoded": {"z": z}, "words": words}
    exec(line, names)
    model = keras.Model([z, words], names["repeated"])
    assert model([ops.ones((1, 16)), ops.ones((1, 16, 4))]).shape == (1, 16, 16)
