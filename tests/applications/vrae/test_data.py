"""Sentences: embedded ones, files in every form, what is cut and left out; and the modes of `generate`."""

import gzip

import numpy as np
import pytest
from application_cases import changed, prepared
from program_cases import PAIRS, VRAE_CASE, words_of
from vrae_cases import options_of

from applications.common.errors import InputError
from applications.vrae import data, embedded
from applications.vrae.application import APPLICATION

SENTENCES = list(dict.fromkeys(english for _, english in PAIRS))


def test_embedded_sentences():
    """English prose of every Python, sentences of four words at least, none twice, in three parts."""
    texts = [sentence for sentences in embedded.topics().values() for sentence in sentences]
    assert len(texts) > 1200 and len({text.lower() for text in texts}) == len(texts)
    assert all(text.endswith(".") and text[0].isupper() and 4 <= len(text.split()) <= 40 for text in texts)
    assert not any(mark in text for text in texts for mark in ("::=", ">>>", "\n", "_", "()", '"'))
    parts = data.load(APPLICATION.program.default)
    assert sorted(text for part in parts.values() for text in part.texts) == sorted(texts)
    assert [round(10 * len(parts[name]) / len(texts)) for name in ("train", "valid", "test")] == [8, 1, 1]
    # The test sentences stay those, whichever validates.
    other = data.load(changed(APPLICATION.program.default, data_seed=1))
    assert other["test"].texts == parts["test"].texts and other["valid"].texts != parts["valid"].texts


@pytest.mark.parametrize("form", ["lines", "gz", "labelled", "csv", "csv.gz"])
def test_files_in_every_form(tmp_path, form):
    """The same sentences, the quoted ones with their commas and line ends."""
    texts = [*SENTENCES[:4], 'a "quoted" one, with a comma']
    if form.startswith("csv"):
        quoted = ['"{}"'.format(text.replace('"', '""')) for text in texts]
        content = "stars,review\n" + "".join(f"5,{text}\n" for text in quoted)
    else:
        content = "".join(f"{'4 ' if form == 'labelled' else ''}{text}\n" for text in texts)
    path = tmp_path / f"sentences.{ {'lines': 'txt', 'labelled': 'txt', 'gz': 'txt.gz'}.get(form, form) }"
    path.write_bytes(gzip.compress(content.encode()) if form.endswith("gz") else content.encode())
    given = options_of(tmp_path, train_text=str(path), text_column="review", labelled=form == "labelled").text
    assert data.read(path, given).texts == texts


def test_lines_that_are_none(tmp_path):
    path = tmp_path / "lines.txt"
    for content, labelled, message in (
        (b"fine\n\nalso fine\n", False, "lines.txt:2: "),
        (b"fine\n\xff\n", False, "lines.txt:2: bytes that are not UTF-8"),
        (b"1 fine\n2\n", True, "line 2 has a label and no word"),
        (b"", False, "the file is empty"),
    ):
        path.write_bytes(content)
        given = options_of(tmp_path, train_text=str(path), labelled=labelled).text
        with pytest.raises(InputError, match=message):
            data.read(path, given)
        if content:
            found = data.read(path, changed(given, skip_invalid=True))
            assert (found.texts[0], found.skipped) == ("fine", 1)


def test_sentences_of_one_word_and_of_unknown_words(tmp_path):
    """They are sentences; what has no token is none."""
    run = prepared(APPLICATION, options_of(tmp_path))
    part = data.EncodedSentences.of(run.options, run.codec, data.Sentences(["dog", "zebra", "quagga zebra"]))
    assert [len(row) for row in part.ids] == [1, 1, 2]
    assert part.report["num_unknown"] == 3
    inputs, target = next(iter(part.batches(run.options)))
    assert np.count_nonzero(target, axis=1).tolist() == [2, 2, 3]
    assert np.count_nonzero(inputs["source"], axis=1).tolist() == [1, 1, 2]
    with pytest.raises(InputError, match="sentence 2 has no word"):
        data.EncodedSentences.of(run.options, run.codec, data.Sentences(["dog", "\x01"]))


def test_equal_sentences_stay_in_one_part(tmp_path):
    path = tmp_path / "twice.txt"
    path.write_text("".join(f"{text}\n" for text in SENTENCES * 3))
    options = options_of(tmp_path, train_text=str(path), test_text=None, test_fraction=0.2)
    parts = data.load(options)
    sets = [set(parts[name].texts) for name in ("train", "valid", "test")]
    assert sum(map(len, sets)) == len(SENTENCES) and set.union(*sets) == set(SENTENCES)
    assert sum(map(len, parts.values())) == 3 * len(SENTENCES)
    few = data.load(changed(options, max_train_sentences=5))
    assert len(few["train"]) == 5 and few["valid"].texts == parts["valid"].texts
    path.write_text("one sentence\n")
    with pytest.raises(InputError, match=r"twice.txt: too few sentences to hold some out, 1 different ones"):
        data.load(options)


def test_modes_of_generate(run_of, tmp_path):
    """New sentences of a seed without any input; what lies between each line and the next."""
    run = ("generate", "--run", run_of(VRAE_CASE).path)
    one, again, other = (VRAE_CASE.succeeds(*run, "--num", 4, "--seed", seed) for seed in (1, 1, 2))
    assert one == again != other and len(one.splitlines()) == 4
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
    train = VRAE_CASE.train(tmp_path / "run")
    for more, message in (
        ({"model": "lstm", "aggressive": 2}, "--aggressive: the model lstm has no z_enc"),
        ({"mixed_precision": "float16", "aggressive": 2}, "--aggressive goes without --mixed-precision float16"),
        ({"train_text": None}, "--test-text is given without --train-text"),
        ({"min_count": 1000}, "--min-count: no word of the sentences occurs that often"),
    ):
        VRAE_CASE.fails(message, *train, *words_of(more))
    assert not (tmp_path / "run").exists()
