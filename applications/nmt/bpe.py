"""Sentencepiece models: byte-pair encoding trained on sentences, and the vocabulary of a model that is given."""

import io
import re

import sentencepiece

from applications.common.errors import InputError
from applications.nmt.tokenizers import SPACE_MARK
from applications.text.text import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, Vocabulary

_PYTHON_SPACE_OR_MARK = re.compile(rf"[\s\x00-\x1f\x7f-\x9f{SPACE_MARK}]+")


def train_bpe(sentences, vocabulary_size):
    """Trains byte-pair encoding on sentences; the same sentences in the same order always give the same bytes.

    Nothing but white space is normalised here: give it sentences as `SubwordTokenizer.normalize` leaves them, or use
    `SubwordEncoder.fit`, which does that.

    Args:
        sentences: iterable of str, the training text, of any length each.
        vocabulary_size: int, the most pieces, the four special ones and every single character included. A small text
            gives fewer.

    Returns:
        bytes, a sentencepiece model with the special ids and names of `applications.text.text`.

    Raises:
        InputError: if there is no text, or if its characters alone are more than `vocabulary_size`.
    """
    sentences = [_PYTHON_SPACE_OR_MARK.sub(" ", sentence).strip() for sentence in sentences]
    characters = set().union(*sentences) - {" "}
    if not characters:
        raise InputError("sentences: there is no text to train subwords on.")
    least = len(SPECIAL_TOKENS) + len({SPACE_MARK}) + len(characters)
    if vocabulary_size < least:
        raise InputError(
            f"vocabulary_size: the text has {len(characters)} different characters, which need at least {least} "
            f"pieces. Received: {vocabulary_size}"
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            byte_fallback=False,
            normalization_rule_name="identity",
            # Longer ones would be left out without a word.
            max_sentence_length=1 << 30,
            shuffle_input_sentence=False,
            num_threads=1,
            minloglevel=2,
            **{f"{name}_id": index for name, index in _ids_of_specials(PAD, UNKNOWN, START, END).items()},
            **{f"{name}_piece": token for name, token in _ids_of_specials(*SPECIAL_TOKENS).items()},
        )
    except RuntimeError as error:
        raise InputError(f"sentences: sentencepiece cannot be trained on them: {error}") from error
    return model.getvalue()


def vocabulary_of(model, place):
    """Return the `Vocabulary` of a sentencepiece model; `InputError` if the model cannot be used."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        # Of no bytes at all sentencepiece makes an empty model.
        if not model or not processor.LoadFromSerializedProto(model):
            raise RuntimeError("empty")
    except (RuntimeError, TypeError) as error:
        raise InputError(f"{place}: this is not a sentencepiece model.") from error
    expected = _ids_of_specials(PAD, UNKNOWN, START, END)
    found = {name: getattr(processor, f"{name}_id")() for name in expected}
    if found != expected:
        raise InputError(f"{place}: the special ids of the model must be {expected}. Found: {found}")
    indices = range(len(SPECIAL_TOKENS), processor.get_piece_size())
    if any(processor.is_byte(index) for index in indices):
        raise InputError(f"{place}: the model writes unknown characters as bytes; train it without byte_fallback.")
    try:
        return Vocabulary([processor.id_to_piece(index) for index in indices])
    except ValueError as error:
        raise InputError(f"{place}: the model has a piece that cannot be used. {error}") from error


def _ids_of_specials(pad, unknown, start, end):
    """Return a dictionary with sentencepiece's names of the four special pieces."""
    return {"pad": pad, "unk": unknown, "bos": start, "eos": end}
