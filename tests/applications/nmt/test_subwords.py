"""Subwords and words: ids and back, the words of the pieces, files."""

import dataclasses

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from subword_cases import CORPUS, strings

from applications.common.errors import InputError
from applications.nmt import subwords
from applications.text import text


@pytest.mark.parametrize("lowercase", [True, False])
def test_round_trip_of_subwords(lowercase):
    sentences = [*CORPUS, "  dogs\u00a0and\tcats? ", "cat▁cat", "猫 ABC", "a", ""]
    encoder = subwords.SubwordEncoder.fit([*CORPUS, "?"], 110, lowercase=lowercase)
    normalized = strings(encoder.tokenizer.normalize(sentences))
    assert normalized[:2] == (["the cat sat on the mat.", CORPUS[1].lower()] if lowercase else CORPUS[:2])
    assert normalized[6:] == ["dogs and cats?", "cat cat", "猫 abc" if lowercase else "猫 ABC", "a", ""]
    assert strings(encoder.decode(encoder.encode(sentences))) == normalized
    assert strings(encoder.decode(encoder.encode(sentences, 80, add_end=True))) == normalized


def test_round_trip_of_segmented_text(word_encoder):
    decoded = word_encoder.decode(word_encoder.encode(["The  un@@ like@@ ly s@@ at", "cat@@ s the", "", "the"]))
    assert strings(decoded) == ["the unlikely sat", "cats the", "", "the"]
    # A sentence that is cut within a word.
    assert strings(word_encoder.decode(word_encoder.encode(["the un@@ like@@ ly"], 3))) == ["the unlike"]


def test_ids_are_those_of_sentencepiece(subword_encoder):
    processor = sentencepiece.SentencePieceProcessor(model_proto=subword_encoder.tokenizer.model)
    sentences = ["the cats sat there", "жж кот zq-cat Q", "<unk> </s> <end> <pad>", "猫がいる", "ab"]
    normalized = strings(subword_encoder.tokenizer.normalize(sentences))
    assert subword_encoder.encode_ragged(sentences).to_list() == [processor.encode(each) for each in normalized]


def test_encode_of_segmented_text(word_encoder):
    tokens = word_encoder.vocabulary.tokens
    assert tokens[4:6] == ["the", "at"]
    assert set(tokens[4:]) == {"the", "cat@@", "s", "s@@", "at", "un@@", "like@@", "ly", "cat"}
    ids = word_encoder.encode(["The cat@@ s", "dog@@ s", ""], 9)
    the, cat, s = (tokens.index(token) for token in ("the", "cat@@", "s"))
    np.testing.assert_array_equal(ids, [[the, cat, s], [text.UNKNOWN, s, 0], [0, 0, 0]])


def test_special_tokens_in_a_text_are_ordinary_words(encoder):
    sentence = "<pad> <start> <end> <unk> </s> <s>"
    assert set(encoder.encode([sentence]).numpy().ravel()).isdisjoint({text.PAD, text.START, text.END})


def test_special_tokens_of_unknown_characters_only():
    encoder = subwords.SubwordEncoder.fit(["zz zz"], 20)
    assert encoder.encode_ragged(["zz<end>"]).to_list()[0][-1] == text.UNKNOWN


def test_encode_numpy_is_encode(encoder, monkeypatch):
    monkeypatch.setattr(text, "_CHUNK", 2)
    sentences = ["the cat@@ s sat on a mat", "", "the Й cat", "ж", "a cat"]
    for max_length in (None, 4):
        arrays, report = encoder.encode_numpy(sentences, max_length)
        padded = encoder.encode(sentences, max_length)
        in_graph = tf.function(encoder.encode, autograph=False)(tf.constant(sentences), max_length)
        np.testing.assert_array_equal(padded, in_graph)
        assert padded.dtype == tf.int32
        for array, row in zip(arrays, padded.numpy(), strict=True):
            assert array.dtype == np.int32
            np.testing.assert_array_equal(row, np.pad(array, (0, len(row) - len(array))))
        assert isinstance(report, text.EncodingReport)
        assert report.num_tokens == sum(map(len, arrays))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.sampled_from("tehcamsЖ▁@ \t\0\u2028\xa0¨") | st.characters(codec="utf-8")), max_size=20))
