"""Renders scenes with known captions, questions and regions: built-in data that need no download.

A scene is a grid of 4 x 4 cells. Four to six cells contain one object each, with random position and size in the cell.
An object has a colour and a shape. No two objects of a scene share both, so "the red circle" is unique. A scene has at
most four colours and four shapes. At least one colour or shape occurs repeatedly. Captions and answers are true.
Relations are unambiguous: an object is "left of" another only if they are further apart in columns than in rows. Every
scene has questions of every type, including yes/no questions with both answers.

Cells are numbered row by row, like the regions of a pixel extractor with a 4 x 4 grid; `CELL_BOXES` are their boxes.
The image, captions and questions of scene i depend on i and the seed, but not on the number of scenes.
"""

import collections
import dataclasses
import functools
import itertools
import typing

import numpy as np

from applications.vision.images import Images
from applications.vision.regions import MemoryRegions

GRID = 4
CELL_BOXES = np.array([(x, y, x + 1, y + 1) for y in range(GRID) for x in range(GRID)], np.float32) / np.float32(GRID)
COLORS = {
    "red": (214, 32, 40),
    "green": (32, 150, 58),
    "blue": (30, 84, 216),
    "yellow": (242, 196, 8),
    "purple": (150, 44, 168),
    "black": (28, 28, 30),
}
SHAPES = ("circle", "square", "triangle", "cross", "star", "ring")
QUESTION_TYPES = ("color", "shape", "presence", "number", "relation", "one of several")
NUM_VOTES = 10

_TIPS = [(np.sin(angle), -np.cos(angle)) for angle in 2 * np.pi / 5 * np.arange(5)]
# Each function returns whether points in the square [-1, 1] x [-1, 1] are inside a shape; x points right, y down.
_INSIDE = {
    "circle": lambda x, y: x**2 + y**2 <= 1.0,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 0.86,
    "triangle": lambda x, y: (2.0 * abs(x) <= y + 1.0) & (y <= 0.9),
    "cross": lambda x, y: np.minimum(abs(x), abs(y)) <= 0.3,
    # A point is inside a five-pointed star if it is on the outer side of at most one of the star's five lines.
    "star": lambda x, y: sum((x * right + y * down > 0.309).astype(int) for right, down in _TIPS) <= 1,
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.8) <= 0.2,
}
_PLURALS = {shape: f"{shape}s" for shape in SHAPES} | {"cross": "crosses"}
_SAMPLES = 4  # Average the colours of this many points per side of a pixel, to avoid aliasing.
_NUM_KINDS = 4
_ANSWER_TYPES = {"presence": "yes/no", "attribute": "yes/no", "number": "number"}
# Number of objects: how many of six people answer "many".
_OPINIONS = {1: 1, 2: 3, 3: 5, 4: 6}
_NUMBERS = {2: "two", 3: "three", 4: "four"}
_NEIGHBOURS = {"left of": (0, -1), "right of": (0, 1), "above": (-1, 0), "below": (1, 0)}
_ROWS, _COLUMNS = ("top", "second", "third", "bottom"), ("left", "second", "third", "right")
_CORNERS = {0: "top left", 3: "top right", 12: "bottom left", 15: "bottom right"}
# Numbers of a scene's random generators.
_OBJECTS, _PIXELS, _CAPTIONS, _QUESTIONS = 1, 2, 3, 4


@dataclasses.dataclass(frozen=True)
class Object:
    """An object of a scene. `cell` is row * 4 + column. The centre (x, y) and `radius`, half the side of the bounding
    square, are fractions of the image's side."""

    color: str
    shape: str
    cell: int
    x: float
    y: float
    radius: float

    @property
    def row(self):
        return self.cell // GRID

    @property
    def column(self):
        return self.cell % GRID


@dataclasses.dataclass(frozen=True)
class Scene:
    """A random scene, generated from `seed` and `index`. `objects` is a tuple of `Object`s, sorted by `cell`."""

    objects: tuple
    seed: int
    index: int


class Caption(typing.NamedTuple):
    """A true statement about a scene: its text, and a cell for each word.

    Words for one object ("red circle", "circle") have the cell of the object. All other words have -1.
    """

    text: str
    cells: tuple


