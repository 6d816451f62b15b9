"""Reads sentences and pairs of sentences from files, and cuts pairs into training and held-out parts.

A reader checks its whole input first and raises `InputError` with the file and, where there is one, the line. Files may
end in .gz; a byte-order mark at the start is dropped. With `skip_invalid`, a reader leaves out and counts rows with an
empty sentence, bytes that are not UTF-8 or, in a table, a wrong number of fields.
"""

import collections
import csv
import dataclasses
import gzip
import json
import math
import pathlib
import sys
import unicodedata
import zlib

import numpy as np

from applications.common.errors import InputError

SKIP_HINT = "mend the line, or skip such lines where the command has --skip-invalid"


@dataclasses.dataclass
class ParallelText:
    """Pairs of sentences, one a row.

    Args:
        sources: List of the sentences that the model reads.
        targets: List of the sentences that the model learns to write.
        groups: List of labels; a split keeps rows with the same label together. Defaults to the sources, so that all
            targets of a source are in one part.
        skipped: Number of rows that the reader left out.
    """

    sources: list
    targets: list
    groups: list | None = None
    skipped: int = 0

    def __post_init__(self):
        if self.groups is None:
            self.groups = list(self.sources)

    def __len__(self):
        return len(self.sources)

    def rows(self, indices):
        """Return a copy with these rows only."""
        columns = {name: column for name, column in vars(self).items() if isinstance(column, list)}
        return dataclasses.replace(self, **{name: [x[index] for index in indices] for name, x in columns.items()})


def read_parallel(source_path, target_path, skip_invalid=False):
    """Return the `ParallelText` of two files: line n of one is the source of line n of the other."""
    sources, targets = (_physical_lines(path, skip_invalid) for path in (source_path, target_path))
    if len(sources) != len(targets):
        longer = source_path if len(sources) > len(targets) else target_path
        raise InputError(
            f"{source_path} has {len(sources)} lines and {target_path} has {len(targets)}: line n of the one must be "
            f"the source of line n of the other; line {min(len(sources), len(targets)) + 1} of {longer} has none"
        )
    rows = [
        (((source_path, number), source), ((target_path, number), target))
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1)
    ]
    kept, skipped = _valid_rows(source_path, rows, skip_invalid)
    return ParallelText(*map(list, zip(*kept, strict=True)), skipped=skipped)


def read_table(path, source_column, target_column, group_column=None, skip_invalid=False):
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
    fields, ragged = [], 0
    for line, row in rows:
        if len(row) == len(header):
            fields.append([((path, line), row[position]) for position in positions])
        elif skip_invalid:
            ragged += 1
        else:
            raise InputError(f"{path}:{line}: {len(row)} fields, but the header has {len(header)}; {SKIP_HINT}")
    kept, skipped = _valid_rows(path, fields, skip_invalid)
    return ParallelText(*map(list, zip(*kept, strict=True)), skipped=skipped + ragged)


def read_sentences(path, column="text", labelled=False, skip_invalid=False):
    """Return the sentences of a file, and the number of lines left out.

    A table, whose name ends in .csv or .tsv, has the sentences in a column; other files have one a line, with
    `labelled` after a word that is its label. `skip_invalid` also leaves out sentences without a word.
    """
    if pathlib.Path(str(path).removesuffix(".gz")).suffix in (".csv", ".tsv"):
        table = read_table(path, column, column, skip_invalid=skip_invalid)
        texts, skipped, labelled = table.sources, table.skipped, False
    else:
        lines = enumerate(_physical_lines(path, skip_invalid), start=1)
        rows, skipped = _valid_rows(path, [[((path, number), line)] for number, line in lines], skip_invalid)
        texts = [text for (text,) in rows]
    if labelled:
        texts = [" ".join(text.split(None, 1)[1:]).strip() for text in texts]
    has_word = [any(unicodedata.category(x) not in ("Cc", "Zs", "Zl", "Zp") for x in text) for text in texts]
    if not all(has_word) and not skip_invalid:
        without = "a label and no word" if labelled else "no word"
        raise InputError(f"{path}: sentence {has_word.index(False) + 1} has {without}; {SKIP_HINT}")
    kept = [text for text, has in zip(texts, has_word, strict=True) if has]
    _require_rows(path, kept)
    return kept, skipped + len(texts) - len(kept)


def read_lines(path):
    """Return the lines of a file, inputs of generation; an empty line is an empty sentence."""
    return _physical_lines(path, skip_invalid=False)


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


