"""Reads parallel text and its alignments, fits the segmentation, and makes ids and batches."""

import dataclasses
import itertools
import pathlib
import typing

import numpy as np

from applications.common.errors import InputError
from applications.common.runs import replacing
from applications.nmt.alignments import Links, links_of_text
from applications.nmt.subwords import PieceEncoder, SubwordEncoder, WordEncoder
from applications.text import pairs
from applications.text.options import DATA_SEED, PARTS
from applications.text.readers import ParallelText, hold_out, read_lines, read_parallel
from applications.text.rows import TextRows, distinct
from applications.text.text import Vocabulary

# Names of the parts in published data sets.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}
BPE, SOURCE_WORDS, TARGET_WORDS = "bpe.model", "source_vocabulary.txt", "target_vocabulary.txt"


class AlignedPair(typing.NamedTuple):
    """A pair of sentences, words and punctuation marks joined by spaces, and the `Links` between them."""

    source: str
    target: str
    links: Links


def built_in_pairs(name):
    """Return 8,000 German and English pairs, "sentences" or "amounts", in a random order, a list of `AlignedPair`.

    Sure links join translations of each other; possible links are for words without a counterpart of their own.
    """
    rows = (line.split("\t") for line in read_lines(pathlib.Path(__file__).with_name(f"{name}.tsv.gz"))[1:])
    return [AlignedPair(source, target, links_of_text(links)) for source, target, links in rows]


@dataclasses.dataclass
class AlignedText(ParallelText):
    """A `ParallelText` with its gold alignments, a list of `Links`, or `None`."""

    links: list | None = None


def read(options):
    """Return the pairs that the options describe, a dictionary of `AlignedText`s: files, or the built-in pairs
    cut 80/10/10."""
    text = options.text
    parts = _read(text) if text.has_training_pairs else _built_in(text.built_in)
    if "valid" not in parts:
        parts["train"], parts["valid"] = hold_out(parts["train"], text.valid_fraction, DATA_SEED)
    parts["valid"] = parts["valid"].rows(range(len(parts["valid"]))[: text.max_valid_pairs])
    if text.max_train_pairs is not None:
        order = np.random.default_rng(DATA_SEED + 2).permutation(len(parts["train"]))
        parts["train"] = parts["train"].rows(np.sort(order[: text.max_train_pairs]))
    return {part: parts[part] for part in PARTS if part in parts}


def read_other(options, evaluation):
    """Return the `AlignedText` of the files that `EvaluateNmt` names, or `None`."""
    other = pairs.read_other(options.text, evaluation)
    return None if other is None else AlignedText(**vars(other))


@dataclasses.dataclass
class Codec:
    """The two text encoders of a model; with a joint SentencePiece model they are one."""

    source: PieceEncoder
    target: PieceEncoder

    @classmethod
    def fit(cls, options, train):
        """Fit the segmentation on the training pairs only."""
        size, lowercase = options.text.vocabulary_size, options.text.lowercase
        if options.resolved["segmentation"] == "bpe":
            sentences = TextRows.of(itertools.chain(distinct(train.sources), train.targets))
            joint = SubwordEncoder.fit(sentences, size, lowercase)
            return cls(joint, joint)
        return cls(*(WordEncoder.fit(sentences, size, lowercase) for sentences in (train.sources, train.targets)))

    def save(self, folder):
        """Write the segmentation into a run's folder."""
        if self.source is self.target:
            with replacing(folder.file(BPE)) as temporary:
                temporary.write_bytes(self.source.tokenizer.model)
        else:
            self.source.vocabulary.save(folder.file(SOURCE_WORDS))
            self.target.vocabulary.save(folder.file(TARGET_WORDS))


def load_codec(options, folder):
    """Read the segmentation of a run."""
    lowercase = options.text.lowercase
    if options.resolved["segmentation"] == "words":
        vocabularies = (Vocabulary.load(folder.path / name) for name in (SOURCE_WORDS, TARGET_WORDS))
        return Codec(*(WordEncoder(vocabulary, lowercase) for vocabulary in vocabularies))
    path = folder.path / BPE
    try:
        joint = SubwordEncoder(path.read_bytes(), lowercase)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path}: no SentencePiece model ({error})") from error
    return Codec(joint, joint)


class EncodedText(pairs.EncodedPairs):
    """`EncodedPairs` of `AlignedText`."""

    def training_batches(self, options, first_epoch=None):
        """Return the `tf.data` set of batches: ({"source", "target_input", "target"}, target)."""
        dataset = self.batches(options.fit.batch_size, options.run.seed, first_epoch)
        return dataset.map(lambda inputs, target: ({**inputs, "target": target}, target))


def encode(options, codec, part, training=False):
    """Encode an `AlignedText`.

    For training, pairs beyond `max_length` tokens and pairs with a side of no token are left out and counted. Otherwise
    sentences are cut.
    """
    limit = None if training else options.text.max_length
    encoded = EncodedText.encode(codec, part, limit, limit)
    encoded.report |= {"empty": 0, "too_long": 0}
    if not training:
        return encoded
    lengths = np.stack([encoded.sources.lengths, encoded.targets.lengths])
    # The mark of a space is text until it is normalised.
    is_empty, is_long = lengths.min(axis=0) == 0, lengths.max(axis=0) > options.text.max_length
    rows = np.flatnonzero(~is_empty & ~is_long)
    if not len(rows):
        raise InputError(f"--max-length: no pair is that short. Received: {options.text.max_length}")
    counts = {"pairs": len(rows), "empty": int(is_empty.sum()), "too_long": int((is_long & ~is_empty).sum())}
    return EncodedText(part.rows(rows), encoded.sources.take(rows), encoded.targets.take(rows), encoded.report | counts)


def _built_in(name):
    sources, targets, links = map(list, zip(*built_in_pairs(name), strict=True))
    order, num_held_out = np.random.default_rng(DATA_SEED).permutation(len(sources)), len(sources) // 10
    text = AlignedText(sources, targets, links=links)
    rows = {
        "train": order[2 * num_held_out :],
        "valid": order[num_held_out : 2 * num_held_out],
        "test": order[:num_held_out],
    }
    return {part: text.rows(sorted(chosen)) for part, chosen in rows.items()}


def _read(options):
    """Return the parts that have files; files that options name stand before the files in `data`."""
    parts = {}
    for part in PARTS:
        text = pairs.read_part(options, part)
        if text is None and options.data is not None:
            text = _read_folder(options, part)
        if text is not None:
            parts[part] = AlignedText(**vars(text))
    if "train" not in parts:
        raise InputError(f"--data: {options.data} has no file train.{options.data_source}, plain or .gz.")
    return parts


def _read_folder(options, part):
    """Return the `ParallelText` of a part's two files in `data`, or `None` where it has neither."""
    folder = pathlib.Path(options.data)
    for name in NAMES[part]:
        sides = [_plain_or_gz(folder, f"{name}.{ending}") for ending in (options.data_source, options.data_target)]
        if all(sides):
            return read_parallel(*sides, options.skip_invalid)
        if any(sides):
            raise InputError(f"--data: {folder} has one side of {name} alone.")
    return None


def _plain_or_gz(folder, name):
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