class Question(typing.NamedTuple):
    """A question and the answers of ten people.

    The ten answers are equal, except for two types of questions. For "one of several" ("what color is one of the
    circles ?"), each person picks a random right answer. For "opinion" ("are there few or many circles ?"), people
    disagree. A calibrated model should be uncertain about these two types. `answer_type` is "yes/no", "number" or
    "other". If one object decides the answer, `cell` is the cell of this object. Otherwise, `cell` is -1.
    """

    text: str
    votes: list
    answer_type: str
    question_type: str
    cell: int


@functools.lru_cache(1)
def scenes(count, seed=0):
    """Return a tuple of `count` random scenes."""
    return tuple(_scene(seed, index) for index in range(count))


def render(scene, size=64):
    """Return the image of a `Scene`, uint8 (size, size, 3). `size` must be a multiple of 4."""
    generator = _generator(scene.seed, scene.index, _PIXELS)
    image = np.full((size, size, 3), generator.uniform(226.0, 244.0), np.float32)
    side = size // GRID
    points = (np.arange(side * _SAMPLES, dtype=np.float32) + 0.5) / (side * _SAMPLES)
    for thing in scene.objects:
        x = ((points + thing.column) / GRID - thing.x) / thing.radius
        y = ((points + thing.row) / GRID - thing.y)[:, None] / thing.radius
        inside = _INSIDE[thing.shape](x, y) & (np.maximum(abs(x), abs(y)) <= 1.0)
        share = inside.reshape(side, _SAMPLES, side, _SAMPLES).mean(axis=(1, 3), dtype=np.float32)[:, :, None]
        cell = image[thing.row * side : (thing.row + 1) * side, thing.column * side : (thing.column + 1) * side]
        cell += share * (np.array(COLORS[thing.color], np.float32) - cell)
    image += 4.0 * generator.standard_normal(image.shape, np.float32)
    return np.clip(image.round(), 0, 255).astype(np.uint8)


def images_of(scenes, size=64):
    """Return the `Images` of scenes. Their ids are "0", "1", ..."""
    pixels = np.stack([render(scene, size) for scene in scenes])
    return Images("scenes", [str(row) for row in range(len(scenes))], pixels=pixels)


def regions_of(scenes, attributes):
    """Return exact features of scenes as `MemoryRegions`. The features of an empty cell are zeros.

    For each attribute ("color", "shape", "row", "column"), a cell has two one-hot vectors. One encodes the value of the
    cell's object. The other encodes the number of objects with this value.
    """
    values = {"color": COLORS, "shape": SHAPES, "row": range(GRID), "column": range(GRID)}
    values = {name: values[name] for name in attributes}
    columns = [(name, value) for name in values for value in values[name]]
    columns += [(name, "count", count) for name in values for count in range(1, _NUM_KINDS + 1)]
    column_of = {key: column for column, key in enumerate(columns)}
    features = np.zeros((len(scenes), GRID**2, len(columns)), np.float32)
    for row, scene in enumerate(scenes):
        for name in values:
            counts = collections.Counter(getattr(thing, name) for thing in scene.objects)
            for thing in scene.objects:
                value = getattr(thing, name)
                features[row, thing.cell, [column_of[name, value], column_of[name, "count", counts[value]]]] = 1.0
    ids, num_regions = [str(row) for row in range(len(scenes))], np.full(len(scenes), GRID**2, np.int32)
    return MemoryRegions("scenes", ids, num_regions, len(columns), features, CELL_BOXES)


def captions_of(scene, generator, count, kind):
    """Return `count` random, distinct `Caption`s of a scene. The templates of the `kind` alternate. A scene has at
    least 4 captions of the kind "lines", and at least 12 captions of the kind "relations"."""
    templates = {}
    for template, caption in _STATEMENTS[kind](scene):
        templates.setdefault(template, []).append(caption)
    shuffled = [_shuffled(generator, captions) for captions in templates.values()]
    return list(itertools.islice(_round_robin(generator, shuffled), count))


