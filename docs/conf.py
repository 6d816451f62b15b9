"""Configuration of the site.

Run `python -m sphinx -W -c docs . build/site` in the project's folder. It needs neither TensorFlow nor a network.
"""

import ast
import base64
import functools
import json
import pathlib
import re
import shutil
import sys
import textwrap

from astroid.manager import AstroidManager
from docutils import nodes
from sphinx.addnodes import pending_xref

ROOT = pathlib.Path(__file__).parents[1]
LIBRARY = ROOT / "keras_vattn"

project = "keras_vattn"
author = "The keras_vattn authors"
release = version = re.search(r'__version__ = "(.*)"', (LIBRARY / "__init__.py").read_text("utf-8"))[1]

# Pages keep their places in the repository, so links work on GitHub and on the site.
root_doc = "README"
include_patterns = ["*.md", "docs/**", "notebooks/*.ipynb", "api/**"]
extensions = [
    "myst_nb",
    "autoapi.extension",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
]

nb_execution_mode = "off"  # the committed outputs are shown; the tests run the notebooks
myst_heading_anchors = 4
default_role = "literal"  # single backticks mark code in docstrings, as in Markdown


class OtherPackages(set):
    """Contains the modules of other packages. astroid does not read them, because no page documents their objects."""

    def __contains__(self, name):
        package = name.partition(".")[0]
        return package != LIBRARY.name and package not in sys.stdlib_module_names


AstroidManager.brain["module_denylist"] = OtherPackages()
autoapi_dirs = [str(LIBRARY)]
autoapi_root = "api"
autoapi_options = ["members", "imported-members", "inherited-members"]
autoapi_own_page_level = "class"
autoapi_python_class_content = "class"
autoapi_add_toctree_entry = False
napoleon_custom_sections = [("Call arguments", "params_style")]

html_theme = "furo"
html_title = f"keras_vattn {version}"
html_css_files = ["site.css"]
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_show_copyright = False
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Formulas in docstrings are AsciiMath, which is readable in `help()` too.
mathjax3_config = {"loader": {"load": ["input/asciimath"]}, "asciimath": {"delimiters": [["§", "§"]]}}
MATHJAX = {"tex-chtml.js", "input/asciimath.js"}


@functools.cache
def public_names(module):
    """Return `__all__` of a module of the library, without importing the module."""
    path = LIBRARY / module
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))
    lists = [x.value for x in tree.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "__all__"]
    return set(ast.literal_eval(lists[0])) if lists else set()


PUBLIC = public_names("")
MODULES = {name for name in PUBLIC if (LIBRARY / name).is_dir() or (LIBRARY / f"{name}.py").exists()}


def only_public(app, what, name, obj, skip, options):
    """Skip a name unless it is public at the top level, or only in a public module, so each name has one page."""
    _, *path = name.split(".")
    if what in ("method", "property"):
        return None
    if what in ("package", "module"):
        return bool(path) and (len(path) > 1 or path[0] not in PUBLIC or public_names(path[0]) <= PUBLIC)
    if len(path) == 1:
        return path[0] not in PUBLIC
    in_module = len(path) == 2 and path[0] in MODULES
    return (path[1] in PUBLIC or path[1] not in public_names(path[0])) if in_module else None


def in_restructured_text(app, what, name, obj, options, lines):
    """Convert Keras's Markdown docstrings for Napoleon, which reads their sections; MathJax shows `Formula:`."""
    text = re.sub(r"(?ms)^```\n(.*?)^```$", lambda code: textwrap.indent(code[1], "    "), "\n".join(lines))
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith("Formula:\n"):
            formulas = [row.strip() for row in block.splitlines()[1:]]
            blocks += [f".. math::\n    :no-wrap:\n\n    §{formula}§" for formula in formulas]
        elif block.startswith("Call arguments:\n") and not re.match(r".*\n    \w+: ", block):
            blocks.append(block.replace("\n    ", " "))
        elif block.startswith("|"):
            blocks.append("::\n\n" + textwrap.indent(block, "    "))
        elif block.startswith("    ") and blocks[-1].endswith(":"):
            blocks[-1] += ":"
            blocks.append(block)
        elif ">>> " in block:
            blocks.append(block)
        else:
            blocks.append(re.sub(r"(`[^`]*`)|([*|])", lambda match: match[1] or f"\\{match[2]}", block))
    lines[:] = "\n\n".join(blocks).split("\n")


