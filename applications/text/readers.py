"""Reads sentences and pairs of sentences from files, and splits pairs into training and held-out data.

A reader checks its whole input before it returns. An `InputError` names the file and, if possible, the line. Files
may end in .gz. A byte-order mark is removed. The argument `skip_invalid` has three values:
- `True`: skip and count rows with an empty sentence, invalid UTF-8 or a wrong number of fields;
- `False`: raise `InputError` for such rows;
- `None`: as `False`, but without the advice to use --skip-invalid.
"""

import csv
import dataclasses
import gzip
import io
import itertools
import json
import pathlib
import re
import reprlib
import sys
import unicodedata
import zlib

import numpy as np
from pydantic import TypeAdapter, ValidationError

from applications.common.errors import InputError
from applications.text.rows import TextRows, ranks, take_rows

# Only a line feed ends a line: sentences may contain other separators, such as U+2028. Invalid bytes become lone
# surrogates.
_TEXT = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": "\n"}
_BYTE = re.compile("[\udc80-\udcff]")
_GZIP, _UTF_16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")
# By default, csv rejects fields of more than 131,072 characters.
csv.field_size_limit(2**31 - 1)


def has_word(text):
    """Return whether a text contains a visible character. A text without visible characters is blank.

    >>> has_word("?"), has_word(" \\t\\0 \\u200b")
    (True, False)
    """
    return any(unicodedata.category(character) not in _INVISIBLE for character in text)


def repair_hint(skip_invalid):
    """Return advice on how to repair an invalid line, for the end of an error message."""
    return "fix the line" + ("" if skip_invalid is None else ", or skip such lines with --skip-invalid")


@dataclasses.dataclass
class ParallelText:
    """Pairs of sentences in columns. A column is a list or, if it was read from a file, `TextRows`.

    Args:
        sources: The sentences that the model reads.
        targets: The sentences that the model learns to write.
        groups: A label per pair. Pairs with the same label are in the same data split. Defaults to the sources, so that
            all targets of a source are in the same split.
        skipped: Number of invalid pairs that the reader skipped.
    """

    sources: list | TextRows
    targets: list | TextRows
    groups: list | TextRows | None = None
    skipped: int = 0

    def __post_init__(self):
        if self.groups is None:
            self.groups = self.sources

    def __len__(self):
        return len(self.sources)

    def rows(self, indices):
        """Return a `ParallelText` that contains only the pairs with these indices."""
        columns = {name: column for name, column in vars(self).items() if isinstance(column, list | TextRows)}
        selected = {id(column): take_rows(column, indices) for column in columns.values()}
        return dataclasses.replace(self, **{name: selected[id(column)] for name, column in columns.items()})


def read_parallel(source_path, target_path, skip_invalid=None):
    """Return a `ParallelText` from two files. Lines with the same number form a pair."""
    paths = source_path, target_path

    def pairs():
        sides = (_text_lines(path, skip_invalid) for path in paths)
        for number, pair in enumerate(itertools.zip_longest(*sides), start=1):
            if None in pair:
                shorter, longer = paths if pair[0] is None else paths[::-1]
                raise InputError(
                    f"{shorter} has {number - 1} lines, fewer than {longer}: line n of one file "
                    "and line n of the other file must form a pair"
                )
            yield number, pair

    columns, skipped = _read_columns(paths, pairs(), skip_invalid)
    return ParallelText(*columns, skipped=skipped)


def read_table(path, source_column, target_column, group_column=None, skip_invalid=None):
    """Read two columns of a table with a header line, and return a `ParallelText`.

    In a .csv, commas separate fields, and a field in double quotes may span lines. In a .tsv, tabs separate fields, and
    quotes are ordinary characters. Blank lines are ignored. `group_column`: column of the group labels, or `None`.
    """
    rows = table_rows(path, skip_invalid=skip_invalid)
    header_line, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    positions = []
    for name in (source_column, target_column, *([] if group_column is None else [group_column])):
        if header.count(name) != 1:
            problem = "more than one column" if name in header else "no column"
            raise InputError(f"{path}:{header_line}: {problem} named {name!r}; the columns are {', '.join(header)}")
        positions.append(header.index(name))

    def fields():
        for line, row in rows:
            if len(row) == len(header):
                yield line, [row[position] for position in positions]
            elif skip_invalid:
                yield line, [""] * len(positions)
            else:
                expected = f"{len(row)} fields, but the header has {len(header)}"
                raise InputError(f"{path}:{line}: {expected}; {repair_hint(skip_invalid)}")

    columns, skipped = _read_columns([path] * len(positions), fields(), skip_invalid)
    return ParallelText(*columns, skipped=skipped)