def questions_of(scene, generator, count, types=QUESTION_TYPES):
    """Return `count` random, distinct `Question`s about a scene.

    All types are equally frequent, as are "yes" and "no". Other answers are as balanced as the scene allows. A scene
    has at least 24 questions of the default types. A model that does not see the scene scores at most 28% on the
    default types: 50% on "presence", 30% on "number", 35% on "one of several", and 17% on each other type. "attribute"
    and "opinion" are not default types. On these two types, such a model scores at most 50% and 90%.
    """
    inquiries = {}
    for question in _inquiries(scene):
        question_type, _, answers, _ = question
        if question_type in types:
            inquiries.setdefault(question_type, {}).setdefault(tuple(answers), []).append(question)
    balanced = [
        list(_round_robin(generator, [_shuffled(generator, questions) for questions in answers.values()]))
        for answers in inquiries.values()
    ]
    questions = []
    for question_type, text, answers, cell in itertools.islice(_round_robin(generator, balanced), count):
        votes = [answers[vote] for vote in generator.integers(len(answers), size=NUM_VOTES)]
        questions.append(Question(text, votes, _ANSWER_TYPES.get(question_type, "other"), question_type, cell))
    return questions


def caption_columns(scenes, count, kind):
    """Return `count` captions per scene as a dictionary of lists: "row" (the scene) and the fields of `Caption`."""
    return _columns(scenes, functools.partial(captions_of, kind=kind), _CAPTIONS, count, Caption._fields)


def question_columns(scenes, count, types=QUESTION_TYPES):
    """Return `count` questions per scene as a dictionary of lists: "row" (the scene) and the fields of `Question`."""
    return _columns(scenes, functools.partial(questions_of, types=types), _QUESTIONS, count, Question._fields)


def are_cells(codec):
    """Return whether the regions of a `RegionCodec` are the cells of a rendered scene."""
    if codec.max_regions != len(CELL_BOXES):
        return False
    boxes = CELL_BOXES if codec.extractor is None else codec.extractor.boxes
    return boxes.shape == CELL_BOXES.shape and np.allclose(boxes, CELL_BOXES)


def true_captions(scene):
    """Return all true captions of a scene: a dictionary that maps the text to the cells of a `Caption`."""
    return dict(caption for statements in _STATEMENTS.values() for _, caption in statements(scene))


def _generator(seed, index, purpose):
    return np.random.default_rng([seed, index, purpose])


