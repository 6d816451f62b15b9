"""Reading pairs of sentences from files, and cutting them into training and held-out parts.

Every reader checks the whole input before it returns anything, and every complaint is an `InputError` that names the
file and, where there is one, the line. Files may end in ``.gz``; a byte-order mark at the start is dropped.
"""

import csv
import dataclasses
import gzip
import json
import pathlib
import sys
import unicodedata
import zlib

import numpy as np

from applications.common.errors import InputError

SKIP_HINT = "mend the line, or skip such lines where the command has --skip-invalid"


@dataclasses.dataclass
class ParallelText:
    """Pairs of sentences, one pair per row.

    Args:
        sources: the sentences that the model reads.
        targets: the sentences that it learns to write, as many as there are sources.
        groups: one label per row; rows with the same label never part when the text is split. Default: the source
            sentence itself, so that a source with several targets stays on one side.
        skipped: how many rows of the file were left out because they were empty or not UTF-8.
    """

    sources: list
    targets: list
    groups: list | None = None
    skipped: int = 0

    def __post_init__(self):
        if self.groups is None:
            self.groups = list(self.sources)
        if not len(self.sources) == len(self.targets) == len(self.groups):
            raise ValueError(
                "sources, targets and groups need one entry per row. "
                f"Received: {len(self.sources)}, {len(self.targets)} and {len(self.groups)} entries"
            )

    def __len__(self):
        return len(self.sources)


def read_parallel(source_path, target_path, skip_invalid=False):
    """Reads two files whose lines correspond: line n of one is the source of line n of the other.

    Args:
        source_path: file with one source sentence per line, UTF-8, plain or ``.gz``.
        target_path: file with one target sentence per line, as many lines.
        skip_invalid: leave out rows with an empty side or with bytes that are not UTF-8, and count them, instead of
            raising.

    Returns:
        A `ParallelText`.

    Raises:
        InputError: for a missing, empty, damaged or undecodable file, unequal line counts, or an empty side.
    """
    sources = _physical_lines(source_path, skip_invalid)
    targets = _physical_lines(target_path, skip_invalid)
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
    kept, skipped = _valid_rows(rows, skip_invalid)
    _require_rows(kept, source_path)
    return ParallelText([row[0] for row in kept], [row[1] for row in kept], skipped=skipped)


def read_table(path, source_column, target_column, group_column=None, skip_invalid=False):
    """Reads pairs from two named columns of a table with a header line.

    ``.csv`` means commas and double quotes, quoted fields may span lines; ``.tsv`` means tabs and no quoting at all.
    Blank lines between rows are ignored.

    Args:
        path: the table, ``.csv``, ``.tsv``, ``.csv.gz`` or ``.tsv.gz``, UTF-8.
        source_column: name of the column with the source sentences.
        target_column: name of the column with the target sentences.
        group_column: name of a column whose equal values stay together in a split (article, conversation). Default:
            rows are grouped by source sentence.
        skip_invalid: leave out rows with an empty field, a wrong number of fields or bytes that are not UTF-8, and
            count them, instead of raising.

    Returns:
        A `ParallelText`.

    Raises:
        InputError: for a missing, empty, damaged or undecodable file, a missing column, broken quoting, or a row with
            an empty field or a wrong number of fields.
    """
    rows = _table_rows(path, skip_invalid)
    header_line, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    columns = [source_column, target_column] + ([group_column] if group_column is not None else [])
    positions = [_column_position(path, header_line, header, name) for name in columns]
    fields, ragged = [], 0
    for line, row in rows:
        if len(row) == len(header):
            fields.append([((path, line), row[position]) for position in positions])
        elif skip_invalid:
            ragged += 1
        else:
            raise InputError(f"{path}:{line}: {len(row)} fields, but the header has {len(header)}; {SKIP_HINT}")
    kept, skipped = _valid_rows(fields, skip_invalid)
    _require_rows(kept, path)
    groups = None if group_column is None else [row[2] for row in kept]
    return ParallelText([row[0] for row in kept], [row[1] for row in kept], groups, skipped + ragged)