CONTENTS = {
    "First hour": "first_hour_layer first_hour_pretrained first_hour_translation",
    "Guides": (
        "api reproduction the_kl_and_your_loss which_kl uncertainty pretrained_models swap_a_softmax serving "
        "saving_and_exporting exports faster_training long_sequences several_machines your_own_alignment "
        "your_own_decoder"
    ),
    "Programs": (
        "applications/ved applications/nmt applications/vqa applications/captioning applications/vrae "
        "applications/graphs applications/finetuning run_folder new_application"
    ),
    "Figures": (
        "experiments/uncertainty_digits experiments/uncertainty_easy_vqa experiments/uncertainty_sst2 "
        "experiments/uncertainty_multi30k experiments/which_recipe"
    ),
    "Reference": "notebooks glossary versions /api/keras_vattn/index /ARCHITECTURE /CONTRIBUTING /CHANGELOG",
}


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CARD = (
    r'<a class="card" href="../notebooks/\2.html"><img src="../_static/\2.png" alt=""><b>\1</b><span>\3</span></a>' "\n"
)


def site_only(app, docname, source):
    """Add the table of contents to the first page, and a picture of each notebook to the list of notebooks."""
    if docname == root_doc:
        for caption, pages in CONTENTS.items():
            pages = "\n".join(page if page[0] == "/" else f"/docs/{page}" for page in pages.split())
            source[0] += f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{pages}\n```\n"
    elif docname == "docs/notebooks":
        pages = "\n".join(f"/notebooks/{path.stem}" for path in NOTEBOOKS)
        source[0] = re.sub(r"(?ms)^- \[(.*?)\]\(../notebooks/(\w+)\.ipynb\): (.*?)(?=^- |\Z)", CARD, source[0])
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def link_names(app, doctree):
    """Link a name such as `keras_vattn.Attention` to its page, and the names of the first column of docs/api.md."""
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().partition("(")[0]
        cell = literal.parent.parent
        if app.env.docname == "docs/api" and isinstance(cell, nodes.entry) and cell.parent.index(cell) == 0:
            name = f"keras_vattn.{name}"
        is_linked = isinstance(literal.parent, (nodes.reference, nodes.title))
        if re.fullmatch(r"keras_vattn(\.\w+)+", name) and not is_linked:
            link = pending_xref(refdomain="py", reftype="obj", reftarget=name, refdoc=app.env.docname)
            literal.replace_self(link)
            link += literal


def finish(app, exception):
    """Write index.html and a picture of each notebook; delete the files of MathJax that no page uses."""
    if exception is None and app.builder.name == "html":
        for path in NOTEBOOKS:
            cells = json.loads(path.read_text("utf-8"))["cells"]
            data = (output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))
            picture = next((figures["image/png"] for figures in data if "image/png" in figures), "")
            (app.outdir / "_static" / f"{path.stem}.png").write_bytes(base64.b64decode(picture))
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")
        mathjax = app.outdir / "_static" / "mathjax"
        for path in mathjax.rglob("*"):
            if path.is_file() and path.relative_to(mathjax).as_posix() not in MATHJAX and path.suffix != ".woff":
                path.unlink()


def setup(app):
    app.connect("autoapi-skip-member", only_public)
    app.connect("autodoc-process-docstring", in_restructured_text, priority=100)
    app.connect("source-read", site_only)
    app.connect("doctree-read", link_names)
    app.connect("build-finished", finish)