def _scene(seed, index):
    generator = _generator(seed, index, _OBJECTS)
    while True:
        number = generator.integers(4, 7)
        colors, shapes = (generator.permutation(list(names))[:_NUM_KINDS].tolist() for names in (COLORS, SHAPES))
        kinds = generator.choice(_NUM_KINDS**2, number, replace=False)
        cells = np.sort(generator.choice(GRID**2, number, replace=False))
        # In units of a cell.
        radii = generator.uniform(0.36, 0.44, number)
        right, down = generator.uniform(-1.0, 1.0, (2, number)) * (0.45 - radii)
        places = np.stack([cells % GRID + 0.5 + right, cells // GRID + 0.5 + down, radii], axis=1) / GRID
        objects = [
            Object(colors[kind // _NUM_KINDS], shapes[kind % _NUM_KINDS], cell, *place)
            for kind, cell, place in zip(kinds.tolist(), cells.tolist(), places.tolist(), strict=True)
        ]
        scene = Scene(tuple(objects), seed, index)
        inquiries = {(question_type, answers == ["no"]) for question_type, _, answers, _ in _inquiries(scene)}
        if len(inquiries) == len(QUESTION_TYPES) + 4:
            return scene


def _lines(scene):
    """Yield (template, caption) for each row and column with objects."""
    for line, names, relation in (("row", _ROWS, "left of a"), ("column", _COLUMNS, "above a")):
        for number, name in enumerate(names):
            shapes = [(thing.shape, thing.cell) for thing in scene.objects if getattr(thing, line) == number]
            if shapes:
                second = [part for shape in shapes[1:2] for part in (relation, shape)]
                yield line, _caption(f"the {name} {line} has a", shapes[0], *second)


def _relations(scene):
    """Yield (template, caption) for relations between objects, numbers of objects, and corners."""
    for first, second in itertools.permutations(scene.objects, 2):
        relation = _relation(first, second)
        if relation is not None:
            yield "related", _caption("a", first, "is", relation, "a", second)
            yield "there is", _caption("there is a", first, relation, "a", second)
    for first, second, third in itertools.permutations(scene.objects, 3):
        if _is_between(first, second, third):
            yield "between", _caption("a", first, "is between a", second, "and a", third)
    for shape, things in _objects_by(scene, "shape", SHAPES).items():
        for other in scene.objects:
            if len(things) > 1 and other.shape != shape:
                yield "counted", _caption("there are", _NUMBERS[len(things)], _PLURALS[shape], "and a", other)
    for thing in scene.objects:
        if thing.cell in _CORNERS:
            yield "corner", _caption("a", thing, "is in the", _CORNERS[thing.cell], "corner")


_STATEMENTS = {"lines": _lines, "relations": _relations}


def _inquiries(scene):
    """Yield (question type, text, answers, cell). If no single object decides the answer, `cell` is -1."""
    for shape, things in _objects_by(scene, "shape", SHAPES).items():
        yield from _questions_about(things, "color", shape, _PLURALS[shape])
    for color, things in _objects_by(scene, "color", COLORS).items():
        yield from _questions_about(things, "shape", f"{color} object", f"{color} objects")
    cells = {(thing.color, thing.shape): thing.cell for thing in scene.objects}
    # If a colour or shape were missing in the scene, the colour or shape alone would tell the answer "no".
    for color, shape in sorted(itertools.product(*map(set, zip(*cells, strict=True)))):
        cell = cells.get((color, shape), -1)
        yield "presence", f"is there a {color} {shape} ?", ["no" if cell < 0 else "yes"], cell
    for thing, other in itertools.permutations(scene.objects, 2):
        for relation, (down, right) in _NEIGHBOURS.items():
            if (thing.row, thing.column) == (other.row + down, other.column + right):
                place = f"directly {relation} the {other.color} {other.shape} ?"
                yield "relation", f"what color is the object {place}", [thing.color], thing.cell
                yield "relation", f"what shape is {place}", [thing.shape], thing.cell


def _questions_about(things, attribute, singular, plural):
    answers = [getattr(thing, attribute) for thing in things]
    yield "number", f"how many {plural} are there ?", [str(len(things))], -1
    cell = things[0].cell if len(things) == 1 else -1
    yield "attribute", f"is there a {singular} ?", ["yes" if things else "no"], cell
    if things:
        people = _OPINIONS[len(things)]
        yield "opinion", f"are there few or many {plural} ?", ["many"] * people + ["few"] * (6 - people), -1
    if len(things) == 1:
        yield attribute, f"what {attribute} is the {singular} ?", answers, cell
    elif things:
        yield "one of several", f"what {attribute} is one of the {plural} ?", answers, -1


def _objects_by(scene, attribute, values):
    return {value: [thing for thing in scene.objects if getattr(thing, attribute) == value] for value in values}


def _relation(first, second):
    """Return the relation of the first object to the second, or `None` if they are on a diagonal."""
    down, right = first.row - second.row, first.column - second.column
    if abs(down) == abs(right):
        return None
    if abs(down) > abs(right):
        return "below" if down > 0 else "above"
    return "right of" if right > 0 else "left of"


def _is_between(first, second, third):
    rows, columns = ({getattr(thing, name) for thing in (first, second, third)} for name in ("row", "column"))
    low, high = sorted((second.cell, third.cell))
    return 1 in (len(rows), len(columns)) and low < first.cell < high


def _caption(*parts):
    """Join parts into a `Caption`. A part is an `Object`, a pair (words, cell), or words that describe no cell."""
    words, cells = [], []
    for part in parts:
        if isinstance(part, Object):
            part = f"{part.color} {part.shape}", part.cell
        text, cell = part if isinstance(part, tuple) else (part, -1)
        words += text.split()
        cells += [cell] * len(text.split())
    return Caption(" ".join(words), tuple(cells))


def _shuffled(generator, items):
    return [items[index] for index in generator.permutation(len(items))]


def _round_robin(generator, groups):
    """Yield one item from each group in turn. The order of the groups is random."""
    for row in itertools.zip_longest(*_shuffled(generator, groups)):
        yield from (item for item in row if item is not None)


def _columns(scenes, draw, purpose, count, names):
    entries = [
        (row, *entry)
        for row, scene in enumerate(scenes)
        for entry in draw(scene, _generator(scene.seed, scene.index, purpose), count)
    ]
    return dict(zip(("row", *names), map(list, zip(*entries, strict=True)), strict=True))
