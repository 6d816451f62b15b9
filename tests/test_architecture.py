"""The tables of ARCHITECTURE.md have every room of the two trees and who imports whom, nothing else, bottom up."""

import ast
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
TREES = ("keras_vattn", "applications")
# Whole statements, with the names in parentheses: to parse all files whole takes ten times as long.
IMPORT = re.compile(rf"^[ \t]*(?:from|import) +(?:{'|'.join(TREES)}|\.)[^(\n]*(?:\([^)]*\))?", re.M)
OUTSIDE = re.compile(r"^[ \t]*(?:from|import) +(tensorflow_probability|keras\.src)\b", re.M)
PUBLIC = ast.literal_eval(
    re.search(r"^__all__ = (\[.*?\])$", (ROOT / "keras_vattn/__init__.py").read_text("utf-8"), re.M | re.S)[1]
)


def rooms_of(tree):
    """Return the room of each Python file below a tree, but for the tree's own `__init__.py`."""
    files = sorted((ROOT / tree).rglob("*.py"))
    inside = {path: path.relative_to(ROOT).with_suffix("").parts for path in files}
    return {path: ".".join(parts[:2]) for path, parts in inside.items() if parts[1] != "__init__"}


ROOMS = {path: room for tree in TREES for path, room in rooms_of(tree).items()}


def table_rows():
    """Yield the tree and the row of each room in the tables."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    for tree, rows in re.findall(r"^\| (\w+)/ \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text, re.M):
        yield from ((tree, row) for row in rows.splitlines())


def listed():
    """Return what each room may import, in the order of the tables."""
    table = {}
    for tree, row in table_rows():
        names = re.findall(r"`([\w.]+)`", f"{row.split('|')[1]} {row.split('|')[-2]}")
        room, *others = (x if x.startswith("keras_vattn") else f"{tree}.{x}" for x in names)
        table[room] = set(others)
    return table


def imported(path, room):
    """Yield the rooms that a file imports."""
    for statement in IMPORT.findall(path.read_text("utf-8")):
        node = ast.parse(statement.strip()).body[0]
        before = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
        for name in (before + each.name for each in node.names):
            parts = name.split(".")
            is_public = len(parts) <= 3 and parts[0] == "keras_vattn" and {*parts[1:2]} <= {*PUBLIC}
            of_program = room.startswith("applications.")
            yield "keras_vattn" if of_program and is_public else ".".join(parts[:2])


def test_the_tables_have_every_room():
    assert set(listed()) == set(ROOMS.values())


def test_no_room_exceeds_its_lines():
    """A commit that needs more lines raises the number in the table, and gives the reason in its message."""
    lines = collections.Counter()
    for path, room in ROOMS.items():
        lines[room] += len(path.read_text("utf-8").splitlines())
    rows = ((tree, row.split("|")) for tree, row in table_rows())
    limits = {f"{tree}.{cells[1].strip(' `')}": int(cells[-3].replace(",", "")) for tree, cells in rows}
    assert {room: num for room, num in lines.items() if num > limits[room]} == {}


def test_the_tables_say_who_imports_whom():
    found = collections.defaultdict(set)
    for path, room in ROOMS.items():
        found[room] |= set(imported(path, room)) - {room}
    table = listed()
    assert {room: others - table[room] for room, others in found.items() if others - table[room]} == {}
    assert {room: others - found[room] for room, others in table.items() if others - found[room]} == {}


def test_a_room_imports_those_above_it():
    above = {"keras_vattn"}
    for room, others in listed().items():
        assert others <= above, room
        above.add(room)


def test_what_is_outside_and_private_has_one_door():
    doors = {}
    for path in (path for path, room in ROOMS.items() if room.startswith("keras_vattn.")):
        for name in OUTSIDE.findall(path.read_text("utf-8")):
            doors.setdefault(name, set()).add(path.name)
    assert doors == {"tensorflow_probability": {"tfp.py"}, "keras.src": {"keras_private.py"}}
