"""Sentences: built-in ones, files in every form, what is cut and left out; and the modes of `generate`."""

import gzip
import pathlib

import numpy as np
import pytest
from application_cases import changed, prepared
from program_case import words_of
from program_cases import PAIRS, VRAE_CASE
from run_files import read_history
from vrae_cases import APPLICATION, options_of

from applications.common.errors import InputError
from applications.text import python_topics
from applications.vrae import data, grammar, serve

SENTENCES = list(dict.fromkeys(english for _, english in PAIRS))


def test_built_in_sentences():
    """Sentences of the grammar, none twice, in three parts."""
    parts = data.read(APPLICATION.program.default)
    texts = [text for part in parts.values() for text in part.texts]
    assert len(set(texts)) == len(texts) and all(map(grammar.parse, texts))
    assert [len(parts[name]) for name in ("train", "valid", "test")] == [8000, 1000, 1000]


def test_sentences_of_documentation():
    """English prose, sentences of four words at least, none twice; the file is a table that `train` reads."""
    texts = [sentence for sentences in python_topics.topics().values() for sentence in sentences]
    assert len(texts) > 1200 and len({text.lower() for text in texts}) == len(texts)
    assert all(text.endswith(".") and text[0].isupper() and 4 <= len(text.split()) <= 40 for text in texts)
    assert not any(mark in text for text in texts for mark in ("::=", ">>>", "\n", "_", "()", '"'))
    path = str(pathlib.Path(python_topics.__file__).with_name("python_topics.tsv.gz"))
    named = {"train_text": path, "text_column": "sentence", "test_fraction": 0.1}
    parts = data.read(changed(APPLICATION.program.default, **named))
    assert sorted(text for part in parts.values() for text in part.texts) == sorted(texts)


@pytest.mark.parametrize("form", ["lines", "gz", "labelled", "tab", "csv", "csv.gz"])
def test_files_in_every_form(tmp_path, form):
    """The same sentences, the quoted ones with their commas and line ends."""
    texts = [*SENTENCES[:4], 'a "quoted" one, with a comma']
    if form.startswith("csv"):
        quoted = ['"{}"'.format(text.replace('"', '""')) for text in texts]
        content = "stars,review\n" + "".join(f"5,{text}\n" for text in quoted)
    else:
        label = {"labelled": "4 ", "tab": "4\t"}.get(form, "")
        content = "".join(f"{label}{text}\n" for text in texts)
    path = tmp_path / f"sentences.{ {'lines': 'txt', 'labelled': 'txt', 'tab': 'txt', 'gz': 'txt.gz'}.get(form, form) }"
    path.write_bytes(gzip.compress(content.encode()) if form.endswith("gz") else content.encode())
    given = options_of(tmp_path, train_text=str(path), text_column="review", labelled=form in ("labelled", "tab")).text
    assert data.read_file(path, given, False).texts == texts
    if form.startswith("csv"):
        # Of a run on lines with labels: the label of a table is a column of its own.
        assert data.read_file(path, changed(given, labelled=True), False).texts == texts


def test_lines_that_are_none(tmp_path):
    path = tmp_path / "lines.txt"
    for content, labelled, message in (
        (b"fine\n\nalso fine\n", False, "lines.txt:2: "),
        (b"fine\n\xff\n", False, "lines.txt:2: bytes that are not UTF-8"),
        (b"1 fine\n2\n", True, "lines.txt:2: an empty sentence or field, without a word"),
        (b"1\tfine\n2\t\n", True, "lines.txt:2: an empty sentence or field, without a word"),
        (b"fine\n\x01\n", False, "lines.txt:2: an empty sentence or field, without a word"),
        (b"", False, "the file is empty"),
    ):
        path.write_bytes(content)
        given = options_of(tmp_path, train_text=str(path), labelled=labelled).text
        with pytest.raises(InputError, match=message):
            data.read_file(path, given, skip_invalid=False)
        if content:
            found = data.read_file(path, given, skip_invalid=True)
            assert (found.texts[0], found.skipped) == ("fine", 1)


def test_sentences_of_one_word_and_of_unknown_words(tmp_path):
    """They are sentences; what has no token is none."""
    run = prepared(APPLICATION, options_of(tmp_path))
    part = data.encode(run.options, run.codec, data.Sentences(["dog", "zebra", "quagga zebra"]))
    assert [len(row) for row in part.ids] == [1, 1, 2]
    assert part.report["num_unknown"] == 3
    inputs, target = next(iter(part.batches(run.options)))
    assert np.count_nonzero(target, axis=1).tolist() == [2, 2, 3]
    assert np.count_nonzero(inputs["source"], axis=1).tolist() == [1, 1, 2]
    with pytest.raises(InputError, match="sentence 2 has no word"):
        data.encode(run.options, run.codec, data.Sentences(["dog", "\x01"]))


