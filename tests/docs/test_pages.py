"""Tests that the code in README and on the pages of docs/ runs and fits the site, and that their links work."""

import pathlib
import re

import keras
import pytest
from tiers import slow_after

ROOT = pathlib.Path(__file__).parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
# Pairs of a code block and the output block below it; the output is "" if the page shows none.
CODE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.M | re.S)
BLOCKS = {page.name: CODE.findall(page.read_text("utf-8")) for page in (README, *DOCS.glob("*.md"))}

# The first word of a command, or of an example in an interactive session.
COMMAND = re.compile(r"(?:python|pip|pytest|curl|echo|printf|export|PYTHONPATH=\S+|>>>|\.\.\.) ")

SLOW = {
    *("first_hour_layer.md", "first_hour_pretrained.md", "pretrained_models.md"),
    *("saving_and_exporting.md", "exports.md", "serving.md"),
}
PAGES = sorted(BLOCKS.keys() - {"the_kl_and_your_loss.md", "new_application.md"} - SLOW)


# Keras warns about each layer that it cannot quantise.
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method:UserWarning")
@pytest.mark.parametrize("page", slow_after([*PAGES, *sorted(SLOW)], len(PAGES)))
def test_page(page, tmp_path, monkeypatch, capsys):
    # Run pages outside the project, because they write files.
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with keras.saving.CustomObjectScope({}):
        for block, shown in BLOCKS[page]:
            exec(compile(block, page, "exec"), names)
            check_output(shown, capsys.readouterr().out)


NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def check_output(shown, printed):
    """Assert that the printed lines contain the shown lines in order, apart from times.

    Other processors round differently, so numbers may differ by a tenth or by 0.05.
    """
    lines = (re.sub(r" - \d+m?s(/\w+)?", "", line) for line in printed.splitlines())
    for line in shown.splitlines():
        line = re.sub(r" - \d+m?s(/\w+)?", "", line)
        assert any(agree(line, printed_line) for printed_line in lines), line


def agree(shown_line, printed_line):
    if NUMBER.sub("#", shown_line) != NUMBER.sub("#", printed_line):
        return False
    shown, printed = ([float(x) for x in NUMBER.findall(line)] for line in (shown_line, printed_line))
    return shown == pytest.approx(printed, rel=0.1, abs=0.05)


def typed_lines(text):
    """Yield the lines that a reader types: all lines of Python, shell and JSON blocks, the commands of other blocks."""
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.M | re.S):
        is_continued = False
        for line in block.splitlines():
            is_typed = bool(language or is_continued or COMMAND.match(line))
            is_continued = is_typed and line.endswith("\\")
            if is_typed:
                yield line


def test_code_fits_the_site():
    """Code lines have at most 88 columns, because longer lines would need a scroll bar on the site."""
    texts = [page.read_text("utf-8") for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))]
    # Docstrings of functions and classes are read without their indentation.
    texts += [re.sub("^    ", "", x.read_text("utf-8"), flags=re.M) for x in (ROOT / "keras_vattn").rglob("*.py")]
    lines = [line for text in texts for line in (*typed_lines(text), *re.findall(r"^(?:>>>|\.\.\.) .*", text, re.M))]
    assert len(lines) > 1500
    assert [line for line in lines if len(line) > 88] == []


def anchors(text):
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]), ids=lambda page: page.name)
def test_links_work(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            linked = page.parent / path if path else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked.read_text("utf-8")), target
