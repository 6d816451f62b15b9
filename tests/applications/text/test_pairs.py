"""Tests reading and encoding of pairs of sentences, samples, and lines of a user."""

import dataclasses
import gzip
import itertools

import numpy as np
import pytest

from applications.common.errors import InputError
from applications.common.option_values import check
from applications.common.options import GenerateOptions
from applications.common.shown import random_rows
from applications.text import pairs
from applications.text.batching import padded
from applications.text.options import EvaluatePairsOptions, PairOptions
from applications.text.readers import ParallelText
from applications.text.text import END, START, UNKNOWN, TextEncoder, Tokenizer, Vocabulary

TEXT = ParallelText(["a b", "b c a"], ["x y z", "x q"], skipped=2)


@dataclasses.dataclass
class Codec:
    source: TextEncoder
    target: TextEncoder


CODEC = Codec(*(TextEncoder(Tokenizer(), Vocabulary(words.split())) for words in ("a b c", "x y z")))


@pytest.fixture
def files(tmp_path):
    """Return the paths of two files of pairs, one of them compressed, and of a table of the same pairs."""
    (tmp_path / "source.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in TEXT.sources).encode()))
    (tmp_path / "target").write_text("".join(f"{line}\n" for line in TEXT.targets))
    rows = zip(TEXT.targets, TEXT.sources, ("one", "two"))
    (tmp_path / "table.tsv").write_text("en\tde\tarticle\n" + "".join("\t".join(row) + "\n" for row in rows))
    return {name: str(tmp_path / name) for name in ("source.gz", "target", "table.tsv")}


def test_a_part_is_two_files_or_a_table_or_nothing(files):
    columns = {"source_column": "de", "target_column": "en", "group_column": "article"}
    options = PairOptions(
        train_table=files["table.tsv"], valid_source=files["source.gz"], valid_target=files["target"], **columns
    )
    check(options)
    train, valid = pairs.read_part(options, "train"), pairs.read_part(options, "valid")
    assert (train.sources, train.targets) == (valid.sources, valid.targets) == (TEXT.sources, TEXT.targets)
    assert train.groups == ["one", "two"]
    assert pairs.read_part(options, "test") is None and options.has_training_pairs
    assert not PairOptions().has_training_pairs


@pytest.mark.parametrize(
    "names, message",
    [
        ({"train_source": "target"}, "--train-source and --train-target belong together; one of them is missing"),
        ({"test_target": "target"}, "--test-source and --test-target belong together"),
        (
            {"train_source": "target", "train_target": "target", "train_table": "table.tsv"},
            "--train-table and --train-source cannot be used together",
        ),
        ({"valid_table": "table.tsv"}, "--valid-table needs training data"),
        ({"train_table": "none.tsv"}, "--train-table: no such file"),
    ],
)
def test_files_that_do_not_belong_together(files, names, message):
    with pytest.raises(InputError, match=message):
        check(PairOptions(**{option: files.get(name, name) for option, name in names.items()}))


def test_files_of_evaluate(files, tmp_path):
    (tmp_path / "config.yaml").touch()
    check(EvaluatePairsOptions(str(tmp_path), source=files["source.gz"], target=files["target"]))
    with pytest.raises(InputError, match="--source and --target belong together"):
        check(EvaluatePairsOptions(str(tmp_path), source=files["source.gz"]))
    with pytest.raises(InputError, match="--table and --source cannot be used together"):
        check(EvaluatePairsOptions(str(tmp_path), table=files["table.tsv"], source=files["source.gz"]))


def test_ids_and_their_report():
    encoded = pairs.EncodedPairs.encode(CODEC, TEXT, max_source_length=2, max_target_length=9)
    assert [row.tolist() for row in encoded.sources] == [[4, 5], [5, 6]]
    assert [row.tolist() for row in encoded.targets] == [[4, 5, 6], [4, UNKNOWN]]
    assert encoded.report == {
        "pairs": 2,
        "skipped": 2,
        "source_num_truncated": 1,
        "source_num_unknown": 0,
        "source_num_tokens": 4,
        "target_num_truncated": 0,
        "target_num_unknown": 1,
        "target_num_tokens": 5,
    }
    assert encoded.pairs is TEXT


def test_batches_have_few_shapes():
    generator = np.random.default_rng(0)
    sides = [[generator.integers(4, 9, n) for n in generator.integers(1, most, 300)] for most in (30, 20)]
    encoded = pairs.EncodedPairs(None, *sides, {})
    assert encoded.num_batches(16) == 19
    batches = list(encoded.batches(16, seed=0, first_epoch=0).take(3 * 19))
    shapes = {(*inputs["source"].shape, *target.shape) for inputs, target in batches}
    # Batches have seven bucket shapes. The last batch of an epoch is smaller and has the longest pairs.
    assert len(shapes) == 8 and sorted(shape[0] for shape in shapes) == [300 % 16] + 7 * [16]
    for inputs, target in batches:
        assert (inputs["target_input"].numpy()[:, 0] == START).all()
        assert (np.sum(target.numpy() == END, axis=1) == 1).all()


def test_training_goes_on_from_an_epoch_and_validation_keeps_its_order():
    sides = [[np.full(1 + row % 5, 4 + row) for row in range(20)] for _ in range(2)]
    encoded = pairs.EncodedPairs(None, *sides, {})

    def rows(dataset, count):
        return [inputs["source"].numpy()[:, 0].tolist() for inputs, _ in dataset.take(count)]

    uninterrupted = rows(encoded.batches(8, 3, first_epoch=0), 9)
    assert (
        rows(encoded.batches(8, 3, first_epoch=1), 6) == uninterrupted[3:] and uninterrupted[:3] != uninterrupted[3:6]
    )
    assert rows(encoded.batches(8, 4, first_epoch=0), 9) != uninterrupted
    once = encoded.batches(8, 3)
    assert len(once) == 3 and sorted(itertools.chain(*rows(once, 9))) == [4 + row for row in range(20)]
    assert rows(once, 9) == rows(encoded.batches(8, 5), 9)
    assert encoded.num_batches(8) == 3


def test_padded_rows():
    np.testing.assert_array_equal(padded([[5], [6, 7, 8], []]), [[5, 0, 0], [6, 7, 8], [0, 0, 0]])
    assert padded([[], []]).shape == (2, 1) and padded([[1]]).dtype == np.int32


def test_lines_of_a_user(tmp_path, capsys):
    """Truncated lines and unknown tokens are reported in one message. Without them, nothing is printed."""
    path = tmp_path / "lines"
    path.write_text("a b\n\nq b c\n")
    options = GenerateOptions("", input=str(path))
    lines, ids = pairs.read_inputs(options, CODEC.source, 2)
    assert lines == ["a b", "", "q b c"] and [row.tolist() for row in ids] == [[4, 5], [UNKNOWN, 5]]
    message = "1 lines are truncated to 2 tokens, 1 of 4 tokens are unknown\n"
    assert capsys.readouterr() == ("", message)
    path.write_text("a b\n")
    pairs.read_inputs(options, CODEC.source, 2)
    assert capsys.readouterr() == ("", "")


def test_samples_are_for_reading(tmp_path):
    samples = [[("source", f"s{index}"), ("MAP", f"m{index}")] for index in range(401)]
    first = pairs.write_samples(tmp_path / "samples.txt", samples)
    assert first == [
        line for index in random_rows(401, 5) for line in (f"source      s{index}", f"MAP         m{index}", "")
    ]
    text = (tmp_path / "samples.txt").read_text()
    assert text.count("source") == 200 and "\n".join(first[:3]) in text
    assert text.startswith("source      s") and text.endswith("\n\n")


def test_a_sample_of_several_lines_takes_one(tmp_path):
    first = pairs.write_samples(
        tmp_path / "samples.txt", [[("source", "Bad service.\n\nWon't go\tback. "), ("MAP", "")]]
    )
    assert first == ["source      Bad service. Won't go back.", "MAP         ", ""]
