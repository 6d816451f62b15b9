"""Read sentence pairs, split off validation data and fit the vocabularies."""

import dataclasses
import pathlib

from applications.common.errors import InputError
from applications.text import pairs
from applications.text.options import DATA_SEED, PARTS
from applications.text.readers import hold_out, read_table, split_by_group
from applications.text.rows import distinct
from applications.text.text import SPECIAL_TOKENS, TextEncoder, Tokenizer, Vocabulary

_FILES = ("source_vocabulary.txt", "target_vocabulary.txt")


def embedded_pairs():
    """Return the built-in `ParallelText`: 2,705 statements about CLDR data, with five questions each."""
    # tools/make_ved_questions.py wrote the file.
    return read_table(pathlib.Path(__file__).with_name("embedded.tsv.gz"), "source", "target")


def read(options):
    """Return the `ParallelText` of each split, from files or from the built-in pairs (by default 81/9/10)."""
    text = options.text
    side = "targets" if text.autoencoder else "sources"
    parts = {name: pairs.read_part(text, name) for name in PARTS}
    seed = DATA_SEED
    if parts["train"] is None:
        parts["train"], parts["test"] = hold_out(embedded_pairs(), 0.1, seed + 3, read=side)
        seed += 1
    if parts["valid"] is None:
        cut = hold_out(parts["train"], text.valid_fraction, seed, text.max_valid_pairs, side)
        parts["train"], parts["valid"] = cut
    if text.max_train_pairs is not None and len(parts["train"]) > text.max_train_pairs:
        fraction = text.max_train_pairs / len(parts["train"])
        rest, chosen = split_by_group(parts["train"], fraction, DATA_SEED + 2, option="--max-train-pairs")
        parts["train"] = dataclasses.replace(chosen, skipped=rest.skipped)
    parts = {name: part for name, part in parts.items() if part is not None}
    if text.autoencoder:
        parts = {name: dataclasses.replace(part, sources=part.targets) for name, part in parts.items()}
    return parts


def read_other(options, evaluation):
    """Return the pairs in the files of `evaluate`, or `None` if the options name no files."""
    return pairs.read_other(options.text, evaluation)


@dataclasses.dataclass
class Codec:
    """The text encoders of the source and the target."""

    source: TextEncoder
    target: TextEncoder

    @classmethod
    def fit(cls, options, train):
        """Fit both vocabularies on the training pairs only."""
        tokenizer, text, encoders = Tokenizer(options.text.lowercase), options.text, []
        for name, sentences, size in (
            ("source", distinct(train.sources), text.source_vocabulary_size),
            ("target", train.targets, text.target_vocabulary_size),
        ):
            vocabulary = Vocabulary.fit(tokenizer.count(sentences), size, text.min_count)
            if len(vocabulary) == len(SPECIAL_TOKENS):
                raise InputError(
                    f"--min-count: no {name} word occurs at least {text.min_count} times; lower the number."
                )
            encoders.append(TextEncoder(tokenizer, vocabulary))
        return cls(*encoders)

    def save(self, folder):
        """Write both vocabularies to a run folder."""
        for name, encoder in zip(_FILES, (self.source, self.target), strict=True):
            encoder.vocabulary.save(folder.file(name))


def load_codec(options, folder):
    """Read the vocabularies of a run."""
    tokenizer = Tokenizer(options.text.lowercase)
    return Codec(*(TextEncoder(tokenizer, Vocabulary.load(folder.path / name)) for name in _FILES))


def encode(options, codec, part, training=False):
    return pairs.EncodedPairs.encode(codec, part, options.text.max_source_length, options.text.max_target_length)
