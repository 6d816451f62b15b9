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
PAGES = sorted(BLOCKS.keys() - {"README.md", "the_kl_and_your_loss.md", "new_application.md"} - SLOW)


@pytest.mark.parametrize("page", slow_after([*PAGES, *sorted(SLOW)], len(PAGES)))
def test_page(page, tmp_path, monkeypatch):
    # Where what a page writes is no part of the project.
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with keras.saving.CustomObjectScope({}):
        for block in BLOCKS[page]:
            exec(compile(block, page, "exec"), names)


def logs(text):
    """The figures of the last epoch of each `fit` in a log, or in what README prints of one."""
    epochs = [line for line in text.splitlines() if " - loss: " in line]
    return [{name: float(x) for name, x in re.findall(r"(\w+): ([-+.\de]+)", line)} for line in epochs]


def test_the_first_minute_is_as_readme_prints_it(tmp_path, monkeypatch, capsys):
    """The three logs have the names that are printed, and the relations that README explains."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in BLOCKS["README.md"]:
        exec(compile(block, "README.md", "exec"), names)
    printed, found = logs(README.read_text("utf-8")), logs(capsys.readouterr().out)[1::2]
    assert [list(log) for log in found] == [list(log) for log in printed]
    assert len(found) == 3
    for log, expected in zip(found, printed, strict=True):
        assert log["accuracy"] > 0.9
        assert log["loss"] == pytest.approx(expected["loss"], rel=0.1, abs=0.1)
    assert found[2]["attention_kl"] == pytest.approx(printed[2]["attention_kl"], rel=0.1)
    assert found[2]["loss"] > 0.1 * found[2]["attention_kl"]
    assert (tmp_path / "swap.png").exists()


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