def read_input(options):
    """Return the lines that `GenerateOptions` name, from a file or from standard input."""
    if options.input is not None:
        return read_lines(options.input)
    lines = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            lines.append(line.decode("utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise InputError(f"standard input:{number}: the line is not UTF-8") from error
    if not lines:
        raise InputError("standard input: there is no line to read")
    return lines


def split_by_group(text, fraction, seed, maximum=None):
    """Cut a text in two, keeping the rows of a group together.

    Args:
        text: `ParallelText`.
        fraction: Share of the rows to hold out.
        seed: Integer; the same seed and text give the same split on every machine.
        maximum: Most rows to hold out, or `None`.

    Returns:
        `(train, held_out)`, two `ParallelText` in the order of the rows; skipped rows count for `train`. Groups are
        held out in random order as long as they fit; the first one is, even if it is larger than the share.
    """
    sizes = collections.Counter(text.groups)
    if len(sizes) < 2:
        raise InputError(
            f"fraction: cannot hold out a part of {len(text)} rows that form {len(sizes)} group(s); "
            "give a separate validation file, or another group column"
        )
    groups, held = sorted(sizes), set()
    room = min(fraction * len(text), math.inf if maximum is None else maximum)
    for index in np.random.default_rng(seed).permutation(len(groups)):
        size = sizes[groups[index]]
        if not held or size <= room:
            held.add(groups[index])
            room -= size
    is_held = [group in held for group in text.groups]
    held_out = dataclasses.replace(text.rows(np.flatnonzero(is_held)), skipped=0)
    return text.rows(np.flatnonzero(np.logical_not(is_held))), held_out


def hold_out(text, fraction, seed, maximum=None, read="sources"):
    """Cut a text in two as `split_by_group` does, with no sentence of the side `read` in both parts, in any case."""
    rest, held = split_by_group(text, fraction, seed, maximum)
    # A group is an article or a conversation; two of them may share a sentence.
    seen = {folded(sentence) for sentence in getattr(held, read)}
    rest = rest.rows([row for row, sentence in enumerate(getattr(rest, read)) if folded(sentence) not in seen])
    if not len(rest):
        raise InputError(f"--valid-fraction: all {read} are held out too; nothing is left to train on.")
    return rest, held


def folded(sentence):
    """Return the words of a sentence in lower case: a model may read sentences with the same ones as equal."""
    return " ".join(sentence.lower().split())


def _content(path):
    """Return the bytes of a file, decompressed, without a byte-order mark."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            return file.read().removeprefix(b"\xef\xbb\xbf")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from error


def _physical_lines(path, skip_invalid):
    """Return the lines of a file; a byte that is not UTF-8 stays as a lone surrogate where it may be skipped."""
    # Only a line feed ends a line: str.splitlines would also cut at U+2028 and friends inside a sentence.
    lines = _content(path).removesuffix(b"\n").split(b"\n")
    if lines == [b""]:
        raise InputError(f"{path}: the file is empty")
    decoded = [line.removesuffix(b"\r").decode("utf-8", errors="surrogateescape") for line in lines]
    for number, line in enumerate(decoded, start=1):
        if not skip_invalid and not _is_utf8(line):
            raise InputError(f"{path}:{number}: bytes that are not UTF-8; {SKIP_HINT}")
    return decoded


def table_rows(path, kind=None, skip_invalid=False):
    """Yield (number of the row's first line, fields) for the header and every row that is not blank.

    `kind` is ".csv" or ".tsv" where the name of the file does not say it.
    """
    lines = _physical_lines(path, skip_invalid)
    kind = kind or pathlib.Path(str(path).removesuffix(".gz")).suffix
    if kind == ".tsv":
        yield from ((number, line.split("\t")) for number, line in enumerate(lines, start=1) if line)
        return
    if kind != ".csv":
        raise InputError(f"{path}: a table's name must end in .csv or .tsv, or in one of them and .gz")
    # strict: an unclosed quote would otherwise swallow the rest of the file into one field.
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    while True:
        first_line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}:{first_line}: broken quoting in the row that begins here ({error})") from error
        if row:
            yield first_line, row


def _valid_rows(path, rows, skip_invalid):
    """Strip every field, and keep rows without an empty or undecodable one. A field is ((file, line), text)."""
    kept, skipped = [], 0
    for row in rows:
        bad = [place for place, field in row if not field.strip() or not _is_utf8(field)]
        if not bad:
            kept.append([field.strip() for _, field in row])
        elif skip_invalid:
            skipped += 1
        else:
            raise InputError(f"{bad[0][0]}:{bad[0][1]}: an empty sentence or field; {SKIP_HINT}")
    _require_rows(path, kept)
    return kept, skipped


def _require_rows(path, rows):
    if not rows:
        raise InputError(f"{path}: no usable row in the file")


def _is_utf8(text):
    return not any("\udc80" <= character <= "\udcff" for character in text)
