"""Tests that the tables of ARCHITECTURE.md list the packages of both trees, their imports and their line limits."""

import ast
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
TREES = ("keras_vattn", "applications")
# Finds import statements with all their names. Parsing whole files would take ten times as long.
IMPORT = re.compile(rf"^[ \t]*(?:from|import) +(?:{'|'.join(TREES)}|\.)[^(\n]*(?:\([^)]*\))?", re.M)
OUTSIDE = re.compile(r"^[ \t]*(?:from|import) +(tensorflow_probability|keras\.src)\b", re.M)
PUBLIC = ast.literal_eval(
    re.search(r"^__all__ = (\[.*?\])$", (ROOT / "keras_vattn/__init__.py").read_text("utf-8"), re.M | re.S)[1]
)


def packages_of(tree):
    """Return the package of each Python file in a tree, without the `__init__.py` of the tree."""
    files = sorted((ROOT / tree).rglob("*.py"))
    inside = {path: path.relative_to(ROOT).with_suffix("").parts for path in files}
    return {path: ".".join(parts[:2]) for path, parts in inside.items() if parts[1] != "__init__"}


PACKAGES = {path: package for tree in TREES for path, package in packages_of(tree).items()}


def table_rows():
    """Yield the tree and the row of each package in the tables."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    for tree, rows in re.findall(r"^\| (\w+)/ \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text, re.M):
        yield from ((tree, row) for row in rows.splitlines())


def listed():
    """Return the packages that each package may import, in the order of the tables."""
    table = {}
    for tree, row in table_rows():
        names = re.findall(r"`([\w.]+)`", f"{row.split('|')[1]} {row.split('|')[-2]}")
        package, *dependencies = (x if x.startswith("keras_vattn") else f"{tree}.{x}" for x in names)
        table[package] = set(dependencies)
    return table


def imported(path, package):
    """Yield the packages that a file imports."""
    for statement in IMPORT.findall(path.read_text("utf-8")):
        node = ast.parse(statement.strip()).body[0]
        before = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
        for name in (before + each.name for each in node.names):
            parts = name.split(".")
            is_public = len(parts) <= 3 and parts[0] == "keras_vattn" and {*parts[1:2]} <= {*PUBLIC}
            is_program = package.startswith("applications.")
            yield "keras_vattn" if is_program and is_public else ".".join(parts[:2])


def test_the_tables_have_every_package():
    assert set(listed()) == set(PACKAGES.values())


def test_no_package_exceeds_its_lines():
    """To exceed a limit, a commit must raise the limit in the table and give the reason in its message."""
    lines = collections.Counter()
    for path, package in PACKAGES.items():
        lines[package] += len(path.read_text("utf-8").splitlines())
    rows = ((tree, row.split("|")) for tree, row in table_rows())
    limits = {f"{tree}.{cells[1].strip(' `')}": int(cells[-3].replace(",", "")) for tree, cells in rows}
    assert {package: num for package, num in lines.items() if num > limits[package]} == {}


def test_the_tables_list_the_imports():
    imports = collections.defaultdict(set)
    for path, package in PACKAGES.items():
        imports[package] |= set(imported(path, package)) - {package}
    table = listed()
    assert {package: names - table[package] for package, names in imports.items() if names - table[package]} == {}
    assert {package: names - imports[package] for package, names in table.items() if names - imports[package]} == {}


def test_a_package_imports_only_packages_above_it():
    above = {"keras_vattn"}
    for package, names in listed().items():
        assert names <= above, package
        above.add(package)


def test_one_module_imports_private_and_external_names():
    importers = {}
    for path in (path for path, package in PACKAGES.items() if package.startswith("keras_vattn.")):
        for name in OUTSIDE.findall(path.read_text("utf-8")):
            importers.setdefault(name, set()).add(path.name)
    assert importers == {"tensorflow_probability": {"tfp.py"}, "keras.src": {"keras_private.py"}}
