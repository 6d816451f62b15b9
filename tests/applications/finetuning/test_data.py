"""Tests tables of texts in every format, invalid tables, splits and batches."""

import dataclasses
import gzip
import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
from finetuning_cases import options_of

from applications.common.errors import InputError
from applications.finetuning import data, embedded

LAYOUTS = {
    "cola": (
        "gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tThem rode.\n",
        ["The sailors rode.", "Them rode."],
        None,
        ["1", "0"],
    ),
    "sst2": ('sentence\tlabel\na film \t1\nno " film\t0\n', ["a film", 'no " film'], None, ["1", "0"]),
    "mrpc": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tone\ttwo\n0\t7\t8\tthree\tfour\n",
        ["one", "three"],
        ["two", "four"],
        ["1", "0"],
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel\n0\twho?\tme\tentailment\n1\twhy?\tno\tnot_entailment\n",
        ["who?", "why?"],
        ["me", "no"],
        ["entailment", "not_entailment"],
    ),
}


@pytest.mark.parametrize("task", list(LAYOUTS))
def test_layouts_of_glue(task, tmp_path):
    text, firsts, seconds, labels = LAYOUTS[task]
    path = tmp_path / "train.tsv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    examples = data.read_examples(str(path), options_of(tmp_path, task=task).texts)
    assert (examples.firsts, examples.seconds, examples.labels) == (firsts, seconds, labels)


def test_scores_with_and_without_a_header(tmp_path):
    text_options = options_of(tmp_path, task="sts").texts
    (tmp_path / "plain.csv").write_text(
        'A man, dancing.,"A\n""man"".",5.0\nOne.,Two.,.5\n'.replace("A man, d", '"A man, d').replace("g.,", 'g.",', 1)
    )
    plain = data.read_examples(str(tmp_path / "plain.csv"), text_options)
    assert plain.firsts == ["A man, dancing.", "One."] and plain.labels == [5.0, 0.5]
    assert plain.seconds == ['A "man".', "Two."]
    (tmp_path / "headed.tsv").write_text("index\tsentence1\tsentence2\tscore\n0\tOne.\tTwo.\t3.25\n")
    headed = data.read_examples(str(tmp_path / "headed.tsv"), text_options)
    assert (headed.firsts, headed.seconds, headed.labels) == (["One."], ["Two."], [3.25])


def test_custom_columns(tmp_path):
    (tmp_path / "mine.csv").write_text("id,said,reply,kind\n1,hello,bye,x\n2,no,yes,y\n")
    text_options = options_of(tmp_path, text_column="said", pair_column="reply", label_column="kind").texts
    examples = data.read_examples(str(tmp_path / "mine.csv"), text_options)
    assert (examples.firsts, examples.seconds, examples.labels) == (["hello", "no"], ["bye", "yes"], ["x", "y"])


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (
            "sst2",
            "text\tlabel\na\t1\n",
            "train.tsv:1: expected a header with the column sentence. Received: text, label",
        ),
        ("sst2", "sentence\tlabel\na\t1\nb\n", "train.tsv:3: expected at least 2 columns. Received: 1"),
        ("sst2", "sentence\tlabel\na\t\n", "train.tsv:2: expected a label"),
        ("sst2", "sentence\tlabel\n \t1\n", "train.tsv:2: expected a text with visible"),
        ("sst2", "sentence\tlabel\n\u200b\t1\n", "train.tsv:2: expected a text with visible"),
        (
            "sst2",
            "sentence\tsentence\tlabel\na\tb\t1\n",
            "train.tsv:1: expected one column sentence. Received: sentence, sentence, label",
        ),
        ("sst2", "sentence\tlabel\n", "expected examples. Received: none"),
        ("sst2", "sentence\tlabel\na\t1\nb\t1\n", "expected at least 2 labels. Received: only 1"),
        (
            "cola",
            "source\tjudgement\tmark\ttext\ngj04\t1\t\tThe sailors rode.\n",
            "train.tsv:1: expected one of the labels 0, 1. Received: 'judgement'",
        ),
        ("cola", "gj04\t1\n", "train.tsv:1: expected at least 4 columns. Received: 2"),
        ("sts", "a\tb\tmuch\n", "train.tsv:1: expected a score. Received: 'much'"),
        ("sts", "a\tb\tnan\n", "train.tsv:1: expected a score. Received: 'nan'"),
        ("sst2", "sentence\tlabel\na\t1\nb\tc\t1\n", "train.tsv:3: expected 2 columns, as in the header"),
        ("csv", "text,label\na,1\nb, and c,0\n", "train.csv:3: expected 2 columns, as in the header"),
    ],
)
def test_invalid_tables(task, text, message, tmp_path):
    # The extension in the name of a folder is ignored.
    path = tmp_path / "tables.csv" / ("train.csv" if task == "csv" else "train.tsv")
    path.parent.mkdir()
    path.write_text(text)
    values = {"task": "classes"} if task == "csv" else {"task": task}
    options = options_of(tmp_path, train=str(path), test=None, valid_fraction=0.5, **values)
    with pytest.raises(InputError) as error:
        data.read(options)
    assert message in str(error.value)


