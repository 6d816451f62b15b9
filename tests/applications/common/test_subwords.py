import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from applications.common import subwords, text
from applications.common.errors import InputError

CORPUS = [
    "The cat sat on the mat.",
    "A cat and a dog sat on a mat",
    "the dogs that sat there",
    "São Tomé, não é isto?",
    "это кот, а это собака",
    "猫がいる ＡＢＣ",
]
SEGMENTED = ["the cat@@ s s@@ at", "the un@@ like@@ ly cat", "the <end>"]


@pytest.fixture(scope="module")
def subword_encoder():
    return subwords.SubwordEncoder.fit(CORPUS, 110)


@pytest.fixture(scope="module")
def segmented_encoder():
    return subwords.SegmentedEncoder.fit(SEGMENTED, 20)


@pytest.fixture(scope="module")
def character_encoder():
    return subwords.CharacterEncoder.fit(CORPUS, 100)


@pytest.fixture(params=["subword_encoder", "segmented_encoder", "character_encoder"])
def encoder(request):
    return request.getfixturevalue(request.param)


def foreign_model(sentences=("ab ab abc abc",), **options):
    """A sentencepiece model as other programs train them."""
    model = io.BytesIO()
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    options = {"model_type": "bpe", "vocab_size": 15, "hard_vocab_limit": False, "minloglevel": 2, **ids, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **options)
    return model.getvalue()


def strings(tensor):
    return [value.decode() for value in tensor.numpy()]


# Training


def test_training_is_deterministic_and_uses_our_special_ids():
    model = subwords.train_bpe(iter(CORPUS), 110)
    assert isinstance(model, bytes)
    assert subwords.train_bpe(CORPUS, 110, seed=3) == model
    assert subwords.train_bpe(CORPUS[::-1][:3], 110) != model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert [processor.id_to_piece(index) for index in range(4)] == list(text.SPECIAL_TOKENS)
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    assert ids == (text.PAD, text.UNKNOWN, text.START, text.END)
    assert len(processor) == 110


def test_training_learns_the_most_frequent_merges_and_every_character():
    model = subwords.train_bpe(["ab ab ab abc", "x\t\u00a0ab▁ab\n"], 50)
    tokens = subwords.SubwordEncoder(model).vocabulary.tokens
    assert {"▁ab", "▁abc", "▁", "a", "b", "c", "x"} <= set(tokens)
    assert len(tokens) < 50
    smallest = subwords.train_bpe(["ab ab ab abc"], 8)
    assert sorted(subwords.SubwordEncoder(smallest).vocabulary.tokens[4:]) == ["a", "b", "c", "▁"]


def test_long_sentences_are_not_left_out_of_training():
    encoder = subwords.SubwordEncoder(subwords.train_bpe(["a b", "zz " * 3000], 20))
    assert "▁zz" in encoder.vocabulary.tokens


def test_training_errors():
    for nothing in ([], [""], [" \t ", "▁"]):
        with pytest.raises(InputError, match="sentences: there is no text"):
            subwords.train_bpe(nothing, 50)
    with pytest.raises(InputError, match=r"has 3 different characters, which need at least 8 pieces. Received: 7"):
        subwords.train_bpe(["ab ab abc"], 7)

    def unreadable():
        yield "a"
        raise KeyError("line 2")

    with pytest.raises(KeyError, match="line 2"):
        subwords.train_bpe(unreadable(), 50)
    # sentencepiece leaves sentences with this character out.
    with pytest.raises(InputError, match="sentencepiece cannot be trained"):
        subwords.train_bpe(["\u2585"], 50)


# Normalisation


