"""Draw tokens of any language in figures: make tokens readable, estimate their width, and find fonts."""

import functools
import unicodedata
import warnings

_LONGEST_TOKEN = 24
_VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥"}


def label_axis(axis, tokens, size, **options):
    positions = range(len(tokens))
    axis.set_ticks(positions, tokens, **options)
    for label, token in zip(axis.get_ticklabels(), tokens, strict=True):
        label.update({"fontsize": size, "parse_math": False, "fontfamily": _families(token)})


def write(method, *arguments, **options):
    """Write text with a matplotlib method, in fonts that contain the characters. Do not parse $formulas$."""
    *position, text = arguments
    text = readable(text, longest=None, spaces=False)
    return method(*position, text, parse_math=False, fontfamily=_families(text), **options)


def readable(token, longest=_LONGEST_TOKEN, spaces=True):
    """Return `visible(token)`, with code points such as [4E00] for characters without an installed font."""
    return "".join(
        character if character.isspace() or _font_with(character) else f"[{ord(character):04X}]"
        for character in visible(token, longest, spaces)
    )


def visible(token, longest=_LONGEST_TOKEN, spaces=True):
    """Return a token with visible white space, cut to `longest` characters."""
    text = unicodedata.normalize("NFC", str(token))
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    return "".join(_VISIBLE.get(character, character) for character in text) if spaces else text


def text_width(text):
    """Return the width of `text`, measured in narrow characters."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in str(text)
    )


def _families(text):
    families = ["DejaVu Sans"]
    for character in text:
        family = _font_with(character)
        if family and family not in families:
            families.append(family)
    return families


@functools.cache
def _font_with(character):
    """Return the family of an installed font that contains the character, or `None`."""
    from matplotlib import font_manager

    entries = font_manager.fontManager.ttflist
    plain = [entry for entry in entries if (entry.weight, entry.style) in ((400, "normal"), ("normal", "normal"))]
    preference = {"DejaVu Sans": 0}
    for entry in sorted(plain, key=lambda entry: (preference.get(entry.name, 1), "Sans" not in entry.name, entry.name)):
        # In these fonts, a character may look like another character or a box.
        if entry.name.startswith(("Last Resort", "STIX", "cm")):
            continue
        if ord(character) in _characters(entry.fname):
            return entry.name
    return None


@functools.cache
def _characters(path):
    from matplotlib import font_manager

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
