"""Training byte-pair encoding, and sentencepiece models that can or cannot be used."""

import io

import pytest
import sentencepiece
from subword_cases import CORPUS, strings

from applications.common.errors import InputError
from applications.nmt import bpe, subwords
from applications.text import text


def foreign_model(sentences=("ab ab abc abc",), **options):
    """A sentencepiece model as other programs train them."""
    model = io.BytesIO()
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    options = {"model_type": "bpe", "vocab_size": 15, "hard_vocab_limit": False, "minloglevel": 2, **ids, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **options)
    return model.getvalue()


def test_training_is_deterministic_and_uses_our_special_ids():
    model = bpe.train_bpe(iter(CORPUS), 110)
    assert isinstance(model, bytes)
    assert bpe.train_bpe(CORPUS, 110) == model
    assert bpe.train_bpe(CORPUS[::-1][:3], 110) != model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert [processor.id_to_piece(index) for index in range(4)] == list(text.SPECIAL_TOKENS)
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    assert ids == (text.PAD, text.UNKNOWN, text.START, text.END)
    assert len(processor) == 110


def test_training_learns_the_most_frequent_merges_and_every_character():
    model = bpe.train_bpe(["ab ab ab abc", "x\t\u00a0ab▁ab\n"], 50)
    tokens = subwords.SubwordEncoder(model).vocabulary.tokens
    assert {"▁ab", "▁abc", "▁", "a", "b", "c", "x"} <= set(tokens)
    assert len(tokens) < 50
    smallest = bpe.train_bpe(["ab ab ab abc"], 8)
    assert sorted(subwords.SubwordEncoder(smallest).vocabulary.tokens[4:]) == ["a", "b", "c", "▁"]


def test_long_sentences_are_not_left_out_of_training():
    encoder = subwords.SubwordEncoder(bpe.train_bpe(["a b", "zz " * 3000], 20))
    assert "▁zz" in encoder.vocabulary.tokens


def test_training_errors():
    for nothing in ([], [""], [" \t ", "▁"]):
        with pytest.raises(InputError, match="sentences: there is no text"):
            bpe.train_bpe(nothing, 50)
    with pytest.raises(InputError, match=r"has 3 different characters, which need at least 8 pieces. Received: 7"):
        bpe.train_bpe(["ab ab abc"], 7)

    def unreadable():
        yield "a"
        raise KeyError("line 2")

    with pytest.raises(KeyError, match="line 2"):
        bpe.train_bpe(unreadable(), 50)
    # sentencepiece leaves sentences with this character out.
    with pytest.raises(InputError, match="sentencepiece cannot be trained"):
        bpe.train_bpe(["\u2585"], 50)


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
