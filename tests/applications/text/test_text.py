import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from applications.common.errors import InputError
from applications.text import text
from applications.text.rows import TextRows


def tokens_of(sentence, **options):
    return text.Tokenizer(**options).token_lists([sentence])[0]


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [
        ("São  Tomé\u00a0lies\there.", ["são", "tomé", "lies", "here", "."]),
        ("ПРИВЕТ, мир!", ["привет", ",", "мир", "!"]),
        ("e\u0301te\u0301 = été", ["été", "=", "été"]),
        ("-LRB- a -rsb- ``b''", ["(", "a", "]", '"', "b", '"']),
        ("don't <unk>, $3.5", ["don", "'", "t", "<unk>", ",", "$", "3", ".", "5"]),
        ("中文 हिन्दी", ["中文", "हिन्दी"]),
        ("ﬁn x²", ["ﬁn", "x²"]),
        (" ", []),
        ("One\0Two\x07 three", ["one", "two", "three"]),
    ],
)
def test_tokens(sentence, tokens):
    assert tokens_of(sentence) == tokens


def test_tokenizer_options():
    assert tokens_of("Don't Stop.", lowercase=False, split_punctuation=False) == ["Don't", "Stop."]
    assert tokens_of("Uni@@ t , ß", split_punctuation=False) == ["uni@@", "t", ",", "ß"]


def test_bytes_that_are_not_utf8_are_replaced():
    assert text.Tokenizer().tokenize(tf.constant([b"a\xff b"])).to_list() == [[b"a", "\ufffd".encode(), b"b"]]


def test_vocabulary_order_and_size():
    counts = collections.Counter(["b", "a", "c", "b", "a", "<unk>", "d"])
    assert text.Vocabulary.fit(counts, 100).tokens[4:] == ["a", "b", "c", "d"]
    assert text.Vocabulary.fit(counts, 6).tokens == ["<pad>", "<unk>", "<start>", "<end>", "a", "b"]
    assert text.Vocabulary.fit({"x": 1, "y": 2}, 9, min_count=2).tokens[4:] == ["y"]
    assert text.Vocabulary(["w"]).ids["w"] == 4


def test_vocabulary_file_round_trip(tmp_path):
    path = tmp_path / "words.txt"
    vocabulary = text.Vocabulary(["são", "мир", '"'])
    vocabulary.save(path)
    assert path.read_text(encoding="utf-8").splitlines()[4] == "são"
    assert text.Vocabulary.load(path).tokens == vocabulary.tokens


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<pad>\n<unk>\nthe\n", "must begin with the lines <pad>, <unk>, <start>, <end>"),
        ("<pad>\n<unk>\n", "must begin with the lines"),
        ("<pad>\n<unk>\n<start>\n<end>\na\n\nb\n", "'' is empty"),
        ("<pad>\n<unk>\n<start>\n<end>\na\na\n", "'a' is empty"),
    ],
)
def test_bad_vocabulary_files(tmp_path, content, message):
    path = tmp_path / "words.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        text.Vocabulary.load(path)
    with pytest.raises(InputError, match="no such vocabulary"):
        text.Vocabulary.load(tmp_path / "none")
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="UTF-8"):
        text.Vocabulary.load(path)


@pytest.fixture(scope="module")
def encoder():
    return text.TextEncoder(text.Tokenizer(), text.Vocabulary(["a", "b", "são"]))


def test_encode(encoder):
    np.testing.assert_array_equal(encoder.encode(["A são b", "zz", ""], 9), [[4, 6, 5], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(encoder.encode(["a b a", "b"], 2), [[4, 5], [5, 0]])
    np.testing.assert_array_equal(encoder.encode([""], 3), [[0]])
    assert encoder.encode(["a"]).dtype == tf.int32
    assert encoder.encode_ragged(["a zz", ""]).to_list() == [[4, 1], []]


def test_encode_targets(encoder):
    target_input, target, num_tokens = encoder.encode_targets(["a b a", "b", ""], 2)
    np.testing.assert_array_equal(target_input, [[2, 4, 5], [2, 5, 0], [2, 0, 0]])
    np.testing.assert_array_equal(target, [[4, 5, 3], [5, 3, 0], [3, 0, 0]])
    np.testing.assert_array_equal(num_tokens, [3, 2, 1])


def test_encode_numpy_reports(encoder, monkeypatch):
    monkeypatch.setattr(text, "_CHUNK", 2)
    arrays, report = encoder.encode_numpy(["a b a", "zz b", "", "a", "b zz zz zz"], 2)
    assert [array.tolist() for array in arrays] == [[4, 5], [1, 5], [], [4], [5, 1]]
    assert arrays[0].dtype == np.int32
    assert report == text.EncodingReport(num_truncated=2, num_unknown=2, num_tokens=7)


def test_decode(encoder):
    ids = tf.constant([[2, 4, 1, 3, 5], [6, 0, 5, 5, 5], [3, 4, 4, 4, 4]])
    expected = [b"a <unk>", "são b b b".encode(), b""]
    assert encoder.decode(ids).numpy().tolist() == expected
    draws = encoder.decode(tf.reshape(ids, (1, 3, 5)))
    assert draws.shape == (1, 3)
    assert draws.numpy().tolist() == [expected]
    assert encoder.decode(tf.zeros((2, 0), tf.int64)).numpy().tolist() == [b"", b""]


CHARACTERS = st.sampled_from("aaZßΣσΑ.´'\u0301¨ \t\0\u2028\xa0-lrb") | st.characters(codec="utf-8")
SENTENCES = st.lists(st.text(CHARACTERS, max_size=12), max_size=30)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(sentences=SENTENCES)
def test_a_data_set_is_encoded_as_its_sentences(sentences):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_CHUNK", 2)
        for options in ({}, {"lowercase": False, "split_punctuation": False}):
            tokenizer = text.Tokenizer(**options)
            token_rows = tokenizer.token_lists(sentences)
            assert tokenizer.count(sentences) == collections.Counter(itertools.chain.from_iterable(token_rows))
            encoder = text.TextEncoder(tokenizer, text.Vocabulary(["a", "ß", "σ", "(", "aa"]))
            expected = encoder.encode_ragged(tf.constant(sentences, tf.string)).to_list()
            assert [row.tolist() for row in encoder.encode_numpy(sentences)[0]] == expected
            ids, report = encoder.encode_numpy(TextRows.of(sentences), 2)
            assert [row.tolist() for row in ids] == [row[:2] for row in expected]
            assert report.num_truncated == sum(len(row) > 2 for row in expected)
            assert report.num_unknown == sum(row[:2].count(text.UNKNOWN) for row in expected)