def read_sentences(path, column="text", labelled=False, skip_invalid=False):
    """Reads sentences: one a line, or the texts in a column of a table whose name ends in .csv or .tsv.

    Args:
        path: UTF-8 text or a table, plain or ``.gz``.
        column: name of the table's column.
        labelled: leave out the first word of each line, a label; in a table labels are a column of their own.
        skip_invalid: leave out lines without a word or with bytes that are not UTF-8, and count them, instead of
            raising.

    Returns:
        The list of sentences, and how many lines were left out.

    Raises:
        InputError: for a missing, empty, damaged or undecodable file, a missing column, or a line without a word.
    """
    if pathlib.Path(str(path).removesuffix(".gz")).suffix in (".csv", ".tsv"):
        table = read_table(path, column, column, skip_invalid=skip_invalid)
        rows, skipped = [[text] for text in table.sources], table.skipped
        labelled = False
    else:
        lines = enumerate(_physical_lines(path, skip_invalid), start=1)
        rows, skipped = _valid_rows([[((path, number), line)] for number, line in lines], skip_invalid)
    _require_rows(rows, path)
    texts = [row[0] for row in rows]
    if labelled:
        texts = [text.split(None, 1)[1:] for text in texts]
        texts = [text[0].strip() if text else "" for text in texts]
    there = [any(unicodedata.category(x) not in ("Cc", "Zs", "Zl", "Zp") for x in text) for text in texts]
    if not all(there) and not skip_invalid:
        without = "a label and no word" if labelled else "no word"
        raise InputError(f"{path}: sentence {there.index(False) + 1} has {without}; {SKIP_HINT}")
    kept = [text for text, has_word in zip(texts, there, strict=True) if has_word]
    _require_rows(kept, path)
    return kept, skipped + len(texts) - len(kept)


def read_lines(path):
    """Reads one sentence per line, as input to generation; an empty line is an empty sentence.

    Args:
        path: UTF-8 text, plain or ``.gz``.

    Returns:
        The list of sentences.

    Raises:
        InputError: for a missing, empty, damaged or undecodable file.
    """
    lines = list(_physical_lines(path, skip_invalid=False))
    _require_rows(lines, path)
    return lines