def read_sentences(path, column="text", skip_invalid=None):
    """Return the sentences in a file, and the number of skipped lines.

    If the file name ends in .csv or .tsv, the sentences are in the column `column`. Otherwise, each line is a sentence.
    """
    if _suffix(path) in (".csv", ".tsv"):
        table = read_table(path, column, column, skip_invalid=skip_invalid)
        return table.sources, table.skipped
    lines = enumerate(_text_lines(path, skip_invalid), start=1)
    (texts,), skipped = _read_columns([path], ((number, [line]) for number, line in lines), skip_invalid)
    return texts, skipped


def read_lines(path):
    """Return all lines of a text file, including blank lines."""
    return list(_file_lines(path))


def read_json(path):
    """Return the content of a JSON file."""
    content = "\n".join(_file_lines(path))
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(f"{path}:{line}: expected JSON ({error})") from error


def json_entries(path, content, name, kind, layout):
    """Return the list `content[name]` from the content of a JSON file, after validation with pydantic.

    `kind` is the type of an element, for instance a `TypedDict`. `layout` describes the expected content in the
    message of the `InputError`.
    """
    entries = content.get(name) if isinstance(content, dict) else None
    try:
        return TypeAdapter(list[kind]).validate_python(entries)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise InputError(f"{path}: expected {layout}. Received at {place}: {reprlib.repr(first['input'])}") from error


def read_input(options, is_text=True):
    """Return the lines of the file `options.input` or, if it is `None`, of standard input.
    If `is_text`, raise `InputError` for JSON or CSV files."""
    if options.input is not None:
        return list(_text_lines(options.input)) if is_text else read_lines(options.input)
    file = io.TextIOWrapper(sys.stdin.buffer, **_TEXT)
    lines = list(_checked_lines("standard input", file))
    # Without `detach`, deleting the wrapper would close standard input.
    file.detach()
    if not lines:
        raise InputError("standard input: expected at least one line")
    return lines


def aligned(lines, answers, blank=""):
    """Yield one output per input line: `blank` for a blank line, and the next answer for any other line.

    >>> list(aligned(["one", "", "two"], ["eins", "zwei"]))
    ['eins', '', 'zwei']
    """
    answers = iter(answers)
    return (next(answers) if has_word(line) else blank for line in lines)


def split_by_group(text, fraction, seed, maximum=None, option="--valid-fraction", group="source or --group-column"):
    """Split a `ParallelText` into `(train, held_out)`, without dividing a group.

    The pairs remain in order. Groups are visited in random order. A group is held out if the held-out split has space
    for it. The first group is always held out, even if it is too large. The split depends only on seed and text.

    Args:
        text: `ParallelText`.
        fraction: Fraction of the pairs to hold out.
        seed: Integer.
        maximum: Maximum number of pairs to hold out, or `None` for no limit.
        option, group: Only for the error message: the option that requests the split, and what defines a group.
    """
    group_of_row = ranks(text.groups)
    sizes = np.bincount(group_of_row)
    if len(sizes) < 2:
        raise InputError(
            f"{option}: cannot split {len(text)} rows with the same {group}; name a file for the held-out split."
        )
    is_held = np.zeros(len(sizes), bool)
    capacity = min(fraction * len(text), maximum or len(text))
    order = np.random.default_rng(seed).permutation(len(sizes))
    for index, (group, size) in enumerate(zip(order.tolist(), sizes[order].tolist(), strict=True)):
        if not index or size <= capacity:
            is_held[group] = True
            capacity -= size
    is_held_row = is_held[group_of_row]
    held_out = dataclasses.replace(text.rows(np.flatnonzero(is_held_row)), skipped=0)
    return text.rows(np.flatnonzero(~is_held_row)), held_out