def test_an_unknown_label_in_validation(tmp_path):
    for name, labels in (("train", "ab"), ("valid", "ac")):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"so {label}\t{label}\n" for label in labels))
    files = {name: str(tmp_path / f"{name}.tsv") for name in ("train", "valid")}
    with pytest.raises(InputError, match=r"--valid: expected a label from the training data: a, b\. Received: c"):
        data.read(options_of(tmp_path, **files, test=None))


def test_held_out_examples(tmp_path):
    parts = data.read(options_of(tmp_path, valid_fraction=0.25))
    assert [len(parts[name]) for name in ("train", "valid", "test")] == [27, 9, 6]
    assert not set(parts["train"].firsts) & set(parts["valid"].firsts)
    again = data.read(options_of(tmp_path, valid_fraction=0.25, seed=5))
    assert again["train"].firsts == parts["train"].firsts


def test_training_has_an_example_of_every_class(tmp_path):
    """A class with one example stays in the training split. With scores, any example may be held out."""
    path, labels = tmp_path / "train.tsv", [*"aaabb", *"cdefghij"]
    path.write_text("text\tlabel\n" + "".join(f"text {row}\t{label}\n" for row, label in enumerate(labels)))
    parts = data.read(options_of(tmp_path, train=str(path), test=None, valid_fraction=0.5))
    assert set(parts["train"].labels) == set(labels) and len(parts["valid"]) == 3
    assert sorted(parts["train"].firsts + parts["valid"].firsts) == sorted(f"text {row}" for row in range(13))
    path.write_text("text\tlabel\nfirst\ta\nsecond\tb\n")
    with pytest.raises(InputError, match=r"expected more than 2 examples, .*--valid"):
        data.read(options_of(tmp_path, train=str(path), test=None))
    path.write_text("text\tscore\n" + "".join(f"text {row}\t{row}\n" for row in range(10)))
    parts = data.read(options_of(tmp_path, task="score", train=str(path), test=None, valid_fraction=0.5))
    assert [len(part) for part in parts.values()] == [5, 5]


@pytest.mark.slow
def test_embedded_sentences():
    """Every sentence is in one split. Pretraining excludes validation and test sentences."""
    parts = data.embedded_parts()
    assert [set(part.labels) for part in parts.values()] == [set(embedded.TOPICS)] * 3 and len(parts["train"]) > 1000
    texts = {name: {text.lower() for text in part.firsts} for name, part in parts.items()}
    assert len(set().union(*texts.values())) == sum(map(len, parts.values()))
    read = {text.lower() for text in embedded.pretraining_sentences()}
    assert len(read) > 5000 and not read & (texts["valid"] | texts["test"])
    words = {name: [set(re.findall("[a-z_]+", text)) for text in part] for name, part in texts.items()}
    for held_out, training in itertools.product(words["valid"] + words["test"], words["train"]):
        assert len(held_out & training) < 0.75 * len(held_out | training), (held_out, training)


def test_batches(tmp_path):
    """A batch is as long as its longest example requires. A smaller last batch is as long as all examples require."""
    options = options_of(tmp_path, batch_size=3)
    ids = tf.ragged.constant([list(range(1, 2 + n)) for n in (3, 9, 5, 4, 2)])
    part = data.Encoded(None, ids.with_row_splits_dtype("int64"), np.array([3, 4, 3, 2, 3]), np.arange(5), {})
    batches = list(part.batches(options))
    assert [tuple(inputs["token_ids"].shape) for inputs, _ in batches] == [(3, 16), (2, 16)]
    shorter = dataclasses.replace(options, texts=dataclasses.replace(options.texts, max_length=10))
    widths = [inputs["token_ids"].shape[1] for inputs, _ in part.batches(shorter)]
    assert widths == [10, 10]
    inputs, targets = batches[0]
    np.testing.assert_array_equal(targets, [0, 1, 2])
    np.testing.assert_array_equal(inputs["padding_mask"].numpy().sum(axis=1), [4, 10, 6])
    np.testing.assert_array_equal(inputs["segment_ids"].numpy().sum(axis=1), [1, 6, 3])
    np.testing.assert_array_equal(inputs["token_ids"][1, :10], ids[1])


@pytest.mark.slow
def test_batches_of_an_epoch(tmp_path, monkeypatch):
    """Each epoch contains all examples in an order that the seed fixes. Batches group examples of similar length."""
    monkeypatch.setattr(data, "POOL", 3)
    lengths = np.random.default_rng(0).integers(2, 60, size=41)
    ids = tf.RaggedTensor.from_row_lengths(np.ones(lengths.sum()), lengths)
    options = options_of(tmp_path, batch_size=4, max_length=64)
    part = data.Encoded(None, tf.cast(ids, tf.int32), lengths, np.arange(41), {})
    epochs = [[rows.numpy().tolist() for _, rows in part.batches(options, epoch).take(11)] for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] and not set(map(frozenset, epochs[0])) & set(map(frozenset, epochs[1]))
    for batches in epochs[:2]:
        assert sorted(np.concatenate(batches)) == list(range(41)) and sorted(map(len, batches))[0] == 1
        spread = np.mean([np.ptp(lengths[rows]) for rows in batches])
        assert spread < 0.5 * np.mean([np.ptp(lengths[start : start + 4]) for start in range(0, 41, 4)])
    follow_up = [rows.numpy().tolist() for _, rows in part.batches(options, 0).skip(11).take(11)]
    assert follow_up == epochs[1]
