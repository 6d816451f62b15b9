"""Tests built-in sentences, file formats, splits, and the modes of `generate`."""

import gzip

import pytest
from program_case import words_of
from program_cases import PAIRS, VRAE_CASE
from vrae_cases import APPLICATION, options_of

from applications.common.errors import InputError
from applications.vrae import data, decode, grammar

SENTENCES = list(dict.fromkeys(english for _, english in PAIRS))


def test_built_in_sentences():
    """The built-in sentences are distinct and grammatical, and are divided into three splits."""
    parts = data.read(APPLICATION.program.default)
    texts = [text for part in parts.values() for text in part.texts]
    assert len(set(texts)) == len(texts) and all(map(grammar.parse, texts))
    assert [len(parts[name]) for name in ("train", "valid", "test")] == [8000, 1000, 1000]


@pytest.mark.parametrize("form", ["txt.gz", "csv"])
def test_files_of_both_forms(tmp_path, form):
    """Both formats give the same sentences, including quotes and commas."""
    texts = [*SENTENCES[:4], 'a "quoted" one, with a comma']
    content = "".join(f"{text}\n" for text in texts)
    if form == "csv":
        quoted = ['"{}"'.format(text.replace('"', '""')) for text in texts]
        content = "stars,review\n" + "".join(f"5,{text}\n" for text in quoted)
    path = tmp_path / f"sentences.{form}"
    path.write_bytes(gzip.compress(content.encode()) if form.endswith("gz") else content.encode())
    options = options_of(tmp_path, train_text=str(path), text_column="review").text
    assert data.read_file(path, options, False).texts == texts


def test_equal_sentences_stay_in_one_split(tmp_path):
    """Sentences that differ only in case count as equal, so they stay in one split."""
    path = tmp_path / "twice.txt"
    path.write_text("".join(f"{text}\n" for text in [*SENTENCES * 2, *map(str.title, SENTENCES)]))
    options = options_of(tmp_path, train_text=str(path), test_text=None, test_fraction=0.2)
    parts = data.read(options)
    sets = [{text.lower() for text in parts[name].texts} for name in ("train", "valid", "test")]
    assert sum(map(len, sets)) == len(SENTENCES) and set.union(*sets) == set(SENTENCES)
    assert sum(map(len, parts.values())) == 3 * len(SENTENCES)
    path.write_text("one sentence\n")
    with pytest.raises(
        InputError, match=r"twice.txt: expected enough distinct sentences to hold some out. Received: 1$"
    ):
        data.read(options)


@pytest.mark.slow
def test_modes_of_generate(run_of, monkeypatch):
    """A seed reproduces new sentences, interpolation covers each pair of lines, and batches use different noise."""
    run = ("generate", "--run", run_of(VRAE_CASE).path)
    first, repeated, other = (VRAE_CASE.succeeds(*run, "--num", 4, "--seed", seed) for seed in (1, 1, 2))
    assert first == repeated != other and len(first.splitlines()) == 4
    monkeypatch.setattr(decode, "BATCH", 2)
    in_batches = VRAE_CASE.succeeds(*run, "--num", 5, "--seed", 1).splitlines()
    assert len(in_batches) == 5 and in_batches[2:4] != in_batches[:2]
    lines = "".join(f"{line}\n" for line in VRAE_CASE.lines).encode()
    between = VRAE_CASE.succeeds(*run, "--mode", "interpolate", "--num", 3, standard_input=lines).splitlines()
    rebuilt = VRAE_CASE.succeeds(*VRAE_CASE.answers_of(run_of(VRAE_CASE).path), standard_input=lines).splitlines()
    assert [row.split("\t")[::2] for row in between] == [rebuilt[:2], rebuilt[1:]]


@pytest.mark.slow
def test_invalid_calls(run_of, tmp_path):
    (tmp_path / "lines.txt").write_text("a line\n")
    run = run_of(VRAE_CASE).path
    VRAE_CASE.fails("--input: --mode new reads no input", "generate", "--run", run, "--input", tmp_path / "lines.txt")
    rebuild = VRAE_CASE.answers_of(run)
    VRAE_CASE.fails("--temperature requires --mode new, which samples words", *rebuild, "--temperature", 2)
    VRAE_CASE.fails("--num: omit this option, because --mode reconstruct decodes each line once", *rebuild, "--num", 2)
    between = ("generate", "--run", run, "--mode", "interpolate")
    VRAE_CASE.fails("--mode interpolate: expected at least two lines", *between, standard_input=b"a dog\n")
    for more, message in (
        ({"train_text": None}, "--test-text requires --train-text"),
        ({"text_column": "review"}, "--text-column requires a CSV or TSV file"),
        ({"min_count": 1000}, "--min-count: no word occurs at least 1000 times"),
    ):
        VRAE_CASE.fails(message, *VRAE_CASE.train(tmp_path / "run"), *words_of(more))
    assert not (tmp_path / "run").exists()
