"""Images of coloured squares, what is said about them, and word detectors that are trained on them."""

import contextlib
import io

import numpy as np

from applications.vision import word_detectors
from applications.vision.images import Images
from applications.vision.options import ExtractorOptions

COLORS = {
    "red": (220, 30, 30),
    "green": (20, 200, 40),
    "blue": (30, 40, 220),
    "yellow": (230, 220, 20),
    "black": (5, 5, 5),
}
CELLS, SIDE = 3, 24


def squares(count, seed=0):
    """Return images with two squares of other colours, each in a cell of its own, with their colours and cells."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(100, 140, (count, SIDE, SIDE, 3)).astype(np.uint8)
    places = []
    for image in pixels:
        names = generator.permutation(list(COLORS))[:2].tolist()
        cells = [divmod(int(cell), CELLS) for cell in generator.permutation(CELLS**2)[:2]]
        for name, (row, column) in zip(names, cells, strict=True):
            image[8 * row + 1 : 8 * row + 7, 8 * column + 1 : 8 * column + 7] = COLORS[name]
        places.append(dict(zip(names, cells, strict=True)))
    return pixels, places


PIXELS, PLACES = squares(150)
IMAGES = Images("squares", [f"i{row}" for row in range(len(PIXELS))], pixels=PIXELS)
WORDS = {f"i{row}": ["a", "square", *places] for row, places in enumerate(PLACES)}
OPTIONS = ExtractorOptions(network="words", image_size=SIDE, grid=CELLS, feature_units=12)


def trained():
    """Return word detectors, and what their training says."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        detectors = word_detectors.train_detectors(PIXELS, list(WORDS.values()), OPTIONS)
    return detectors, said.getvalue().splitlines()
