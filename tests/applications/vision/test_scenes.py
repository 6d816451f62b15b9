import collections
import functools
import itertools
import re

import numpy as np
import pytest

from applications.vision import scenes as module
from applications.vision.scenes import COLORS, QUESTION_TYPES, SHAPES, Object, Scene

CAPTION_WORDS = (
    "a above and are below between bottom column corner four has in is left of right row second the there third three "
    "top two"
)
QUESTION_WORDS = "? a above are below color directly how is left many object objects of one right shape the there what"
PLURALS = "circles squares triangles crosses stars rings"
THING = "(?:(?:{}) (?:{}))".format("|".join(COLORS), "|".join(SHAPES))


@pytest.fixture(scope="module")
def scenes():
    return module.scenes(400, seed=0)


@pytest.fixture(scope="module")
def captions(scenes):
    """Return all captions of each scene, with the cells of their words."""
    return [module.true_captions(scene) for scene in scenes]


@pytest.fixture(scope="module")
def questions(scenes):
    """Return six questions about each scene."""
    columns = module.question_columns(scenes, 6)
    return [module.Question(*row) for row in zip(*(columns[name] for name in module.Question._fields), strict=True)]


relation_columns = functools.partial(module.caption_columns, kind="relations")


def by_name(scene):
    return {f"{thing.color} {thing.shape}": thing for thing in scene.objects}


def scene_of(*objects):
    """Return a scene of objects such as ("red", "circle", row, column)."""
    return Scene(
        tuple(
            Object(color, shape, 4 * row + column, (column + 0.5) / 4, (row + 0.5) / 4, 0.1)
            for color, shape, row, column in objects
        ),
        seed=0,
        index=0,
    )


# A red circle, a blue square right of it, a red square below the blue one, and a green star in the opposite corner.
BY_HAND = scene_of(("red", "circle", 0, 0), ("blue", "square", 0, 1), ("red", "square", 1, 1), ("green", "star", 3, 3))


def test_objects_lie_in_cells_of_their_own(scenes):
    for scene in scenes:
        assert 4 <= len(scene.objects) <= 6
        cells = [thing.cell for thing in scene.objects]
        assert cells == sorted(set(cells))
        assert len(by_name(scene)) == len(scene.objects)
        for thing in scene.objects:
            x0, y0, x1, y1 = module.CELL_BOXES[thing.cell]
            assert x0 < thing.x - thing.radius < thing.x + thing.radius < x1
            assert y0 < thing.y - thing.radius < thing.y + thing.radius < y1
    things = [thing for scene in scenes for thing in scene.objects]
    for attribute, expected in (("color", COLORS), ("shape", SHAPES), ("cell", range(16))):
        counts = collections.Counter(getattr(thing, attribute) for thing in things)
        assert set(counts) == set(expected)
        # Counts are within six standard errors of equal frequencies.
        assert max(abs(count - len(things) / len(counts)) for count in counts.values()) < 6 * len(things) ** 0.5 / 2


def test_an_image_has_the_colors_of_its_objects_where_they_are(scenes):
    for scene, image in zip(scenes[:20], module.images_of(scenes[:20]).pixels, strict=True):
        assert image.shape == (64, 64, 3) and image.dtype == np.uint8
        cells = image.reshape(4, 16, 4, 16, 3).swapaxes(1, 2).reshape(16, 256, 3).astype(int)
        things = {thing.cell: thing for thing in scene.objects}
        for cell, pixels in enumerate(cells):
            if cell not in things:
                assert pixels.min() > 200 and 2 < pixels.std() < 6
                continue
            distances = {color: abs(pixels - np.array(value)).max(axis=1) for color, value in COLORS.items()}
            near = {color: int((distance < 20).sum()) for color, distance in distances.items()}
            assert near.pop(things[cell].color) > 15
            assert not any(near.values())