@pytest.mark.parametrize(
    ("sentence", "options", "expected"),
    [
        ("  Ａ\u00a0\u3000ﬁsh\t™ ", {"normalization": "NFKC"}, "a fish tm"),
        ("Ａ ﬁsh e\u0301 ™", {"normalization": "NFC"}, "ａ ﬁsh é ™"),
        ("É e\u0301", {"normalization": None, "lowercase": False}, "É e\u0301"),
        ("İ K ΑΣ Ⓐ ｶﾞ", {"normalization": "NFKC"}, "i̇ k ας a ガ"),
        ("a´b\x00\r\nc", {"normalization": "NFKC"}, "a \u0301b c"),
        ("-LRB- ''", {}, "-lrb- ''"),
        ("", {}, ""),
        ("\n", {}, ""),
    ],
)
def test_normalization(sentence, options, expected):
    tokenizer = subwords.SegmentTokenizer(**options)
    once = tokenizer.normalize([sentence])
    assert strings(once) == [expected]
    assert strings(tokenizer.normalize(once)) == [expected]


def test_normalization_replaces_bytes_that_are_not_utf8_and_refuses_other_forms():
    assert strings(subwords.SegmentTokenizer().normalize(tf.constant([b"a\xff b"]))) == ["a\ufffd b"]
    with pytest.raises(ValueError, match="Received: 'NFX'"):
        subwords.CharacterTokenizer(normalization="NFX")


# Round trips


@pytest.mark.parametrize("lowercase", [True, False])
def test_round_trip_of_subwords_and_characters(subword_encoder, lowercase):
    sentences = [*CORPUS, "  dogs\u00a0and\tcats? ", "cat▁cat", "猫 ABC", "a", ""]
    encoders = [
        subwords.SubwordEncoder.fit([*CORPUS, "?"], 110, lowercase=lowercase),
        subwords.CharacterEncoder.fit(CORPUS, 100, lowercase=lowercase, normalization="NFKC"),
    ]
    for encoder in encoders:
        normalized = strings(encoder.tokenizer.normalize(sentences))
        assert normalized[:2] == (["the cat sat on the mat.", CORPUS[1].lower()] if lowercase else CORPUS[:2])
        assert normalized[6:] == ["dogs and cats?", "cat cat", "猫 abc" if lowercase else "猫 ABC", "a", ""]
        assert strings(encoder.decode(encoder.encode(sentences))) == normalized
        assert strings(encoder.decode(encoder.encode(sentences, 80, add_end=True))) == normalized


def test_round_trip_of_segmented_text(segmented_encoder):
    decoded = segmented_encoder.decode(
        segmented_encoder.encode(["The  un@@ like@@ ly s@@ at", "cat@@ s the", "", "the"])
    )
    assert strings(decoded) == ["the unlikely sat", "cats the", "", "the"]
    # A sentence that is cut within a word.
    assert strings(segmented_encoder.decode(segmented_encoder.encode(["the un@@ like@@ ly"], 3))) == ["the unlike"]


# Ids


def test_ids_are_those_of_sentencepiece(subword_encoder):
    processor = sentencepiece.SentencePieceProcessor(model_proto=subword_encoder.tokenizer.model)
    sentences = ["the cats sat there", "жж кот zq-cat Q", "<unk> </s> <end> <pad>", "猫がいる", "ab"]
    normalized = strings(subword_encoder.tokenizer.normalize(sentences))
    assert subword_encoder.encode_ragged(sentences).to_list() == [processor.encode(each) for each in normalized]


def test_encode_of_segmented_text_and_characters(segmented_encoder):
    tokens = segmented_encoder.vocabulary.tokens
    assert tokens[4:6] == ["the", "at"]
    assert set(tokens[4:]) == {"the", "cat@@", "s", "s@@", "at", "un@@", "like@@", "ly", "cat"}
    ids = segmented_encoder.encode(["The cat@@ s", "dog@@ s", ""], 9)
    the, cat, s = (tokens.index(token) for token in ("the", "cat@@", "s"))
    np.testing.assert_array_equal(ids, [[the, cat, s], [text.UNKNOWN, s, 0], [0, 0, 0]])
    characters = subwords.CharacterEncoder(text.Vocabulary(["a", "▁", "é"]))
    np.testing.assert_array_equal(
        characters.encode([" A  e\u0301", "aba", ""]), [[4, 5, 6], [4, text.UNKNOWN, 4], [0, 0, 0]]
    )


