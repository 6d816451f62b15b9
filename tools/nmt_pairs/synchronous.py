"""Synchronous rules: both sides of a sentence written at once, and what is linked to what."""

import functools
import re
import typing


class _Phrase(typing.NamedTuple):
    """Words of both sides, and links between their positions."""

    source: tuple = ()
    target: tuple = ()
    sure: frozenset = frozenset()
    possible: frozenset = frozenset()


NOTHING = _Phrase()


def rule(source, target, **parts):
    """Applies a synchronous rule.

    In its two patterns ``word/1`` is a word with the mark 1 and ``{name}`` stands for the phrase of that name. Words of
    the two sides that share a mark are linked, all with all; the link is only possible if ``?`` follows the mark on
    one side. A word may have several marks: ``und/1?,2?``. A part that is a string gives words with the marks that
    follow it: ``{verb}/1``.
    """
    source_words, source_marks, source_starts = _lay_out(source, parts, "source")
    target_words, target_marks, target_starts = _lay_out(target, parts, "target")
    sure, possible = set(), set()
    for mark, i, i_sure in source_marks:
        for other, j, j_sure in target_marks:
            if mark == other:
                (sure if i_sure and j_sure else possible).add((i, j))
    for name, down in source_starts.items():
        part, right = parts[name], target_starts[name]
        sure.update((i + down, j + right) for i, j in part.sure)
        possible.update((i + down, j + right) for i, j in part.possible)
    return _Phrase(tuple(source_words), tuple(target_words), frozenset(sure), frozenset(possible - sure))


def _lay_out(pattern, parts, side):
    """The words of one side, its marks as (mark, position, sure), and the position at which each phrase begins."""
    words, marks, starts = [], [], {}
    for name, form, form_marks in _parsed(pattern):
        if name:
            starts[name] = len(words)
            words.extend(getattr(parts[name], side))
        else:
            for word in form.format_map(parts).split():
                marks.extend((mark, len(words), sure) for mark, sure in form_marks)
                words.append(word)
    return words, marks, starts


@functools.cache
def _parsed(pattern):
    fields = []
    for field in pattern.split():
        slot = re.fullmatch(r"\{(\w+)\}", field)
        form, _, marks = field.rpartition("/")
        fields.append(
            (slot[1], "", ())
            if slot
            else ("", form, tuple((mark.removesuffix("?"), not mark.endswith("?")) for mark in marks.split(",")))
        )
    return tuple(fields)


def template(sources, target, *together, **parts):
    """A kind of phrase, which is a function that draws one with a generator.

    Args:
        sources: str or tuple of str, German patterns, one of which is drawn; none that begins with an empty phrase.
        target: str, the English pattern.
        *together: functions of the generator that return a dictionary of parts. These are drawn before the pattern.
        **parts: kinds of the other parts, in the order in which they are drawn.
    """
    sources = (sources,) if isinstance(sources, str) else sources

    def draw(generator):
        drawn = {}
        for several in together:
            drawn |= several(generator)
        source = pick(generator, [x for x in sources if drawn.get(x.split()[0].strip("{}")) is not NOTHING])
        return rule(source, target, **drawn, **{name: part(generator) for name, part in parts.items()})

    return draw


def one_of(*kinds):
    """A kind that is each of several equally often."""
    return lambda generator: pick(generator, kinds)(generator)


def mixture(*kinds):
    """A kind that is one of several, each given after the share of draws up to which it is drawn."""

    def draw(generator):
        share = generator.random()
        return next(kind for limit, kind in kinds if share < limit)(generator)

    return draw


def phrases(*pairs):
    """A kind that is one of several pairs of German and English, word by word."""
    pairs = [word_by_word(*pair) for pair in pairs]
    return lambda generator: pick(generator, pairs)


def forms(names, rows):
    """A function that draws a row of words or phrases, and returns them by name, for `template`."""
    return lambda generator: dict(zip(names.split(), pick(generator, rows), strict=True))


def word_by_word(source, target):
    """Phrases word by word where both have as many words, and all with all where they do not."""
    sides = source.split(), target.split()
    if len(sides[0]) == len(sides[1]):
        links = {(i, i) for i in range(len(sides[0]))}
    else:
        links = {(i, j) for i in range(len(sides[0])) for j in range(len(sides[1]))}
    return _Phrase(tuple(sides[0]), tuple(sides[1]), frozenset(links))


def capitalised(phrase):
    source, target = ((words[0][0].upper() + words[0][1:], *words[1:]) for words in phrase[:2])
    return phrase._replace(source=source, target=target)


def pick(generator, options):
    return options[generator.integers(len(options))]
