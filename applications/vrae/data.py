"""Read sentences, hold out validation and test data, fit the vocabulary and encode the sentences."""

import dataclasses

import numpy as np

from applications.common.errors import InputError
from applications.text.options import DATA_SEED, PARTS
from applications.text.pairs import EncodedPairs
from applications.text.readers import folded, read_sentences
from applications.text.rows import TextRows, ranks, take_rows
from applications.text.text import SPECIAL_TOKENS, TextEncoder, Tokenizer, Vocabulary
from applications.vrae import grammar

_NUM_SENTENCES, _TEST_SEED = 10_000, 3


@dataclasses.dataclass
class Sentences:
    """The sentences of a split (a list or `TextRows`), and the number of skipped lines."""

    texts: list | TextRows
    skipped: int = 0

    def __len__(self):
        return len(self.texts)

    def rows(self, indices):
        """Select sentences by index."""
        return Sentences(take_rows(self.texts, indices))


def read(options):
    """Return the `Sentences` of each split, from files or from the built-in sentences (80/10/10)."""
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
    """Read the `Sentences` in a file; `TextOptions` sets the format."""
    return Sentences(*read_sentences(path, options.text_column, skip_invalid))


def read_other(options, evaluation):
    """Return the `Sentences` in the file of `evaluate --text`, or `None` without this option."""
    return (
        None if evaluation.text is None else read_file(evaluation.text, options.text, options.text.skip_invalid or None)
    )


def _cut(origin, sentences, fraction, seed):
    """Return two random parts, `(rest, held_out)`. Sentences that differ only in case stay together."""
    group_of_row = ranks(TextRows.of(map(folded, sentences.texts)))
    groups = np.argsort(np.unique(group_of_row, return_index=True)[1])
    count = max(1, round(fraction * len(groups)))
    if count >= len(groups):
        raise InputError(f"{origin}: expected enough distinct sentences to hold some out. Received: {len(groups)}")
    order = np.random.default_rng(seed).permutation(len(groups))
    is_held_out = np.isin(group_of_row, groups[order[:count]])
    rest, held_out = (sentences.rows(np.flatnonzero(rows)) for rows in (~is_held_out, is_held_out))
    return dataclasses.replace(rest, skipped=sentences.skipped), held_out


class Codec(TextEncoder):
    """Convert between sentences and ids."""

    @classmethod
    def fit(cls, options, train):
        """Fit the vocabulary on the training sentences."""
        text, tokenizer = options.text, _tokenizer(options)
        vocabulary = Vocabulary.fit(tokenizer.count(train.texts), text.vocabulary_size, text.min_count)
        if len(vocabulary) == len(SPECIAL_TOKENS):
            raise InputError(f"--min-count: no word occurs at least {text.min_count} times; lower the number.")
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
        raise InputError(f"sentence {empty[0] + 1}: expected at least one word. Received: {part.texts[empty[0]]!r}")
    report = {"sentences": len(part), "skipped": part.skipped, **dataclasses.asdict(counts)}
    return EncodedPairs(part, ids, ids, report)