def test_a_scene_does_not_depend_on_the_number_of_scenes(scenes):
    few = module.scenes(3, seed=0)
    assert few == scenes[:3]
    np.testing.assert_array_equal(module.render(few[2]), module.images_of(scenes[:5]).read(2))
    for columns_of in (relation_columns, module.question_columns):
        some, more = columns_of(few, 4), columns_of(scenes[:9], 4)
        assert some["row"] == [0] * 4 + [1] * 4 + [2] * 4
        assert all(values == more[name][:12] for name, values in some.items())
    other = module.scenes(3, seed=1)
    assert all(scene.objects != another.objects for scene, another in zip(few, other, strict=True))
    assert len({module.render(scene).tobytes() for scene in [*few, *other]}) == 6


LINE = re.compile(r"the (\w+) (row|column) has a (.*)")


def line_of(match, scene):
    """Return the first two objects of the row or column that a caption names."""
    along, across = ("x", "y") if match[2] == "row" else ("y", "x")
    number = {"top": 0, "left": 0, "second": 1, "third": 2, "bottom": 3, "right": 3}[match[1]]
    line = [thing for thing in scene.objects if number < 4 * getattr(thing, across) < number + 1]
    return sorted(line, key=lambda thing: getattr(thing, along))[:2]


def is_true(text, scene):
    """Return whether a caption is true, judged by the coordinates of the objects."""
    things = by_name(scene)
    if match := re.fullmatch(f"(?:there is )?a ({THING})(?: is)? (left of|right of|above|below) a ({THING})", text):
        first, second = things[match[1]], things[match[3]]
        right, down = first.x - second.x, first.y - second.y
        along, across = {
            "left of": (-right, down),
            "right of": (right, down),
            "above": (-down, right),
            "below": (down, right),
        }[match[2]]
        return along > first.radius + second.radius and along - abs(across) > 0.15
    if match := re.fullmatch(f"a ({THING}) is between a ({THING}) and a ({THING})", text):
        points = [(things[name].x, things[name].y) for name in match.groups()]
        for (a, first), (b, second), (c, third) in (points, [point[::-1] for point in points]):
            if max(first, second, third) - min(first, second, third) < 0.05:
                return b + 0.15 < a < c - 0.15 or c + 0.15 < a < b - 0.15
    if match := re.fullmatch(f"there are (two|three|four) (\\w+)s and a ({THING})", text):
        shape = match[2].removesuffix("e") if match[2] == "crosse" else match[2]
        count = sum(thing.shape == shape for thing in scene.objects)
        return count == ["two", "three", "four"].index(match[1]) + 2 and things[match[3]].shape != shape
    if match := LINE.fullmatch(text):
        separator = " left of a " if match[2] == "row" else " above a "
        return match[3].split(separator) == [thing.shape for thing in line_of(match, scene)]
    match = re.fullmatch(f"a ({THING}) is in the (top|bottom) (left|right) corner", text)
    thing = things[match[1]]
    return (thing.y < 0.25 if match[2] == "top" else thing.y > 0.75) and (
        thing.x < 0.25 if match[3] == "left" else thing.x > 0.75
    )


def test_captions_are_true_and_their_words_have_the_cells_of_objects(scenes, captions):
    for scene, true_captions in zip(scenes, captions, strict=True):
        things = by_name(scene)
        for text, cells in true_captions.items():
            assert is_true(text, scene), text
            words = text.split()
            expected = [-1] * len(words)
            for place, pair in enumerate(itertools.pairwise(words)):
                if " ".join(pair) in things:
                    expected[place : place + 2] = [things[" ".join(pair)].cell] * 2
            if match := LINE.fullmatch(text):
                for thing, place in zip(line_of(match, scene), (5, -1), strict=False):
                    expected[place] = thing.cell
            assert list(cells) == expected, text


def test_captions_by_hand():
    related = [
        "a red circle is left of a blue square",
        "a blue square is right of a red circle",
        "a blue square is above a red square",
        "a red square is below a blue square",
        "a blue square is above a green star",
        "a green star is below a blue square",
    ]
    expected = [
        *related,
        *(f"there is {text.replace(' is ', ' ')}" for text in related),
        "there are two squares and a red circle",
        "there are two squares and a green star",
        "a red circle is in the top left corner",
        "a green star is in the bottom right corner",
        "the top row has a circle left of a square",
        "the second row has a square",
        "the bottom row has a star",
        "the left column has a circle",
        "the second column has a square above a square",
        "the right column has a star",
    ]
    true_captions = module.true_captions(BY_HAND)
    assert sorted(true_captions) == sorted(expected)
    assert true_captions["there is a blue square above a green star"] == (-1, -1, -1, 1, 1, -1, -1, 15, 15)
    assert true_captions["there are two squares and a green star"] == (-1, -1, -1, -1, -1, -1, 15, 15)
    row = scene_of(("red", "ring", 2, 0), ("blue", "ring", 2, 1), ("green", "ring", 2, 3), ("red", "star", 0, 1))
    between = [text for text in module.true_captions(row) if "between" in text]
    assert sorted(between) == [
        f"a blue ring is between a {pair} ring" for pair in ("green ring and a red", "red ring and a green")
    ]