def test_equal_sentences_stay_in_one_part(tmp_path):
    """In whatever case."""
    path = tmp_path / "twice.txt"
    path.write_text("".join(f"{text}\n" for text in [*SENTENCES * 2, *map(str.title, SENTENCES)]))
    options = options_of(tmp_path, train_text=str(path), test_text=None, test_fraction=0.2)
    parts = data.read(options)
    sets = [{text.lower() for text in parts[name].texts} for name in ("train", "valid", "test")]
    assert sum(map(len, sets)) == len(SENTENCES) and set.union(*sets) == set(SENTENCES)
    assert sum(map(len, parts.values())) == 3 * len(SENTENCES)
    path.write_text("one sentence\n")
    with pytest.raises(InputError, match=r"twice.txt: too few sentences to hold some out, 1 different ones"):
        data.read(options)


@pytest.mark.slow
def test_modes_of_generate(run_of, monkeypatch):
    """New sentences of a seed without any input; what lies between each line and the next. All of it in batches."""
    run = ("generate", "--run", run_of(VRAE_CASE).path)
    one, again, other = (VRAE_CASE.succeeds(*run, "--num", 4, "--seed", seed) for seed in (1, 1, 2))
    assert one == again != other and len(one.splitlines()) == 4
    monkeypatch.setattr(serve, "BATCH", 2)
    in_batches = VRAE_CASE.succeeds(*run, "--num", 5, "--seed", 1).splitlines()
    assert len(in_batches) == 5 and in_batches[2:4] != in_batches[:2]
    lines = "".join(f"{line}\n" for line in VRAE_CASE.lines).encode()
    between = VRAE_CASE.succeeds(*run, "--mode", "interpolate", "--num", 3, standard_input=lines).splitlines()
    rebuilt = VRAE_CASE.succeeds(*VRAE_CASE.answers_of(run_of(VRAE_CASE).path), standard_input=lines).splitlines()
    assert [row.split("\t")[::2] for row in between] == [rebuilt[:2], rebuilt[1:]]
    VRAE_CASE.succeeds(*run, "--mode", "reconstruct", "--num-beams", 2, standard_input=lines)


def test_calls_that_cannot_be(run_of, tmp_path):
    (tmp_path / "lines.txt").write_text("a line\n")
    run = run_of(VRAE_CASE).path
    VRAE_CASE.fails("--input: new sentences need none", "generate", "--run", run, "--input", tmp_path / "lines.txt")
    VRAE_CASE.fails("--top-p", "generate", "--run", run, "--top-p", 0)
    VRAE_CASE.fails("--num-beams: new sentences are drawn", "generate", "--run", run, "--num-beams", 2)
    rebuild = VRAE_CASE.answers_of(run)
    VRAE_CASE.fails("--temperature: words are drawn for new sentences alone", *rebuild, "--temperature", 2)
    VRAE_CASE.fails("--num: a sentence is rebuilt once", *rebuild, "--num", 2)
    between = ("generate", "--run", run, "--mode", "interpolate")
    VRAE_CASE.fails("--mode interpolate goes from a line to the next", *between, standard_input=b"a dog\n")
    train, table = VRAE_CASE.train(tmp_path / "run"), tmp_path / "reviews.csv"
    table.write_text("label,text\n1,a dog\n")
    for more, message in (
        ({"train_text": None}, "--test-text is given without --train-text"),
        ({"train_text": None, "test_text": None, "labelled": True}, "--labelled is given without --train-text"),
        ({"text_column": "review"}, "train_text.txt is no CSV or TSV"),
        ({"train_text": str(table), "labelled": True}, f"--labelled: {table} is a table, whose labels are a column of"),
        ({"min_count": 1000}, "--min-count: no word of the sentences occurs that often"),
    ):
        VRAE_CASE.fails(message, *train, *words_of(more))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_half_precision_from_training_to_sentences(tmp_path):
    """Whatever a report, a summary and `generate` compute."""
    run = tmp_path / "run"
    values = {"model": "vrae_sa_aux", "mixed_precision": "bfloat16", "epochs": 1, "tensorboard": False}
    VRAE_CASE.succeeds(*VRAE_CASE.train(run, **values))
    assert all(np.isfinite(row["loss"]) for row in read_history(run))
    assert len(VRAE_CASE.succeeds("generate", "--run", run, "--num", 3).splitlines()) == 3
    VRAE_CASE.succeeds("summarize", "--run", run, "--out", tmp_path / "out")
    lines = b"a dog\nmy friend\n"
    VRAE_CASE.succeeds(*VRAE_CASE.answers_of(run), "--num-beams", 2, standard_input=lines)
    VRAE_CASE.succeeds("generate", "--run", run, "--mode", "interpolate", standard_input=lines)
