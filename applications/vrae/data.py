"""Reads sentences, cuts held-out parts, fits the vocabulary, and makes batches."""

import dataclasses

import numpy as np

from applications.common.errors import InputError
from applications.text.options import DATA_SEED, PARTS
from applications.text.pairs import EncodedPairs
from applications.text.readers import folded, read_sentences
from applications.text.rows import TextRows, ranks, take_rows
from applications.text.text import SPECIAL_TOKENS, TextEncoder, Tokenizer, Vocabulary
from applications.vrae import grammar

# Sentences of the built-in grammar, and the seed of the cut of their test part.
_NUM_SENTENCES, _TEST_SEED = 10_000, 3


@dataclasses.dataclass
class Sentences:
    """Sentences of a part, a list of str or `TextRows`, and how many lines were left out."""

    texts: list | TextRows
    skipped: int = 0

    def __len__(self):
        return len(self.texts)

    def rows(self, indices):
        """Return the sentences of these indices."""
        return Sentences(take_rows(self.texts, indices))


def read(options):
    """Return the parts that the options name, a dictionary of `Sentences`; the built-in ones are cut 80/10/10."""
    text, parts = options.text, {}
    if text.train_text is None:
        origin, valid_fraction = "the built-in sentences", 1 / 9
        texts = Sentences(grammar.sentences(_NUM_SENTENCES))
        parts["train"], parts["test"] = _cut(origin, texts, 0.1, _TEST_SEED)
    else:
        origin, valid_fraction = text.train_text, text.valid_fraction
        paths = {part: getattr(text, f"{part}_text") for part in PARTS}
        parts = {part: read_file(path, text, text.skip_invalid) for part, path in paths.items() if path is not None}
        if "test" not in parts and text.test_fraction:
            parts["train"], parts["test"] = _cut(origin, parts["train"], text.test_fraction, DATA_SEED + 1)
    if "valid" not in parts:
        parts["train"], parts["valid"] = _cut(origin, parts["train"], valid_fraction, DATA_SEED)
    return {part: parts[part] for part in PARTS if part in parts}


def read_file(path, options, skip_invalid):
    """Return the `Sentences` of a file in the form that `TextOptions` name."""
    return Sentences(*read_sentences(path, options.text_column, skip_invalid))


def read_other(options, evaluation):
    """Return the `Sentences` of the file that `EvaluateVrae` names, or `None`."""
    return (
        None if evaluation.text is None else read_file(evaluation.text, options.text, options.text.skip_invalid or None)
    )


def _cut(origin, sentences, share, seed):
    """Return the rest of sentences and a share of them; sentences that differ in case alone stay together."""
    group_of_row = ranks(TextRows.of(map(folded, sentences.texts)))
    # Groups in the order in which they come first.
    groups = np.argsort(np.unique(group_of_row, return_index=True)[1])
    count = max(1, round(share * len(groups)))
    if count >= len(groups):
        raise InputError(f"{origin}: too few sentences to hold some out, {len(groups)} different ones")
    order = np.random.default_rng(seed).permutation(len(groups))
    is_held_out = np.isin(group_of_row, groups[order[:count]])
    rest, held_out = (sentences.rows(np.flatnonzero(rows)) for rows in (~is_held_out, is_held_out))
    return dataclasses.replace(rest, skipped=sentences.skipped), held_out


class Codec(TextEncoder):
    """Turns sentences into ids and back."""

    @classmethod
    def fit(cls, options, train):
        """Fit the vocabulary on the training sentences."""
        text, tokenizer = options.text, _tokenizer(options)
        vocabulary = Vocabulary.fit(tokenizer.count(train.texts), text.vocabulary_size, text.min_count)
        if len(vocabulary) == len(SPECIAL_TOKENS):
            raise InputError(f"--min-count: no word of the sentences occurs that often. Received: {text.min_count}")
        return cls(tokenizer, vocabulary)

    def save(self, folder):
        self.vocabulary.save(folder.file("vocabulary.txt"))


def load_codec(options, folder):
    return Codec(_tokenizer(options), Vocabulary.load(folder.path / "vocabulary.txt"))


def _tokenizer(options):
    return Tokenizer(options.text.lowercase, options.text.split_punctuation)


def encode(options, codec, part, training=False):
    ids, counts = codec.encode_numpy(part.texts, options.text.max_length)
    empty = np.flatnonzero(ids.lengths == 0).tolist()
    if empty:
        raise InputError(f"sentence {empty[0] + 1} has no word. Received: {part.texts[empty[0]]!r}")
    report = {"sentences": len(part), "skipped": part.skipped, **dataclasses.asdict(counts)}
    return EncodedPairs(part, ids, ids, report)