def test_captions_of_lines(scenes, captions):
    """Captions of a scene alternate between rows and columns."""
    columns = module.caption_columns(scenes, 4, "lines")
    assert len(columns["row"]) == 4 * len(scenes)
    lines = [re.match("the \\w+ (row|column) has", text)[1] for text in columns["text"]]
    assert all(set(lines[start : start + 2]) == {"row", "column"} for start in range(0, len(lines), 4))
    for row, text, cells in zip(columns["row"], columns["text"], columns["cells"], strict=True):
        assert captions[row][text] == cells


def test_exact_features():
    """Features count objects: the red circle is one of two red objects and the only circle."""
    regions = module.regions_of([BY_HAND], ("color", "shape"))
    names = [*COLORS, *SHAPES, *(f"{count} of the {name}" for name in ("color", "shape") for count in range(1, 5))]
    assert regions.features.shape == (1, 16, len(names)) and regions.width == len(names)
    features_of_cell = {
        cell: [name for name, value in zip(names, row, strict=True) if value == 1.0]
        for cell, row in enumerate(regions.features[0])
        if row.any()
    }
    assert features_of_cell == {
        0: ["red", "circle", "2 of the color", "1 of the shape"],
        1: ["blue", "square", "1 of the color", "2 of the shape"],
        5: ["red", "square", "2 of the color", "2 of the shape"],
        15: ["green", "star", "1 of the color", "1 of the shape"],
    }
    np.testing.assert_array_equal(regions.boxes, module.CELL_BOXES)
    # The blue square is in the first row, which has two objects.
    assert module.regions_of([BY_HAND], ("row",)).features[0, 1].tolist() == [1, 0, 0, 0, 0, 1, 0, 0]


def answers(text, scene):
    """Return the right answers of a question and the cell that shows them, computed from the objects' coordinates."""
    things = scene.objects
    if match := re.fullmatch("how many (.+) are there \\?", text):
        return {str(len(chosen(match[1], things)))}, -1
    if match := re.fullmatch("is there a (\\w+) (\\w+) \\?", text):
        matches = [thing for thing in things if (thing.color, thing.shape) == match.groups()]
        return {"yes" if matches else "no"}, matches[0].cell if matches else -1
    if match := re.fullmatch(f"what (color|shape) is (?:the object )?directly (.+) the ({THING}) \\?", text):
        other = by_name(scene)[match[3]]
        right, down = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}[match[2]]
        # A directly adjacent object is a quarter of the image away, up to jitter.
        matches = [
            thing for thing in things if abs(thing.x - other.x - right / 4) + abs(thing.y - other.y - down / 4) < 0.1
        ]
    else:
        match = re.fullmatch("what (color|shape) is (?:the|one of the) (.+) \\?", text)
        matches = chosen(match[2], things)
        assert (len(matches) > 1) == ("one of" in text)
    return {getattr(thing, match[1]) for thing in matches}, matches[0].cell if len(matches) == 1 else -1


def chosen(words, things):
    """Return the objects that a phrase such as "red objects" or "circles" denotes, singular or plural."""
    if " object" in words:
        return [thing for thing in things if thing.color == words.split()[0]]
    return [thing for thing in things if words in (thing.shape, f"{thing.shape}s", f"{thing.shape}es")]