def test_special_tokens_in_a_text_are_ordinary_words(encoder):
    sentence = "<pad> <start> <end> <unk> </s> <s>"
    assert set(encoder.encode([sentence]).numpy().ravel()).isdisjoint({text.PAD, text.START, text.END})


def test_special_tokens_of_unknown_characters_only():
    encoder = subwords.SubwordEncoder(subwords.train_bpe(["zz zz"], 20))
    assert encoder.encode_ragged(["zz<end>"]).to_list()[0][-1] == text.UNKNOWN


@pytest.mark.parametrize("add_end", [False, True])
def test_encode_numpy_is_encode(encoder, add_end, monkeypatch):
    monkeypatch.setattr(text, "_CHUNK", 2)
    sentences = ["the cat@@ s sat on a mat", "", "the Й cat", "ж", "a cat"]
    for max_length in (None, 4):
        arrays, report = encoder.encode_numpy(sentences, max_length, add_end=add_end)
        padded = encoder.encode(sentences, max_length, add_end=add_end)
        in_graph = tf.function(encoder.encode, autograph=False)(tf.constant(sentences), max_length, add_end)
        np.testing.assert_array_equal(padded, in_graph)
        assert padded.dtype == tf.int32
        for array, row in zip(arrays, padded.numpy(), strict=True):
            assert array.dtype == np.int32
            np.testing.assert_array_equal(row, np.pad(array, (0, len(row) - len(array))))
        assert isinstance(report, text.EncodingReport)
        assert report.num_tokens == sum(map(len, arrays)) - add_end * len(sentences)


def test_reports(subword_encoder, segmented_encoder, character_encoder):
    arrays, report = subword_encoder.encode_numpy(["the cat sat on", "the cat", "", "жж cat ж"], 3)
    assert dataclasses.asdict(report) == {"num_truncated": 2, "num_unknown": 1, "num_tokens": 8}
    # A run of unknown characters is one unknown token; its "▁" is known.
    mark = subword_encoder.vocabulary.ids["▁"]
    assert arrays[3].tolist() == [mark, text.UNKNOWN, subword_encoder.vocabulary.ids["▁cat"]]
    assert arrays[2].tolist() == []
    _, report = segmented_encoder.encode_numpy(["the dog cat@@ s", "dog", "the"], 3)
    assert dataclasses.asdict(report) == {"num_truncated": 1, "num_unknown": 2, "num_tokens": 5}
    _, report = character_encoder.encode_numpy(["a ☃☃", "the cat"], 4)
    assert dataclasses.asdict(report) == {"num_truncated": 1, "num_unknown": 2, "num_tokens": 8}


def test_empty_batches_and_sentences(encoder):
    empty = encoder.encode(tf.constant([], tf.string), 5)
    assert empty.shape == (0, 1)
    assert encoder.decode(empty).shape == (0,)
    np.testing.assert_array_equal(encoder.encode(["", " "], 5), [[0], [0]])
    assert encoder.encode_numpy([]) == ([], text.EncodingReport(0, 0, 0))
    assert encoder.token_lists([""]) == [[]]
    assert encoder.word_of_piece([]) == encoder.pieces([]) == []


# Decoding


def test_decode_stops_at_the_end_and_leaves_specials_out(subword_encoder, segmented_encoder):
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
    assert subword_encoder.pieces(ids) == [["▁the", "▁cat", "s"], [], ["▁the", "<unk>", "s", "▁cat"]]
    assert subword_encoder.pieces(ids.numpy()[0]) == ["▁the", "▁cat", "s"]
    for wrong in ([subword_encoder.vocabulary_size], [the, -1]):
        with pytest.raises(ValueError, match="Received"):
            subword_encoder.pieces(wrong)
    ids = [segmented_encoder.vocabulary.ids[token] for token in ("un@@", "like@@", "ly")]
    assert strings(segmented_encoder.decode([[*ids, end], [ids[0], unknown, ids[1], end]])) == [
        "unlikely",
        "un<unk> like",
    ]


