"""Reads sentences and pairs of sentences from files, and cuts pairs into training and held-out parts.

A reader checks its whole input before it returns, and raises `InputError` with the file and, where there is one, the
line. Files may end in .gz; a byte-order mark at the start is dropped. With `skip_invalid`, a reader leaves out and
counts rows with a sentence without a word, bytes that are not UTF-8 or, in a table, a wrong number of fields; `None`
says that the command has no such option.
"""

import contextlib
import csv
import dataclasses
import gzip
import json
import math
import pathlib
import re
import sys
import unicodedata
import zlib

import numpy as np

from applications.common.errors import InputError
from applications.text.rows import TextRows, ranks, taken

_MARK = b"\xef\xbb\xbf"
_GZIP, _UTF_16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
# What stands for a byte that is not UTF-8.
_BYTE = re.compile("[\udc80-\udcff]")
# Names of files whose lines are no plain text.
_RECORDS = (".json", ".jsonl", ".csv")
# Unicode categories of white space and of characters that nobody sees.
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")
# The default is 131,072 characters.
csv.field_size_limit(2**31 - 1)


def has_word(text):
    """Return whether a text has a visible character: without one it is a blank line, or an empty field.

    >>> has_word("?"), has_word(" \\t\\0 \\u200b")
    (True, False)
    """
    return any(unicodedata.category(character) not in _INVISIBLE for character in text)


def mending(skip_invalid):
    """Return the end of an error about a line: how to mend it."""
    return "mend the line" + ("" if skip_invalid is None else ", or skip such lines with --skip-invalid")


@dataclasses.dataclass
class ParallelText:
    """Pairs of sentences, one a row. A column is a list or, of a file, `TextRows`.

    Args:
        sources: The sentences that the model reads.
        targets: The sentences that the model learns to write.
        groups: Labels; a split keeps rows with the same label together. Defaults to the sources, so that all targets of
            a source are in one part.
        skipped: Number of rows that the reader left out.
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
        """Return a copy with these rows only."""
        columns = {name: column for name, column in vars(self).items() if isinstance(column, list | TextRows)}
        once = {id(column): taken(column, indices) for column in columns.values()}
        return dataclasses.replace(self, **{name: once[id(column)] for name, column in columns.items()})


def read_parallel(source_path, target_path, skip_invalid=None):
    """Return the `ParallelText` of two files: line n of one is the source of line n of the other."""
    sides = [_text_lines(path, skip_invalid) for path in (source_path, target_path)]
    valid = _ValidRows((source_path, target_path), enumerate(zip(*sides, strict=True), start=1), skip_invalid)
    try:
        columns = valid.columns(2)
    except (InputError, ValueError):
        # A line that is missing is the likelier mistake than the line where it is noticed.
        _require_as_many_lines(source_path, target_path)
        raise
    return ParallelText(*columns, skipped=valid.skipped)


def _require_as_many_lines(source_path, target_path):
    counts = []
    for path in (source_path, target_path):
        with _opened(path) as file:
            counts.append(sum(1 for _ in file))
    if counts[0] != counts[1]:
        raise InputError(
            f"{source_path} has {counts[0]} lines and {target_path} has {counts[1]}: line n of the one must be the "
            f"source of line n of the other; line {min(counts) + 1} of "
            f"{source_path if counts[0] > counts[1] else target_path} has none"
        )


def read_table(path, source_column, target_column, group_column=None, skip_invalid=None):
    """Return the `ParallelText` of two named columns of a table with a header line.

    .csv means commas and double quotes, and quoted fields may span lines; .tsv means tabs and no quoting. Blank lines
    between rows are ignored. The values of `group_column` (an article, a conversation) are the groups.
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
            if len(row) != len(header) and not skip_invalid:
                raise InputError(
                    f"{path}:{line}: {len(row)} fields, but the header has {len(header)}; {mending(skip_invalid)}"
                )
            yield line, [row[position] for position in positions] if len(row) == len(header) else None

    valid = _ValidRows([path] * len(positions), fields(), skip_invalid)
    return ParallelText(*valid.columns(len(positions)), skipped=valid.skipped)


