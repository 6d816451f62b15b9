import gzip
import types

import pytest
from files import fails, write

from applications.text import readers


def test_parallel_lines_plain_and_gzip(tmp_path):
    source = write(tmp_path / "a.txt.gz", "\ufeffone two \r\nthr\u2028ee\nfour\n")
    target = write(tmp_path / "b.txt", "eins\nzwei\ndrei")
    text = readers.read_parallel(source, target)
    assert text.sources == ["one two", "thr\u2028ee", "four"]
    assert text.targets == ["eins", "zwei", "drei"]
    assert text.groups == text.sources
    assert (len(text), text.skipped) == (3, 0)


def test_parallel_names_both_line_counts(tmp_path):
    source, target = write(tmp_path / "a", "x\ny\n"), write(tmp_path / "b", "x\n")
    fails(lambda: readers.read_parallel(source, target), f"{target} has 1 lines, fewer than {source}: ")
    fails(lambda: readers.read_parallel(target, source, skip_invalid=True), f"{target} has 1 lines")


def test_missing_empty_and_damaged_files(tmp_path):
    good = write(tmp_path / "good", "x\n")
    fails(lambda: readers.read_lines(tmp_path / "none"), tmp_path / "none", "no such file")
    fails(lambda: readers.read_lines(tmp_path), "no such file")
    fails(lambda: readers.read_parallel(good, write(tmp_path / "void", "")), "void: the file is empty")
    for name, content in (("cut.gz", gzip.compress(b"abc\n" * 999)[:-9]), ("plain.gz", b"abc")):
        (tmp_path / name).write_bytes(content)
        fails(lambda name=name: readers.read_lines(tmp_path / name), name, "not a complete gzip file")


def test_records_are_rejected_as_text(tmp_path):
    """Files of records are rejected as plain text, because their quotes and braces would become words."""
    text = write(tmp_path / "a.txt", "good\n")
    for name in ("a.json", "a.jsonl.gz", "A.JSONL", "a.csv"):
        records = write(tmp_path / name, '{"text": "good"}\n')
        options = types.SimpleNamespace(input=records)
        fails(lambda options=options: readers.read_input(options), f"{records}: expected plain text", "to a .txt file")
        fails(lambda path=records: readers.read_parallel(text, path), f"{records}: expected plain text")
        if not name.endswith(".csv"):
            fails(lambda path=records: list(readers.table_rows(path, ".tsv")), "must end in .csv or .tsv")
            fails(lambda path=records: readers.read_sentences(path), f"{records}: expected plain text")


def test_bad_lines_are_named_or_counted(tmp_path):
    source = write(tmp_path / "a", b"x\nb\xff\n \ny\nz\n")
    target = write(tmp_path / "b", b"1\n2\n3\n\n5\n")
    fails(lambda: readers.read_parallel(source, target), f"{source}:2:", "invalid UTF-8; fix the line")
    fails(lambda: readers.read_parallel(source, target, skip_invalid=False), "fix the line, or skip", "--skip-invalid")
    text = readers.read_parallel(source, target, skip_invalid=True)
    assert (text.sources, text.targets, text.skipped) == (["x", "z"], ["1", "5"], 3)
    good = write(tmp_path / "c", "1\n2\n3\n4\n5\n")
    fails(lambda: readers.read_parallel(good, target), f"{target}:4:", "empty")
    fails(lambda: readers.read_lines(source), f"{source}:2:", "invalid UTF-8")
    assert readers.read_lines(write(tmp_path / "d", "x\n\ny\n")) == ["x", "", "y"]


def test_a_sentence_has_a_visible_character(tmp_path):
    """Pairs, tables and sentences with only invisible characters raise an error that names the line."""
    blank = ["", " ", "\0", "\x01\t", "\u200b", "\u00ad", "\u2028\ufeff"]
    assert not any(map(readers.has_word, blank)) and all(
        map(readers.has_word, ["?", "a", "\u200bé", "\u0301", "<unk>"])
    )
    good = write(tmp_path / "good", "1\n2\n3\n")
    for text in blank:
        lines = write(tmp_path / "lines", f"x\n{text}\nz\n")
        table = write(tmp_path / "t.csv", f'text,n\nx,1\n"{text}",2\nz,3\n')
        for call, place in (
            (lambda skip, lines=lines: readers.read_parallel(good, lines, skip).targets, f"{lines}:2: "),
            (lambda skip, lines=lines: readers.read_sentences(lines, skip_invalid=skip)[0], f"{lines}:2: "),
            (lambda skip, table=table: readers.read_table(table, "n", "text", skip_invalid=skip).targets, "t.csv:3: "),
        ):
            fails(lambda call=call: call(None), place, "an empty sentence or field; fix the line")
            assert call(True) == ["x", "z"]
    assert list(readers.aligned(["a", *blank, "b"], ["A", "B"], None)) == ["A", *[None] * len(blank), "B"]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"x\ry\r", "the lines end with carriage returns; save the file with line feeds"),
        *(("x\ny\n".encode(f"utf-16{kind}"), "the file is UTF-16; save it as UTF-8") for kind in ("", "-le", "-be")),
        (gzip.compress(b"x\n", mtime=0), "the file is compressed; its name must end in .gz"),
    ],
)
def test_files_that_are_not_lines_of_utf8(tmp_path, content, cause):
    for path in (write(tmp_path / "a.txt", content), write(tmp_path / "b.txt.gz", content)):
        fails(lambda path=path: readers.read_lines(path), f"{path}: {cause}")
        fails(lambda path=path: list(readers.table_rows(path, ".csv", True)), f"{path}: {cause}")