# Pieces and words


def test_pieces_of_sentences(subword_encoder, segmented_encoder, character_encoder):
    assert subword_encoder.token_lists(["The cats", "жж cat"]) == [["▁the", "▁cat", "s"], ["▁", "жж", "▁cat"]]
    assert segmented_encoder.token_lists(["The dog@@ s"]) == [["the", "dog@@", "s"]]
    assert character_encoder.token_lists(["A  cat", "☃"]) == [["a", "▁", "c", "a", "t"], ["☃"]]
    assert character_encoder.pieces(character_encoder.encode_numpy(["a c☃"])[0][0]) == ["a", "▁", "c", "<unk>"]


@pytest.mark.parametrize(
    ("encoder", "pieces", "words"),
    [
        ("Subword", "▁the ▁c at s ▁s at", [0, 1, 1, 1, 2, 2]),
        ("Subword", "▁ ▁the ▁ <unk> s ▁", [0, 0, 1, 1, 1, 1]),
        ("Subword", "at ▁ ▁ ▁the", [0, 1, 1, 1]),
        ("Subword", "▁ ▁", [0, 0]),
        ("Segmented", "the un@@ like@@ ly cat", [0, 1, 1, 1, 2]),
        ("Segmented", "a b <unk> c@@", [0, 1, 2, 3]),
        ("Segmented", "a @@ b c @@", [0, 1, 1, 2, 2]),
        ("Character", "a ▁ c a t ▁ ▁ s", [0, 1, 1, 1, 1, 2, 2, 2]),
        ("Character", "▁ a b ▁", [0, 0, 0, 0]),
    ],
)
def test_word_of_piece(encoder, pieces, words):
    assert getattr(subwords, f"{encoder}Encoder").word_of_piece(pieces.split()) == words


def test_words_of_pieces_are_the_words_of_the_decoded_text(encoder):
    generator = np.random.default_rng(0)
    for _ in range(20):
        ids = generator.integers(0, encoder.vocabulary_size, 12)
        if generator.random() < 0.5:
            ids[generator.integers(12) :] = text.PAD
        pieces, words = encoder.pieces(ids), encoder.decode(ids).numpy().decode().split()
        indices = encoder.word_of_piece(pieces)
        merged = ["".join(piece for piece, word in zip(pieces, indices) if word == k) for k in range(len(words))]
        assert [word.replace("▁", "").replace("@@", "") for word in merged] == words
        assert len(indices) == len(pieces)
        assert max(indices, default=0) < max(len(words), 1)


# Files


def test_files_round_trip(encoder, tmp_path):
    path = tmp_path / "pieces"
    encoder.save(path)
    loaded = type(encoder).load(path, encoder.vocabulary_size)
    assert [child.name for child in tmp_path.iterdir()] == ["pieces"]
    assert loaded.vocabulary_size == encoder.vocabulary_size == len(loaded.vocabulary)
    sentences = ["The cat@@ s", "猫 ☃"]
    np.testing.assert_array_equal(loaded.encode(sentences), encoder.encode(sentences))
    cased = type(encoder).load(path, lowercase=False, normalization=None)
    assert strings(cased.tokenizer.normalize(["ＡB"])) == ["ＡB"]
    expected = f"pieces: the vocabulary has {encoder.vocabulary_size} entries, but the checkpoint expects 999."
    with pytest.raises(InputError, match=expected):
        type(encoder).load(path, 999)
    with pytest.raises(InputError, match="missing: no such"):
        type(encoder).load(tmp_path / "missing")


