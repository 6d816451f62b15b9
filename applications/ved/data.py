"""Reads pairs, cuts validation, fits the vocabularies and makes the batches of the variational encoder-decoder."""

import dataclasses

import numpy as np

from applications.common.errors import InputError
from applications.text.batching import bucketed_dataset, num_batches
from applications.text.metrics import group_references
from applications.text.readers import ParallelText, read_parallel, read_table, split_by_group
from applications.text.splits import Splits
from applications.text.text import END, SPECIAL_TOKENS, START, TextEncoder, Tokenizer, Vocabulary
from applications.ved.embedded import embedded_pairs
from applications.ved.options import find_row


def load_splits(options):
    """Return the `Splits` that the options describe: files, or the embedded set cut 80/10/10 by statement."""
    train = _read(options, "train")
    if train is None:
        for name in ("valid", "test"):
            if _read(options, name) is not None:
                raise InputError(f"--{name}-table or --{name}-source is given without training data.")
        rest, test = _cut(options, embedded_pairs(), 0.1, options.data_seed + 3)
        train, valid = _cut(options, rest, 0.1, options.data_seed + 1)
    else:
        valid, test = _read(options, "valid"), _read(options, "test")
        if valid is None:
            train, valid = _cut(options, train, options.valid_fraction, options.data_seed, options.max_valid_pairs)
    if options.max_train_pairs is not None and len(train) > options.max_train_pairs:
        _, chosen = split_by_group(train, options.max_train_pairs / len(train), seed=options.data_seed + 2)
        train = dataclasses.replace(chosen, skipped=train.skipped)
    splits = Splits(train, valid, test)
    if find_row(options.row).autoencoder:
        splits = Splits(*(None if part is None else _autoencoding(part) for part in (train, valid, test)))
    if options.shuffle_sources:
        order = np.random.default_rng(options.data_seed).permutation(len(splits.train))
        splits.train = dataclasses.replace(splits.train, sources=[splits.train.sources[index] for index in order])
    return splits


def _cut(options, pairs, fraction, seed, maximum=None):
    """Return what is left and what is held out; no sentence that the model reads is in both, in whatever case."""
    rest, held = split_by_group(pairs, fraction, seed, maximum)
    # A group is an article or a conversation; two of them may share a sentence.
    read = "targets" if find_row(options.row).autoencoder else "sources"
    seen = {_folded(sentence) for sentence in getattr(held, read)}
    kept = [index for index, sentence in enumerate(getattr(rest, read)) if _folded(sentence) not in seen]
    if not kept:
        raise InputError(f"--valid-fraction: all {read} are held out too; nothing is left to train on.")
    columns = [[column[index] for index in kept] for column in (rest.sources, rest.targets, rest.groups)]
    return ParallelText(*columns, skipped=pairs.skipped), held


def _folded(sentence):
    return " ".join(sentence.lower().split())


def _autoencoding(pairs):
    return ParallelText(
        sources=list(pairs.targets), targets=list(pairs.targets), groups=pairs.groups, skipped=pairs.skipped
    )


def _read(options, part):
    source, target = getattr(options, f"{part}_source"), getattr(options, f"{part}_target")
    table = getattr(options, f"{part}_table")
    if table is not None:
        if source is not None or target is not None:
            raise InputError(f"--{part}-table and --{part}-source exclude each other.")
        return read_table(
            table, options.source_column, options.target_column, options.group_column, options.skip_invalid
        )
    if (source is None) != (target is None):
        raise InputError(f"--{part}-source and --{part}-target belong together; one of them is missing.")
    return None if source is None else read_parallel(source, target, options.skip_invalid)


def load_splits_of(folder, options):
    """Return the `Splits` of a run; `InputError` if the files, or the installed facts, have changed since."""
    splits = load_splits(options)
    splits.require_those_of(folder)
    return splits


@dataclasses.dataclass
class Codec:
    """The two text encoders of a model, source and target."""

    source: TextEncoder
    target: TextEncoder
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary

    @classmethod
    def fit(cls, options, train):
        """Fit both vocabularies on the training pairs only."""
        tokenizer = _tokenizer(options)
        source = Vocabulary.fit(
            tokenizer.token_lists(list(dict.fromkeys(train.sources))), options.source_vocabulary_size, options.min_count
        )
        target = Vocabulary.fit(tokenizer.token_lists(train.targets), options.target_vocabulary_size, options.min_count)
        for name, vocabulary in (("source", source), ("target", target)):
            if len(vocabulary) == len(SPECIAL_TOKENS):
                raise InputError(
                    f"--min-count: no {name} word of the pairs occurs that often. Received: {options.min_count}"
                )
        return cls.of(options, source, target)

    @classmethod
    def of(cls, options, source_vocabulary, target_vocabulary):
        tokenizer = _tokenizer(options)
        return cls(
            TextEncoder(tokenizer, source_vocabulary),
            TextEncoder(tokenizer, target_vocabulary),
            source_vocabulary,
            target_vocabulary,
        )

    @classmethod
    def load(cls, folder, options):
        """Read the vocabularies of a run."""
        return cls.of(
            options,
            Vocabulary.load(folder.path / "source_vocabulary.txt"),
            Vocabulary.load(folder.path / "target_vocabulary.txt"),
        )

    def save(self, folder):
        """Write both vocabularies into a run's folder."""
        self.source_vocabulary.save(folder.file("source_vocabulary.txt"))
        self.target_vocabulary.save(folder.file("target_vocabulary.txt"))

    def tokenized(self, sentences):
        """Return sentences as the metrics want them: tokens joined by spaces."""
        return [" ".join(tokens) for tokens in self.target.tokenizer.token_lists(sentences)]


def _tokenizer(options):
    return Tokenizer(lowercase=options.lowercase, split_punctuation=options.split_punctuation)


@dataclasses.dataclass
class EncodedPairs:
    """Ids of a split, and what encoding did to it."""

    sources: list
    targets: list
    report: dict

    @classmethod
    def encode(cls, options, codec, pairs):
        sources, source_report = codec.source.encode_numpy(pairs.sources, options.max_source_length)
        targets, target_report = codec.target.encode_numpy(pairs.targets, options.max_target_length)
        report = {"pairs": len(pairs), "skipped": pairs.skipped}
        for side, counts in (("source", source_report), ("target", target_report)):
            report |= {f"{side}_{name}": value for name, value in dataclasses.asdict(counts).items()}
        return cls(sources, targets, report)

    def num_batches(self, options):
        return num_batches(len(self.sources), options.batch_size)

    def batches(self, options, shuffle=False, first_epoch=0, num_epochs=1):
        """Return the `tf.data` set of batches."""
        return bucketed_dataset(
            self.sources,
            self.targets,
            options.batch_size,
            start_id=START,
            end_id=END,
            shuffle=shuffle,
            seed=options.seed,
            first_epoch=first_epoch,
            num_epochs=num_epochs,
        )


def unique_sources(codec, pairs, maximum=None):
    """Return the different sources of a split, the first `maximum` of them, and the tokenised references of each."""
    groups = group_references(pairs.sources, codec.tokenized(pairs.targets))
    sources = list(groups)[:maximum]
    return sources, [groups[source] for source in sources]