def test_questions_are_answered_as_the_image_says(scenes):
    columns = module.question_columns(scenes, 24)
    for row, *entry in zip(*columns.values(), strict=True):
        question = module.Question(*entry)
        right, cell = answers(question.text, scenes[row])
        assert len(question.votes) == 10
        assert set(question.votes) <= right, question
        assert question.cell == cell, question
        assert (len(right) > 1) == (question.question_type == "one of several")
        assert question.answer_type == {"presence": "yes/no", "number": "number"}.get(question.question_type, "other")
    assert {word for text in columns["text"] for word in text.split()} == {
        *QUESTION_WORDS.split(),
        *PLURALS.split(),
        *COLORS,
        *SHAPES,
    }


def test_opinions(scenes):
    """Votes on "few or many" are split for two objects and mostly agree for one and three."""
    columns = module.question_columns(scenes, 4, types=("opinion",))
    shares = collections.defaultdict(list)
    for row, text, votes, cell in zip(*(columns[name] for name in ("row", "text", "votes", "cell")), strict=True):
        words = re.fullmatch("are there few or many (.+) \\?", text)[1]
        shares[len(chosen(words, scenes[row].objects))].append(votes.count("many") / 10)
        assert cell == -1
    assert set(shares) == {1, 2, 3, 4} and set(shares[4]) == {1.0}
    for count, share in ((1, 1 / 6), (2, 1 / 2), (3, 5 / 6)):
        assert abs(np.mean(shares[count]) - share) < 4 * np.sqrt(share * (1 - share) / (10 * len(shares[count])))


def test_questions_about_an_attribute(scenes):
    columns = module.question_columns(scenes, 8, types=("attribute",))
    cells = set()
    for row, text, votes, cell in zip(*(columns[name] for name in ("row", "text", "votes", "cell")), strict=True):
        things = chosen(re.fullmatch("is there a (.+) \\?", text)[1], scenes[row].objects)
        assert set(votes) == {"yes" if things else "no"}
        assert cell == (things[0].cell if len(things) == 1 else -1)
        cells.add(cell)
    assert cells == {-1, *range(16)}
    assert set(columns["answer_type"]) == {"yes/no"}


def test_questions_by_hand():
    drawn = {question.text: question for question in module.questions_of(BY_HAND, np.random.default_rng(0), 35)}
    assert len(drawn) == 35
    expected = {
        "what color is the circle ?": ("color", {"red"}, 0),
        "what shape is the blue object ?": ("shape", {"square"}, 1),
        "what color is one of the squares ?": ("one of several", {"blue", "red"}, -1),
        "how many red objects are there ?": ("number", {"2"}, -1),
        "how many rings are there ?": ("number", {"0"}, -1),
        "is there a red square ?": ("presence", {"yes"}, 5),
        "is there a blue star ?": ("presence", {"no"}, -1),
        "what color is the object directly above the red square ?": ("relation", {"blue"}, 1),
        "what shape is directly left of the blue square ?": ("relation", {"circle"}, 0),
    }
    for text, (question_type, votes, cell) in expected.items():
        question = drawn[text]
        assert (question.question_type, set(question.votes), question.cell) == (question_type, votes, cell)
    # The star has no neighbour, and no question is about yellow.
    assert not any("directly" in text and "star" in text for text in drawn)
    assert not any("is there" in text and "yellow" in text for text in drawn)


def share_of(answer, questions):
    return np.mean([question.votes[0] == answer for question in questions])


def test_questions_are_balanced(questions, scenes):
    by_type = {name: [entry for entry in questions if entry.question_type == name] for name in QUESTION_TYPES}
    assert {len(entries) for entries in by_type.values()} == {len(scenes)}
    deviation = 0.5 / len(scenes) ** 0.5
    assert abs(share_of("yes", by_type["presence"]) - 0.5) < 4 * deviation
    assert max(share_of(str(number), by_type["number"]) for number in range(5)) < 0.3 + 4 * deviation
    for name in ("color", "shape"):
        shares = [share_of(answer, by_type[name]) for answer in (COLORS if name == "color" else SHAPES)]
        assert sum(shares) == pytest.approx(1.0) and max(abs(share - 1 / 6) for share in shares) < 4 * deviation
    share_of_colors = np.mean([question.text.startswith("what color") for question in by_type["relation"]])
    assert abs(share_of_colors - 0.5) < 4 * deviation