@pytest.mark.parametrize("content", [b"", b"<pad>\n<unk>\n", b"\x00" * 99, "truncated"])
def test_files_that_are_not_sentencepiece_models(subword_encoder, tmp_path, content):
    path = tmp_path / "broken.model"
    path.write_bytes(subword_encoder.tokenizer.model[:-100] if content == "truncated" else content)
    with pytest.raises(InputError, match=r"broken.model: this is not a sentencepiece model"):
        subwords.SubwordEncoder.load(path)
    with pytest.raises(InputError, match="model: this is not a sentencepiece model"):
        subwords.SubwordEncoder(path.read_bytes())


def test_models_of_other_programs():
    encoder = subwords.SubwordEncoder(foreign_model())
    assert encoder.vocabulary.tokens[:4] == list(text.SPECIAL_TOKENS)
    assert strings(encoder.decode(encoder.encode(["Abc AB"]))) == ["abc ab"]
    with pytest.raises(InputError, match=r"special ids of the model must be .*Found: {'pad': -1, 'unk': 0"):
        subwords.SubwordEncoder(foreign_model(pad_id=-1, unk_id=0, bos_id=1, eos_id=2))
    with pytest.raises(InputError, match="byte_fallback"):
        subwords.SubwordEncoder(foreign_model(byte_fallback=True, vocab_size=300))
    with pytest.raises(InputError, match="piece that cannot be used"):
        subwords.SubwordEncoder(foreign_model(["a\u00a0b"], normalization_rule_name="identity"))


def test_fitting_errors_and_options():
    for encoder in (subwords.SegmentedEncoder, subwords.CharacterEncoder):
        with pytest.raises(InputError, match="min_count=3"):
            encoder.fit(["ab ab"], 10, min_count=3)
        with pytest.raises(InputError, match="special tokens"):
            encoder.fit(["ab"], 4)
    assert subwords.SegmentedEncoder.fit(["b B a", "b"], 5).vocabulary.tokens[4:] == ["b"]
    cased = subwords.SegmentedEncoder.fit(["b B ﬁ"], 9, lowercase=False, normalization="NFKC")
    assert cased.vocabulary.tokens[4:] == ["B", "b", "fi"]


# Export


class Exported(tf.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def run(self, texts):
        ids = self.encoder.encode(texts, 6, add_end=True)
        return {"ids": ids, "text": self.encoder.decode(ids)}


def test_setting_the_seed_afterwards_changes_nothing(encoder):
    module, sentences = Exported(encoder), tf.constant(["the cat", "s@@ at ☃"])
    before, ids = module.run(sentences), encoder.encode(sentences)
    tf.random.set_seed(1)
    np.testing.assert_array_equal(encoder.encode(sentences), ids)
    tf.random.set_seed(1)
    np.testing.assert_array_equal(module.run(sentences)["ids"], before["ids"])


def test_a_saved_model_holds_a_sentencepiece_model_once(subword_encoder, tmp_path):
    module = Exported(subword_encoder)
    module.again = tf.function(lambda texts: subword_encoder.encode(texts), Exported.run.input_signature)
    tf.saved_model.save(module, tmp_path, signatures={"run": module.run, "again": module.again})
    assert (tmp_path / "saved_model.pb").read_bytes().count(subword_encoder.tokenizer.model) == 1


def test_saved_models_need_tensorflow_text_only(subword_encoder, segmented_encoder, character_encoder, tmp_path):
    sentences = ["The  cat sat", "", "un@@ like@@ ly ☃", "São"]
    expected = {}
    for name, encoder in {"s": subword_encoder, "g": segmented_encoder, "c": character_encoder}.items():
        module = Exported(encoder)
        tf.saved_model.save(module, tmp_path / name, signatures=module.run)
        out = module.run(tf.constant(sentences))
        expected[name] = (out["ids"].numpy().tolist(), out["text"].numpy().tolist())
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
    run = subprocess.run(
        [sys.executable, "-c", program, repr(sentences), repr(expected)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