def hold_out(text, fraction, seed, maximum=None, read="sources"):
    """Split a text with `split_by_group`, and remove training pairs that repeat a held-out sentence.
    `read`: the sentences to compare, "sources" or "targets". Case is ignored."""
    rest, held_out = split_by_group(text, fraction, seed, maximum)
    # The same sentence may occur in different groups.
    held_sentences = {folded(sentence) for sentence in getattr(held_out, read)}
    is_new = np.fromiter((folded(sentence) not in held_sentences for sentence in getattr(rest, read)), bool, len(rest))
    rest = rest.rows(np.flatnonzero(is_new))
    if not len(rest):
        raise InputError(f"--valid-fraction: all {read} also occur in the held-out data; no training data are left.")
    return rest, held_out


def folded(sentence):
    """Return a sentence in lower case and with single spaces, for comparisons."""
    return " ".join(sentence.lower().split())


def _suffix(path):
    return pathlib.Path(str(path).lower().removesuffix(".gz")).suffix


def _text_lines(path, skip_invalid=None):
    """Return `_file_lines` of a plain text file. Refuse JSON and CSV."""
    kind = _suffix(path)
    if kind in (".json", ".jsonl", ".csv"):
        raise InputError(f"{path}: expected plain text; write the texts to a .txt file, one per line. Received: {kind}")
    return _file_lines(path, skip_invalid)


def _file_lines(path, skip_invalid=None):
    """Yield the lines of a text file. Refuse invalid UTF-8, unless `skip_invalid` is true."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with gzip.open(path, "rt", **_TEXT) if path.suffix == ".gz" else open(path, **_TEXT) as file:
            require_text(path, file.buffer)
            yield from _checked_lines(path, file, skip_invalid)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a complete gzip file ({error})") from error


def require_text(path, file):
    """Raise `InputError` if `file` is empty, compressed or UTF-16, or if only carriage returns end its lines."""
    start = file.peek(1)
    if not start:
        raise InputError(f"{path}: the file is empty")
    if start.startswith(_GZIP):
        raise InputError(f"{path}: the file is compressed; its name must end in .gz")
    # Without a byte-order mark, one of the first two bytes of English UTF-16 is 0.
    if start.startswith(_UTF_16) or b"\0" in start[:2]:
        raise InputError(f"{path}: the file is UTF-16; save it as UTF-8")
    lines = start.strip()
    if b"\r" in lines and b"\n" not in lines:
        raise InputError(f"{path}: the lines end with carriage returns; save the file with line feeds")


def _checked_lines(place, file, skip_invalid=None):
    for number, line in enumerate(file, start=1):
        if not skip_invalid and not _is_utf8(line):
            raise InputError(f"{place}:{number}: invalid UTF-8; {repair_hint(skip_invalid)}")
        yield line.removesuffix("\n").removesuffix("\r")


def table_rows(path, kind=None, skip_invalid=None):
    """Yield (line number, fields) for the header of a table and for each row that is not blank.

    `kind` is ".csv" or ".tsv". Defaults to the kind in the file name.
    """
    lines = _file_lines(path, skip_invalid)
    suffix = _suffix(path)
    kind = kind or suffix
    if kind not in (".csv", ".tsv") or suffix in (".json", ".jsonl"):
        raise InputError(f"{path}: the name of a table must end in .csv or .tsv, optionally followed by .gz")
    # Without `strict`, an unclosed quote would turn the rest of the file into one field.
    form = {"strict": True} if kind == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    reader, first_line = csv.reader((line + "\n" for line in lines), **form), 1
    try:
        for row in reader:
            if row:
                yield first_line, row
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}:{first_line}: invalid quoting or line endings in the row that begins here ({error})"
        ) from error


def _read_columns(paths, rows, skip_invalid):
    """Return a list of columns (`TextRows`, stripped), and the number of skipped rows.
    `rows` yields (line number, fields). `paths` lists the file of each field, for error messages."""
    skipped = 0

    def valid():
        nonlocal skipped
        for number, fields in rows:
            fields = [field.strip() for field in fields]
            if all(map(has_word, fields)) and all(map(_is_utf8, fields)):
                yield fields
            elif skip_invalid:
                skipped += 1
            else:
                path = next(path for path, field in zip(paths, fields, strict=True) if not has_word(field))
                problem = "an empty sentence or field"
                raise InputError(f"{path}:{number}: {problem}; {repair_hint(skip_invalid)}")

    columns = TextRows.columns(valid(), len(paths))
    if not len(columns[0]):
        raise InputError(f"{paths[0]}: the file contains no valid row")
    return columns, skipped


def _is_utf8(text):
    return text.isascii() or not _BYTE.search(text)
