"""The code of the pages of docs/ runs as it stands, top to bottom."""

import pathlib
import re

import keras
import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
BLOCKS = {
    page.name: re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S) for page in DOCS.glob("*.md")
}


@pytest.mark.parametrize("page", sorted(BLOCKS.keys() - {"the_kl_and_your_loss.md"}))
def test_page(page):
    names = {"__name__": "page"}
    with keras.saving.CustomObjectScope({}):
        for block in BLOCKS[page]:
            exec(compile(block, page, "exec"), names)


def test_every_piece_of_an_extension_is_short():
    """12 to 40 lines each, the code around it included."""
    pieces = BLOCKS["your_own_alignment.md"][1:]
    assert len(pieces) == 8
    assert all(len(piece.splitlines()) <= 40 for piece in pieces)