def test_a_data_set_is_read_word_by_word(subword_encoder, word_encoder, sentences):
    for encoder in (subword_encoder, word_encoder):
        expected = encoder.encode_ragged(tf.constant(sentences, tf.string)).to_list()
        assert [row.tolist() for row in encoder.encode_numpy(sentences)[0]] == expected


def test_reports(subword_encoder, word_encoder):
    arrays, report = subword_encoder.encode_numpy(["the cat sat on", "the cat", "", "жж cat ж"], 3)
    assert dataclasses.asdict(report) == {"num_truncated": 2, "num_unknown": 1, "num_tokens": 8}
    # A run of unknown characters is one unknown token; its "▁" is known.
    mark = subword_encoder.vocabulary.ids["▁"]
    assert arrays[3].tolist() == [mark, text.UNKNOWN, subword_encoder.vocabulary.ids["▁cat"]]
    assert arrays[2].tolist() == []
    _, report = word_encoder.encode_numpy(["the dog cat@@ s", "dog", "the"], 3)
    assert dataclasses.asdict(report) == {"num_truncated": 1, "num_unknown": 2, "num_tokens": 5}


def test_empty_batches_and_sentences(encoder):
    empty = encoder.encode(tf.constant([], tf.string), 5)
    assert empty.shape == (0, 1)
    assert encoder.decode(empty).shape == (0,)
    np.testing.assert_array_equal(encoder.encode(["", " "], 5), [[0], [0]])
    assert encoder.encode_numpy([]) == ([], text.EncodingReport(0, 0, 0))
    assert encoder.tokenizer.token_lists([""]) == [[]]
    assert encoder.words_of_pieces([""])[0].tolist() == encoder.pieces([]) == []


def test_decode_stops_at_the_end_and_leaves_specials_out(subword_encoder, word_encoder):
    the, cat, s = (subword_encoder.vocabulary.ids[piece] for piece in ("▁the", "▁cat", "s"))
    pad, unknown, start, end = text.PAD, text.UNKNOWN, text.START, text.END
    ids = tf.constant(
        [[start, the, cat, s, end, the], [end, the, the, the, the, the], [the, unknown, s, pad, cat, end]]
    )
    expected = ["the cats", "", "the<unk>s cat"]
    assert strings(subword_encoder.decode(ids)) == expected
    draws = subword_encoder.decode(tf.reshape(tf.cast(ids, tf.int64), (1, 3, 6)))
    assert draws.shape == (1, 3)
    assert strings(draws[0]) == expected
    assert subword_encoder.decode(ids[0]).numpy() == b"the cats"
    assert subword_encoder.pieces(ids.numpy()[0, 1:4]) == ["▁the", "▁cat", "s"]
    ids = [word_encoder.vocabulary.ids[token] for token in ("un@@", "like@@", "ly")]
    assert strings(word_encoder.decode([[*ids, end], [ids[0], unknown, ids[1], end]])) == [
        "unlikely",
        "un<unk> like",
    ]


def test_pieces_of_sentences(subword_encoder, word_encoder):
    assert subword_encoder.tokenizer.token_lists(["The cats", "жж cat"]) == [["▁the", "▁cat", "s"], ["▁", "жж", "▁cat"]]
    assert word_encoder.tokenizer.token_lists(["The dog@@ s"]) == [["the", "dog@@", "s"]]