def test_a_carriage_return_outside_of_quotes(tmp_path):
    mixed = write(tmp_path / "mixed.csv", "a,b\n1,2\r3,4\r")
    fails(lambda: readers.read_table(mixed, "a", "b"), f"{mixed}:2: invalid quoting")


def test_a_cell_of_any_length(tmp_path):
    table = write(tmp_path / "t.csv", f'a,b\n"{"word " * 40_000}",1\n')
    assert len(readers.read_table(table, "a", "b").sources[0]) == 199_999


def test_csv_quoting_and_columns(tmp_path):
    table = write(tmp_path / "t.csv.gz", 'question,answer,page\n"a, ""b""\nc?", d ,1\n\nwho ?,she,2\n')
    text = readers.read_table(table, "answer", "question", "page")
    assert text.sources == ["d", "she"]
    assert text.targets == ['a, "b"\nc?', "who ?"]
    assert text.groups == ["1", "2"]
    fails(lambda: readers.read_table(table, "line", "question"), ":1:", "'line'", "question, answer, page")
    twice = write(tmp_path / "twice.csv", "a,a\n1,2\n")
    fails(lambda: readers.read_table(twice, "a", "a"), "more than one column named 'a'")
    fails(lambda: readers.read_table(write(tmp_path / "t.xls", "a\n"), "a", "a"), "t.xls", ".csv or .tsv")


def test_csv_line_numbers_are_those_of_the_file(tmp_path):
    # The first row spans lines 2 and 3, and line 4 is blank, so the bad row begins on line 5.
    table = write(tmp_path / "t.csv", 'q,a\n"x\ny",1\n\nz,3,4\n,2\nw,5\n')
    fails(lambda: readers.read_table(table, "q", "a"), "t.csv:5:", "3 fields", "header has 2")
    text = readers.read_table(table, "q", "a", skip_invalid=True)
    assert (text.sources, text.skipped) == (["x\ny", "w"], 2)
    empty = write(tmp_path / "e.csv", 'q,a\n"x\ny",1\n\n,2\n')
    fails(lambda: readers.read_table(empty, "q", "a"), "e.csv:5:", "empty")
    open_quote = write(tmp_path / "o.csv", 'q,a\nx,1\n"y,2\nz,3\n')
    fails(lambda: readers.read_table(open_quote, "q", "a", skip_invalid=True), "o.csv:3:", "quoting")
    headless = write(tmp_path / "h.csv", "q,a\n")
    fails(lambda: readers.read_table(headless, "q", "a"), "contains no valid row")


def test_tsv_has_no_quoting(tmp_path):
    table = write(tmp_path / "t.tsv", 'sentence\tquestion\nthe "51st" state\t"what\nan "open\tx\n')
    text = readers.read_table(table, "sentence", "question")
    assert text.sources == ['the "51st" state', 'an "open']
    assert text.targets == ['"what', "x"]


def articles(num_groups=20, rows_each=5):
    rows = [
        (f"s{group}-{row}", f"t{group}-{row}", f"g{group}") for group in range(num_groups) for row in range(rows_each)
    ]
    return readers.ParallelText(*map(list, zip(*rows, strict=True)))


def test_split_keeps_groups_together():
    text = articles()
    train, held_out = readers.split_by_group(text, 0.2, seed=3)
    assert not set(train.groups) & set(held_out.groups)
    assert (len(train), len(held_out)) == (80, 20)
    assert sorted(train.sources + held_out.sources) == sorted(text.sources)
    assert all(source[1:] == target[1:] for source, target in zip(train.sources, train.targets, strict=True))
    assert train.sources == [source for source in text.sources if source in set(train.sources)]


def test_split_depends_on_the_seed_only():
    text, shuffled = articles(), articles()
    for column in (shuffled.sources, shuffled.targets, shuffled.groups):
        column.reverse()
    held_out_groups = [set(readers.split_by_group(part, 0.2, seed=3)[1].groups) for part in (text, text, shuffled)]
    assert held_out_groups[0] == held_out_groups[1] == held_out_groups[2]
    assert held_out_groups[0] != set(readers.split_by_group(text, 0.2, seed=4)[1].groups)


def test_split_limits():
    text = articles()
    assert len(readers.split_by_group(text, 0.5, seed=0, maximum=12)[1]) == 10
    assert len(readers.split_by_group(text, 0.001, seed=0)[1]) == 5
    fails(lambda: readers.split_by_group(articles(1), 0.5, seed=0), "--valid-fraction: ", "5 rows with the same source")
    fails(lambda: readers.split_by_group(articles(1), 0.5, 0, option="--x", group="image"), "--x: ", "the same image; ")
