"""Tests subword and word encoders: round trips, the word of each piece, and SavedModels."""

import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applications.common.errors import InputError
from applications.nmt import subwords
from applications.text import text

CORPUS = [
    "The cat sat on the mat.",
    "A cat and a dog sat on a mat",
    "the dogs that sat there",
    "São Tomé, não é isto?",
    "это кот, а это собака",
    "猫がいる ＡＢＣ",
]


def strings(tensor):
    return [value.decode() for value in tensor.numpy()]


@pytest.fixture(scope="module")
def subword_encoder():
    return subwords.SubwordEncoder.fit(CORPUS, 110)


@pytest.fixture(scope="module")
def word_encoder():
    return subwords.WordEncoder.fit(["the cat sat", "the unlikely cat", "the <end>"], 20)


@pytest.fixture(params=["subword_encoder", "word_encoder"])
def encoder(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("lowercase", [True, False])
def test_round_trip_of_subwords(lowercase):
    sentences = [*CORPUS, "  dogs\u00a0and\tcats? ", "cat▁cat", "猫 ABC", "a", ""]
    encoder = subwords.SubwordEncoder.fit([*CORPUS, "?"], 110, lowercase=lowercase)
    normalized = strings(encoder.tokenizer.normalize(sentences))
    assert normalized[:2] == (["the cat sat on the mat.", CORPUS[1].lower()] if lowercase else CORPUS[:2])
    assert normalized[6:] == ["dogs and cats?", "cat cat", "猫 abc" if lowercase else "猫 ABC", "a", ""]
    assert strings(encoder.decode(encoder.encode(sentences))) == normalized


def test_round_trip_of_words(word_encoder):
    tokens = word_encoder.vocabulary.tokens
    assert tokens[4:6] == ["the", "cat"] and set(tokens[6:]) == {"sat", "unlikely"}
    ids = word_encoder.encode(["The cat", "dog sat", ""], 9)
    the, cat, sat = (tokens.index(token) for token in ("the", "cat", "sat"))
    np.testing.assert_array_equal(ids, [[the, cat], [text.UNKNOWN, sat], [0, 0]])
    assert strings(word_encoder.decode(ids)) == ["the cat", "<unk> sat", ""]


def test_ids_match_sentencepiece(subword_encoder):
    processor = sentencepiece.SentencePieceProcessor(model_proto=subword_encoder.tokenizer.model)
    sentences = ["the cats sat there", "жж кот zq-cat Q", "<unk> </s> <end> <pad>", "猫がいる", "ab"]
    normalized = strings(subword_encoder.tokenizer.normalize(sentences))
    assert subword_encoder.encode_ragged(sentences).to_list() == [processor.encode(sentence) for sentence in normalized]


def test_special_tokens_in_a_text_are_ordinary_words(encoder):
    sentence = "<pad> <start> <end> <unk> </s> <s>"
    assert set(encoder.encode([sentence]).numpy().ravel()).isdisjoint({text.PAD, text.START, text.END})


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.sampled_from("tehcamsЖ▁ \t\0\u2028\xa0¨") | st.characters(codec="utf-8")), max_size=20))
def test_a_data_set_is_read_word_by_word(subword_encoder, word_encoder, sentences):
    for encoder in (subword_encoder, word_encoder):
        expected = encoder.encode_ragged(tf.constant(sentences, tf.string)).to_list()
        assert [row.tolist() for row in encoder.encode_numpy(sentences)[0]] == expected


def test_empty_batches_and_sentences(encoder):
    empty = encoder.encode(tf.constant([], tf.string), 5)
    assert empty.shape == (0, 1)
    assert encoder.decode(empty).shape == (0,)
    np.testing.assert_array_equal(encoder.encode(["", " "], 5), [[0], [0]])
    assert encoder.words_of_pieces([""])[0].tolist() == encoder.pieces([]) == []