def test_words_of_pieces_are_those_of_the_text_as_it_stands():
    """Gold links count them: what is unknown, cut in two by NFKC, or nothing once normalised, moves no word."""
    sentences = ["the xy@@ zz@@ y dog", "it´s a ½ \x07 \x07x dog", "", "\x07", "ab@@\tc "]
    num_words = [3, 6, 0, 1, 1]
    assert [len(subwords.words_of(sentence)) for sentence in sentences] == num_words
    segmented = subwords.WordEncoder.fit(["the dog it a"], 20)
    assert [words.tolist() for words in segmented.words_of_pieces(sentences)] == [
        [0, 1, 1, 1, 2],
        [0, 0, 1, 2, 4, 5],
        [],
        [],
        [0, 0],
    ]
    joint = subwords.SubwordEncoder.fit(["the dog is a dog that sat", "½ cup"], 60)
    pieces, words = joint.tokenizer.token_lists(sentences[1:2])[0], joint.words_of_pieces(sentences[1:2])[0]
    texts = ["".join(piece for piece, word in zip(pieces, words, strict=True) if word == k) for k in range(6)]
    assert [text.replace("▁", "") for text in texts] == ["it\u0301s", "a", "1⁄2", "", "x", "dog"]


def test_files_round_trip(encoder, tmp_path):
    path = tmp_path / "pieces"
    encoder.save(path)
    loaded = type(encoder).load(path)
    assert [child.name for child in tmp_path.iterdir()] == ["pieces"]
    assert loaded.vocabulary_size == encoder.vocabulary_size == len(loaded.vocabulary)
    sentences = ["The cat@@ s", "猫 ☃"]
    np.testing.assert_array_equal(loaded.encode(sentences), encoder.encode(sentences))
    cased = type(encoder).load(path, lowercase=False)
    assert strings(cased.tokenizer.normalize(["ＡB"])) == ["AB"]


def test_options_of_fitting():
    assert subwords.WordEncoder.fit(["b B a", "b"], 5).vocabulary.tokens[4:] == ["b"]
    cased = subwords.WordEncoder.fit(["b B ﬁ"], 9, lowercase=False)
    assert cased.vocabulary.tokens[4:] == ["B", "b", "fi"]


def test_training_is_deterministic_and_uses_our_special_ids():
    model = subwords.SubwordEncoder.fit(CORPUS, 110).tokenizer.model
    assert subwords.SubwordEncoder.fit(CORPUS, 110).tokenizer.model == model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert [processor.id_to_piece(index) for index in range(4)] == list(text.SPECIAL_TOKENS)
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    assert ids == (text.PAD, text.UNKNOWN, text.START, text.END)
    assert len(processor) == 110


def test_training_learns_the_most_frequent_merges_and_every_character():
    tokens = subwords.SubwordEncoder.fit(["ab ab ab abc", "x\t\u00a0ab▁ab\n"], 50).vocabulary.tokens
    assert {"▁ab", "▁abc", "▁", "a", "b", "c", "x"} <= set(tokens)
    assert len(tokens) < 50
    smallest = subwords.SubwordEncoder.fit(["ab ab ab abc"], 8)
    assert sorted(smallest.vocabulary.tokens[4:]) == ["a", "b", "c", "▁"]
    assert "▁zz" in subwords.SubwordEncoder.fit(["a b", "zz " * 3000], 20).vocabulary.tokens


@pytest.mark.parametrize("sentences, size", [([], 50), ([" \t ", "▁"], 50), (["ab ab abc"], 7)])
def test_training_errors(sentences, size):
    with pytest.raises(InputError, match=f"--vocabulary-size {size}: SentencePiece cannot be trained"):
        subwords.SubwordEncoder.fit(sentences, size)


NORMALIZED = [
    ("  Ａ\u00a0\u3000ﬁsh\t™ ", {}, "a fish tm"),
    ("É e\u0301", {"lowercase": False}, "É é"),
    ("İ K ΑΣ Ⓐ ｶﾞ", {}, "i̇ k ας a ガ"),
    ("a´b\x00\r\nc", {}, "a \u0301b c"),
    ("-LRB- ''", {}, "-lrb- ''"),
    ("", {}, ""),
    ("\n", {}, ""),
    (b"a\xff b", {}, "a\ufffd b"),
]


@pytest.mark.parametrize(("sentence", "options", "expected"), NORMALIZED)
def test_normalization(sentence, options, expected):
    tokenizer = subwords.PieceTokenizer(**options)
    once = tokenizer.normalize([sentence])
    assert strings(once) == [expected]
    assert strings(tokenizer.normalize(once)) == [expected]