def read_sentences(path, column="text", labelled=False, skip_invalid=None):
    """Return the sentences of a file, and the number of lines left out.

    A table, whose name ends in .csv or .tsv, has the sentences in a column; other files have one a line, with
    `labelled` after a word that is its label.
    """
    if _suffix(path) in (".csv", ".tsv"):
        table = read_table(path, column, column, skip_invalid=skip_invalid)
        return table.sources, table.skipped
    lines = enumerate(_text_lines(path, skip_invalid), start=1)
    fields = ((number, [" ".join(line.split(None, 1)[1:]) if labelled else line]) for number, line in lines)
    valid = _ValidRows([path], fields, skip_invalid)
    (texts,) = valid.columns(1)
    return texts, valid.skipped


def read_lines(path):
    """Return the lines of a file, inputs of generation; a line may be blank."""
    return list(_physical_lines(path))


def read_json(path):
    """Return the content of a JSON file."""
    content = _content(path)
    if not content.strip():
        raise InputError(f"{path}: the file is empty")
    try:
        return json.loads(content.decode())
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise InputError(f"{path}:{line}: bytes that are not UTF-8") from error
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(f"{path}:{line}: expected JSON ({error})") from error


def read_input(options, is_text=True):
    """Return the lines that `GenerateOptions` name, text or names, from a file or from standard input."""
    if options.input is not None:
        return list(_text_lines(options.input)) if is_text else read_lines(options.input)
    lines = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            lines.append((line.removeprefix(_MARK) if number == 1 else line).decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise InputError(f"standard input:{number}: the line is not UTF-8") from error
    if not lines:
        raise InputError("standard input: there is no line to read")
    return lines


def beside(lines, answers, blank=""):
    """Yield for each line with a word the next answer, for a blank line `blank`: answers stand beside their lines.

    >>> list(beside(["one", "", "two"], ["eins", "zwei"]))
    ['eins', '', 'zwei']
    """
    answers = iter(answers)
    return (next(answers) if has_word(line) else blank for line in lines)


def split_by_group(text, fraction, seed, maximum=None, option="--valid-fraction", group="source or --group-column"):
    """Cut a text in two, keeping the rows of a group together.

    Args:
        text: `ParallelText`.
        fraction: Share of the rows to hold out.
        seed: Integer; the same seed and text give the same split on every machine.
        maximum: Most rows to hold out, or `None`.
        option: The option that asks for the cut, for the error where it cannot be made.
        group: What the rows of a group share, for the same error.

    Returns:
        `(train, held_out)`, two `ParallelText` in the order of the rows; skipped rows count for `train`. Groups are
        held out in random order as long as they fit; the first one is, even if it is larger than the share.
    """
    group_of_row = ranks(text.groups)
    sizes = np.bincount(group_of_row)
    if len(sizes) < 2:
        raise InputError(
            f"{option}: cannot divide {len(text)} rows with the same {group}; name a separate file for the other part."
        )
    is_held = np.zeros(len(sizes), bool)
    room = min(fraction * len(text), math.inf if maximum is None else maximum)
    order = np.random.default_rng(seed).permutation(len(sizes))
    for index, (group, size) in enumerate(zip(order.tolist(), sizes[order].tolist(), strict=True)):
        if not index or size <= room:
            is_held[group] = True
            room -= size
    of_row = is_held[group_of_row]
    held_out = dataclasses.replace(text.rows(np.flatnonzero(of_row)), skipped=0)
    return text.rows(np.flatnonzero(~of_row)), held_out


def hold_out(text, fraction, seed, maximum=None, read="sources"):
    """Cut a text in two as `split_by_group` does, with no sentence of the side `read` in both parts, in any case."""
    rest, held = split_by_group(text, fraction, seed, maximum)
    # A group is an article or a conversation; two of them may share a sentence.
    seen = {folded(sentence) for sentence in getattr(held, read)}
    is_new = np.fromiter((folded(sentence) not in seen for sentence in getattr(rest, read)), bool, len(rest))
    rest = rest.rows(np.flatnonzero(is_new))
    if not len(rest):
        raise InputError(f"--valid-fraction: all {read} are held out too; nothing is left to train on.")
    return rest, held


def folded(sentence):
    """Return the words of a sentence in lower case: a model may read sentences with the same ones as equal."""
    return " ".join(sentence.lower().split())


@contextlib.contextmanager
def _opened(path):
    """Open a file to read, decompressed, after its byte-order mark."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            start = file.read(len(_MARK))
            if start.startswith(_GZIP):
                raise InputError(f"{path}: the file is compressed; its name must end in .gz")
            # Without a mark every other byte of English text is 0.
            if start.startswith(_UTF_16) or b"\0" in start[:2]:
                raise InputError(f"{path}: the file is UTF-16; save it as UTF-8")
            file.seek(len(_MARK) if start == _MARK else 0)
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from error


def _content(path):
    """Return the bytes of a file, decompressed, without a byte-order mark."""
    with _opened(path) as file:
        return file.read()


def _suffix(path):
    return pathlib.Path(str(path).lower().removesuffix(".gz")).suffix


def _text_lines(path, skip_invalid=None):
    """Return the `_physical_lines` of plain text; a file whose name says that its lines are records is an `InputError`:
    their quotes and braces would be words."""
    kind = _suffix(path)
    if kind in _RECORDS:
        raise InputError(f"{path}: expected plain text; write the texts into a .txt, one a line. Received: {kind}")
    return _physical_lines(path, skip_invalid)


def _physical_lines(path, skip_invalid=None):
    """Yield the lines of a file; a byte that is not UTF-8 stays as a lone surrogate where it may be skipped."""
    with _opened(path) as file:
        if not file.peek(1):
            raise InputError(f"{path}: the file is empty")
        # Only a line feed ends a line: str.splitlines would also cut at U+2028 and friends inside a sentence.
        for number, line in enumerate(file, start=1):
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1 and b"\r" in line and not file.peek(1):
                raise InputError(f"{path}: its lines end with carriage returns alone; save it with line feeds")
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                if not skip_invalid:
                    problem = f"bytes that are not UTF-8; {mending(skip_invalid)}"
                    raise InputError(f"{path}:{number}: {problem}") from error
                yield line.decode(errors="surrogateescape")


def table_rows(path, kind=None, skip_invalid=None):
    """Yield (number of the row's first line, fields) for the header and every row that is not blank.

    `kind` is ".csv" or ".tsv" where the name of the file does not say it.
    """
    lines = _physical_lines(path, skip_invalid)
    suffix = _suffix(path)
    kind = kind or suffix
    if kind not in (".csv", ".tsv") or suffix in (".json", ".jsonl"):
        raise InputError(f"{path}: a table's name must end in .csv or .tsv, or in one of them and .gz")
    if kind == ".tsv":
        yield from ((number, line.split("\t")) for number, line in enumerate(lines, start=1) if line)
        return
    # strict: an unclosed quote would otherwise swallow the rest of the file into one field.
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    while True:
        first_line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = "a carriage return outside of quotes" if "new-line" in str(error) else "broken quoting"
            raise InputError(f"{path}:{first_line}: {problem} in the row that begins here ({error})") from error
        if row:
            yield first_line, row


class _ValidRows:
    """Rows of stripped fields, without an undecodable one or one without a word.

    Args:
        paths: The file of each field.
        rows: Iterable of (number of the line, fields, or `None` for a row to be skipped).
        skip_invalid: Whether other rows are counted, in `skipped`, and not an `InputError`.
    """

    def __init__(self, paths, rows, skip_invalid):
        self.paths, self.rows, self.skip_invalid = paths, rows, skip_invalid
        self.skipped = 0

    def __iter__(self):
        for number, fields in self.rows:
            fields = None if fields is None else [field.strip() for field in fields]
            if fields is not None and all(map(has_word, fields)) and all(map(_is_utf8, fields)):
                yield fields
            elif self.skip_invalid:
                self.skipped += 1
            else:
                path = next(x for x, field in zip(self.paths, fields, strict=True) if not has_word(field))
                raise InputError(
                    f"{path}:{number}: an empty sentence or field, without a word; {mending(self.skip_invalid)}"
                )

    def columns(self, number):
        """Return as many `TextRows` as a row has fields; a file without a row is an `InputError`."""
        columns = TextRows.columns(self, number)
        _require_rows(self.paths[0], columns[0])
        return columns


def _require_rows(path, rows):
    if not len(rows):
        raise InputError(f"{path}: no usable row in the file")


def _is_utf8(text):
    return text.isascii() or not _BYTE.search(text)
