"""Tests special tokens, truncation, and the files of a tokenizer."""

import keras_hub
import pytest
import tensorflow as tf
from finetuning_cases import PIECES, albert_tokenizer

from applications.common.errors import InputError
from applications.common.runs import RunFolder
from applications.finetuning.data import Codec, load_codec
from applications.finetuning.tokens import TextEncoder


def encoder(max_length=20):
    return TextEncoder(keras_hub.models.BertTokenizer(PIECES, lowercase=True), max_length)


def names(ids):
    return [PIECES[index] for index in ids]


def test_a_text_and_a_pair():
    ids, num_first, cut = encoder().encode_all(["The dogs barked.", "a zebra"])
    assert names(ids[0]) == ["[CLS]", "the", "dog", "##s", "bark", "##ed", ".", "[SEP]"]
    assert names(ids[1]) == ["[CLS]", "a", "[UNK]", "[SEP]"]
    assert num_first.numpy().tolist() == [8, 4] and not cut.numpy().any()
    ids, num_first, _ = encoder().encode_all(["the dog", "a"], ["a cat .", ","])
    assert names(ids[0]) == ["[CLS]", "the", "dog", "[SEP]", "a", "cat", ".", "[SEP]"]
    assert num_first.numpy().tolist() == [4, 3]


@pytest.mark.parametrize(
    ("first", "second", "lengths"),
    [
        ("the dog a cat the dog", "a cat", (3, 2)),
        ("a cat", "the dog a cat the dog", (2, 3)),
        ("the dog a cat the dog", "the dog a cat the dog", (3, 2)),
        ("a", "cat", (1, 1)),
    ],
)
def test_the_longer_text_of_a_pair_is_truncated_first(first, second, lengths):
    ids, num_first, cut = encoder(8).encode_all([first], [second])
    assert ids.row_lengths()[0] == sum(lengths) + 3 <= 8
    assert names(ids[0])[1 : 1 + lengths[0]] == first.split()[: lengths[0]]
    assert names(ids[0])[num_first[0] : -1] == second.split()[: lengths[1]]
    assert cut == max(0, len(first.split()) + len(second.split()) - 5)


def test_a_long_text_is_cut():
    ids, _, cut = encoder(5).encode_all(["the dog a cat", "a"])
    assert names(ids[0]) == ["[CLS]", "the", "dog", "a", "[SEP]"] and cut.numpy().tolist() == [1, 0]


def test_damaged_files_are_named(tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    Codec(encoder(), ["no", "yes"], {"width": 1}, False).save(folder)
    for name in ("labels.json", "tokenizer/tokenizer.json", "tokenizer/vocabulary.txt"):
        path = folder.path / name
        before = path.read_bytes()
        for content in (b"", b"{", b"[1]", b"{}", bytes(range(256)), None):
            path.unlink() if content is None else path.write_bytes(content)
            with pytest.raises(InputError, match=r"labels\.json|tokenizer"):
                load_codec(None, folder)
        path.write_bytes(before)


# KerasHub does not close the file of a SentencePiece model.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file .*vocabulary.spm:ResourceWarning")
def test_the_pieces_of_an_albert(tmp_path):
    """A SentencePiece tokenizer gives the same pieces eagerly, in a graph, and after saving."""
    tokenizer = albert_tokenizer()
    texts, second_texts = ["The dog has seen", "a zebra"], ["my friend.", ""]
    ids, num_first, cut = TextEncoder(tokenizer, 40).encode_all(texts, second_texts)
    pieces = [tokenizer.id_to_token(int(index)) for index in ids[0]]
    assert pieces[0] == "[CLS]" and pieces[-1] == "[SEP]" == pieces[num_first[0] - 1] and not cut.numpy().any()
    assert "".join(pieces[1 : num_first[0] - 1]).endswith("\u2581dog\u2581has\u2581seen")
    assert "".join(pieces[num_first[0] : -1]) == "\u2581my\u2581friend."
    assert tokenizer.token_to_id("[MASK]") not in ids[0]
    tf.random.set_seed(1)
    TextEncoder(tokenizer, 40).save(tmp_path)
    for encoder in (TextEncoder.load(tmp_path, 40), TextEncoder(tokenizer, 40)):
        again = tf.function(encoder.encode)(tf.constant(texts), tf.constant(second_texts))[0]
        assert again.to_list() == ids.to_list()
