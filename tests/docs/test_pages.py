"""The code of README and of the pages of docs/ runs as it stands, top to bottom, and their links lead somewhere."""

import pathlib
import re

import keras
import pytest
from tiers import slow_after

ROOT = pathlib.Path(__file__).parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
BLOCKS = {
    page.name: re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    for page in (README, *DOCS.glob("*.md"))
}


SLOW = {"pretrained_models.md", "saving_and_exporting.md", "serving.md"}
PAGES = sorted(BLOCKS.keys() - {"the_kl_and_your_loss.md", "new_application.md"} - SLOW)


@pytest.mark.parametrize("page", slow_after([*PAGES, *sorted(SLOW)], len(PAGES)))
def test_page(page, tmp_path, monkeypatch):
    # Where what a page writes is no part of the project.
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with keras.saving.CustomObjectScope({}):
        for block in BLOCKS[page]:
            exec(compile(block, page, "exec"), names)


def anchors(text):
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            linked = page.parent / path if path else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked.read_text("utf-8")), target