def read_json(path):
    """What a JSON file holds, plain or ``.gz``, UTF-8.

    Raises:
        InputError: for a missing or damaged file, bytes that are not UTF-8, and what is not JSON; with the line.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from error
    if not content.strip():
        raise InputError(f"{path}: the file is empty")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise InputError(f"{path}:{line}: bytes that are not UTF-8") from error
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(
            f"{path}:{line}: expected JSON, or a table whose name ends in .csv or .tsv ({error})"
        ) from error


def read_standard_input():
    """Reads one sentence per line from standard input, as `read_lines` does from a file.

    Raises:
        InputError: for no line, or bytes that are not UTF-8.
    """
    lines = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            lines.append(line.decode("utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise InputError(f"standard input:{number}: the line is not UTF-8") from error
    if not lines:
        raise InputError("standard input: there is no line to read")
    return lines


def read_input(options):
    """Return the lines that `GenerateOptions` name, of a file or of standard input; errors as there."""
    return read_standard_input() if options.input is None else read_lines(options.input)


def split_by_group(text, fraction, seed, maximum=None):
    """Cuts a text in two, keeping the rows of a group together.

    Args:
        text: a `ParallelText`.
        fraction: share of the rows to hold out, between 0 and 1.
        seed: integer; the same seed and text give the same split on every machine.
        maximum: the most rows to hold out. Default: no limit.

    Returns:
        `(train, held_out)`, two `ParallelText` in the order of the rows. Groups are held out in random order as long
        as they fit; at least one is, even if it alone is larger than the share.

    Raises:
        InputError: if `fraction` or `maximum` is out of range, or one of the two parts would be empty.
    """
    if not 0.0 < fraction < 1.0:
        raise InputError(f"fraction: the share to hold out must lie between 0 and 1. Received: {fraction}")
    if maximum is not None and maximum < 1:
        raise InputError(f"maximum: at least one row must be held out. Received: {maximum}")
    sizes = dict.fromkeys(sorted(text.groups), 0)
    for group in text.groups:
        sizes[group] += 1
    if len(sizes) < 2:
        raise InputError(
            f"fraction: cannot hold out a part of {len(text)} rows that form {len(sizes)} group(s); "
            "give a separate validation file, or another group column"
        )
    room = fraction * len(text) if maximum is None else min(fraction * len(text), maximum)
    groups = list(sizes)
    order = [groups[index] for index in np.random.default_rng(seed).permutation(len(groups))]
    held = {order[0]}
    room -= sizes[order[0]]
    for group in order[1:]:
        if sizes[group] <= room:
            held.add(group)
            room -= sizes[group]
    return _rows_where(text, [group not in held for group in text.groups]), _rows_where(
        text, [group in held for group in text.groups]
    )


def hold_out(text, fraction, seed, maximum=None, read="sources"):
    """Cuts a text in two as `split_by_group` does; no sentence that the model reads is in both parts, in whatever case.

    Args:
        text, fraction, seed, maximum: as there.
        read: "sources" or "targets", what the model reads.

    Returns:
        `(train, held_out)`; skipped rows count among the rows of train.

    Raises:
        InputError: as there, and if every sentence is held out.
    """
    rest, held = split_by_group(text, fraction, seed, maximum)
    # A group is an article or a conversation; two of them may share a sentence.
    seen = {folded(sentence) for sentence in getattr(held, read)}
    rest = _rows_where(rest, [folded(sentence) not in seen for sentence in getattr(rest, read)])
    if not len(rest):
        raise InputError(f"--valid-fraction: all {read} are held out too; nothing is left to train on.")
    return dataclasses.replace(rest, skipped=text.skipped), held


def folded(sentence):
    """What sentences have in common that a model may read as one: the words, in lower case."""
    return " ".join(sentence.lower().split())


def _rows_where(text, keep):
    columns = ([value for value, kept in zip(column, keep, strict=True) if kept] for column in _columns(text))
    return ParallelText(*columns)


def _columns(text):
    return text.sources, text.targets, text.groups


def _physical_lines(path, skip_invalid):
    """The lines of a file; a byte that is not UTF-8 stays in them as a lone surrogate when it may be skipped."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path}: not a whole gzip file ({error})") from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    # Only a line feed ends a line: str.splitlines would also cut at U+2028 and friends inside a sentence.
    lines = content.removesuffix(b"\n").split(b"\n")
    if lines == [b""]:
        raise InputError(f"{path}: the file is empty")
    decoded = [line.removesuffix(b"\r").decode("utf-8", errors="surrogateescape") for line in lines]
    if not skip_invalid:
        for number, line in enumerate(decoded, start=1):
            if not _is_utf8(line):
                raise InputError(f"{path}:{number}: bytes that are not UTF-8; {SKIP_HINT}")
    return decoded


def _table_rows(path, skip_invalid):
    """Yields (number of the row's first line, fields) for the header and every row that is not blank."""
    lines = _physical_lines(path, skip_invalid)
    kind = pathlib.Path(str(path).removesuffix(".gz")).suffix
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


def _column_position(path, line, header, name):
    if header.count(name) != 1:
        problem = "no column" if name not in header else "more than one column"
        raise InputError(f"{path}:{line}: {problem} named {name!r}; the columns are {', '.join(header)}")
    return header.index(name)


def _valid_rows(rows, skip_invalid):
    """Strips every field and keeps the rows without an empty or undecodable one. A field is ((file, line), text)."""
    kept, skipped = [], 0
    for row in rows:
        bad = [place for place, field in row if not field.strip() or not _is_utf8(field)]
        if not bad:
            kept.append([field.strip() for _, field in row])
        elif skip_invalid:
            skipped += 1
        else:
            path, line = bad[0]
            raise InputError(f"{path}:{line}: an empty sentence or field; {SKIP_HINT}")
    return kept, skipped


def _require_rows(rows, path):
    if not rows:
        raise InputError(f"{path}: no usable row in the file")


def _is_utf8(text):
    return not any("\udc80" <= character <= "\udcff" for character in text)
