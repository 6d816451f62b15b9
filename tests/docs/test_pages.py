"""The code of README and of the pages of docs/ runs as it stands, top to bottom, and their links lead somewhere."""

import pathlib
import re

import keras
import pytest
from tiers import slow_after

ROOT = pathlib.Path(__file__).parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
# Pairs of a block of code and what the page says that it prints, "" where the page says nothing.
CODE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.M | re.S)
BLOCKS = {page.name: CODE.findall(page.read_text("utf-8")) for page in (README, *DOCS.glob("*.md"))}

SLOW = {
    *("first_hour_layer.md", "first_hour_pretrained.md", "pretrained_models.md"),
    *("saving_and_exporting.md", "exports.md", "serving.md"),
}
PAGES = sorted(BLOCKS.keys() - {"the_kl_and_your_loss.md", "new_application.md"} - SLOW)


# Keras names each layer that it leaves as it is.
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method:UserWarning")
@pytest.mark.parametrize("page", slow_after([*PAGES, *sorted(SLOW)], len(PAGES)))
def test_page(page, tmp_path, monkeypatch, capsys):
    # Where what a page writes is no part of the project.
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with keras.saving.CustomObjectScope({}):
        for block, shown in BLOCKS[page]:
            exec(compile(block, page, "exec"), names)
            check_output(shown, capsys.readouterr().out)


NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def check_output(shown, printed):
    """Raise AssertionError unless the lines that a page shows are among those printed, in order, but for their times.

    Another processor rounds otherwise, so that figures agree to a tenth or to 0.05.
    """
    lines = (re.sub(r" - \d+m?s(/\w+)?", "", line) for line in printed.splitlines())
    for line in shown.splitlines():
        line = re.sub(r" - \d+m?s(/\w+)?", "", line)
        assert any(agree(line, other) for other in lines), line


def agree(line, other):
    if NUMBER.sub("#", line) != NUMBER.sub("#", other):
        return False
    shown, printed = ([float(x) for x in NUMBER.findall(text)] for text in (line, other))
    return shown == pytest.approx(printed, rel=0.1, abs=0.05)


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
