"""Reads pairs, cuts validation and fits the vocabularies of the variational encoder-decoder."""

import dataclasses
import pathlib

from applications.common.errors import InputError
from applications.text.metrics import group_references
from applications.text.pairs import read_part
from applications.text.readers import hold_out, read_table, split_by_group
from applications.text.text import SPECIAL_TOKENS, TextEncoder, Tokenizer, Vocabulary
from applications.ved.options import MODELS

_FILES = ("source_vocabulary.txt", "target_vocabulary.txt")
EMBEDDED = pathlib.Path(__file__).with_name("embedded.tsv.gz")


def embedded_pairs():
    """Return statements of facts and the five questions of each, a `ParallelText` of 14,950 rows.

    The facts are the CLDR's; tools/make_ved_questions.py wrote the file.
    """
    return read_table(EMBEDDED, "source", "target")


def load(options):
    """Return the pairs that the options describe, a dictionary of `ParallelText`s: files, or the embedded set cut
    80/10/10 by statement."""
    text = options.text
    read = "targets" if MODELS[options.model].autoencoder else "sources"
    found = {name: read_part(text, name) for name in ("train", "valid", "test")}
    if found["train"] is None:
        rest, found["test"] = hold_out(embedded_pairs(), 0.1, text.data_seed + 3, read=read)
        found["train"], found["valid"] = hold_out(
            rest, text.valid_fraction, text.data_seed + 1, text.max_valid_pairs, read
        )
    elif found["valid"] is None:
        found["train"], found["valid"] = hold_out(
            found["train"], text.valid_fraction, text.data_seed, text.max_valid_pairs, read
        )
    train = found["train"]
    if text.max_train_pairs is not None and len(train) > text.max_train_pairs:
        _, chosen = split_by_group(train, text.max_train_pairs / len(train), seed=text.data_seed + 2)
        found["train"] = dataclasses.replace(chosen, skipped=train.skipped)
    found = {name: pairs for name, pairs in found.items() if pairs is not None}
    if MODELS[options.model].autoencoder:
        found = {name: dataclasses.replace(pairs, sources=list(pairs.targets)) for name, pairs in found.items()}
    return found


@dataclasses.dataclass
class Codec:
    """The two text encoders of a model, source and target."""

    source: TextEncoder
    target: TextEncoder

    @classmethod
    def fit(cls, options, train):
        """Fit both vocabularies on the training pairs only."""
        tokenizer, text, encoders = _tokenizer(options), options.text, []
        for name, sentences, size in (
            ("source", list(dict.fromkeys(train.sources)), text.source_vocabulary_size),
            ("target", train.targets, text.target_vocabulary_size),
        ):
            vocabulary = Vocabulary.fit(tokenizer.token_lists(sentences), size, text.min_count)
            if len(vocabulary) == len(SPECIAL_TOKENS):
                raise InputError(
                    f"--min-count: no {name} word of the pairs occurs that often. Received: {text.min_count}"
                )
            encoders.append(TextEncoder(tokenizer, vocabulary))
        return cls(*encoders)

    @classmethod
    def load(cls, folder, options):
        """Read the vocabularies of a run."""
        tokenizer = _tokenizer(options)
        return cls(*(TextEncoder(tokenizer, Vocabulary.load(folder.path / name)) for name in _FILES))

    def save(self, folder):
        """Write both vocabularies into a run's folder."""
        for name, encoder in zip(_FILES, (self.source, self.target), strict=True):
            encoder.vocabulary.save(folder.file(name))

    def tokenized(self, sentences):
        """Return sentences as the metrics want them: tokens joined by spaces."""
        return [" ".join(tokens) for tokens in self.target.tokenizer.token_lists(sentences)]


def _tokenizer(options):
    return Tokenizer(lowercase=options.text.lowercase, split_punctuation=options.text.split_punctuation)


def unique_sources(codec, pairs, maximum=None):
    """Return the different sources of a split, the first `maximum` of them, and the tokenised references of each."""
    groups = group_references(pairs.sources, codec.tokenized(pairs.targets))
    sources = list(groups)[:maximum]
    return sources, [groups[source] for source in sources]