def test_decode_stops_at_the_end_and_leaves_specials_out(subword_encoder):
    the, cat, s = (subword_encoder.vocabulary.ids[piece] for piece in ("▁the", "▁cat", "s"))
    pad, unknown, start, end = text.PAD, text.UNKNOWN, text.START, text.END
    ids = tf.constant(
        [[start, the, cat, s, end, the], [end, the, the, the, the, the], [the, unknown, s, pad, cat, end]]
    )
    assert strings(subword_encoder.decode(ids)) == ["the cats", "", "the<unk>s cat"]
    draws = subword_encoder.decode(tf.reshape(tf.cast(ids, tf.int64), (1, 3, 6)))
    assert draws.shape == (1, 3)
    assert subword_encoder.pieces(ids.numpy()[0, 1:4]) == ["▁the", "▁cat", "s"]


def test_words_of_pieces_count_the_original_words():
    """Indices count original words, as gold links do. Unknown, NFKC-split and empty words do not shift indices."""
    sentences = ["the xyzzy dog", "it´s a ½ \x07 \x07x dog", "", "\x07"]
    words = subwords.WordEncoder.fit(["the dog it a"], 20).words_of_pieces(sentences)
    assert [indices.tolist() for indices in words] == [[0, 1, 2], [0, 0, 1, 2, 4, 5], [], []]
    joint = subwords.SubwordEncoder.fit(["the dog is a dog that sat", "½ cup"], 60)
    pieces, words = joint.tokenizer.token_lists(sentences[1:2])[0], joint.words_of_pieces(sentences[1:2])[0]
    texts = ["".join(piece for piece, word in zip(pieces, words, strict=True) if word == k) for k in range(6)]
    assert [text.replace("▁", "") for text in texts] == ["it\u0301s", "a", "1⁄2", "", "x", "dog"]


def test_training_learns_the_most_frequent_merges_and_every_character():
    tokens = subwords.SubwordEncoder.fit(["ab ab ab abc", "x\t\u00a0ab▁ab\n"], 50).vocabulary.tokens
    assert {"▁ab", "▁abc", "▁", "a", "b", "c", "x"} <= set(tokens)
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
    ("\n", {}, ""),
    (b"a\xff b", {}, "a\ufffd b"),
]


@pytest.mark.parametrize(("sentence", "options", "expected"), NORMALIZED)
def test_normalization(sentence, options, expected):
    tokenizer = subwords.PieceTokenizer(**options)
    once = tokenizer.normalize([sentence])
    assert strings(once) == [expected]
    assert strings(tokenizer.normalize(once)) == [expected]


class Exported(tf.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def run(self, texts):
        ids = self.encoder.encode(texts, 6)
        return {"ids": ids, "text": self.encoder.decode(ids)}


@pytest.mark.slow
def test_saved_models_need_tensorflow_text_only(subword_encoder, word_encoder, tmp_path):
    """A process without this project runs the SavedModels. Its results do not depend on TensorFlow's seed."""
    sentences = ["The  cat sat", "", "unlikely ☃", "São"]
    expected = {}
    for name, encoder in {"subwords": subword_encoder, "words": word_encoder}.items():
        module = Exported(encoder)
        tf.saved_model.save(module, tmp_path / name, signatures=module.run)
        outputs = module.run(tf.constant(sentences))
        expected[name] = (outputs["ids"].numpy().tolist(), outputs["text"].numpy().tolist())
    program = (
        "import ast, sys, tensorflow as tf, tensorflow_text\n"
        "sentences, expected = map(ast.literal_eval, sys.argv[1:])\n"
        "for name, (ids, text) in expected.items():\n"
        "    loaded = tf.saved_model.load(name)\n"
        "    tf.random.set_seed(1)\n"
        "    for function in (loaded.run, loaded.signatures['serving_default']):\n"
        "        out = function(tf.constant(sentences))\n"
        "        assert out['ids'].numpy().tolist() == ids, (name, out)\n"
        "        assert out['text'].numpy().tolist() == text, (name, out)\n"
        "assert not {'sentencepiece', 'keras_vattn', 'applications'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", program, repr(sentences), repr(expected)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
