"""Read parallel text and alignments, fit the segmentation, and encode pairs."""

import dataclasses
import itertools
import pathlib
import typing

import numpy as np

from applications.common.errors import InputError
from applications.common.runs import replacing
from applications.nmt.alignments import Links, links_of_line
from applications.nmt.subwords import PieceEncoder, SubwordEncoder, WordEncoder
from applications.text import pairs
from applications.text.options import DATA_SEED, PARTS
from applications.text.readers import ParallelText, hold_out, read_lines, read_parallel
from applications.text.rows import TextRows, distinct
from applications.text.text import Vocabulary

# File names of each split in published data sets.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}
BPE, SOURCE_WORDS, TARGET_WORDS = "bpe.model", "source_vocabulary.txt", "target_vocabulary.txt"


class AlignedPair(typing.NamedTuple):
    """A sentence pair, with tokens separated by spaces, and the `Links` between the words."""

    source: str
    target: str
    links: Links


def built_in_pairs(name):
    """Return 8,000 German-English `AlignedPair`s in random order; `name` is "sentences" or "amounts".

    Sure links join words that are translations of each other. A word without a translation has no sure link, but may
    have a possible link: in "hat gesehen", a possible link joins "hat" and "saw".
    """
    path = pathlib.Path(__file__).with_name(f"{name}.tsv.gz")
    rows = [line.split("\t") for line in read_lines(path)[1:]]
    return [
        AlignedPair(source, target, links_of_line(path, number, links))
        for number, (source, target, links) in enumerate(rows, start=2)
    ]


@dataclasses.dataclass
class AlignedText(ParallelText):
    """A `ParallelText` with gold alignments: one `Links` per pair, or `None` without gold alignments."""

    links: list | None = None


def read(options):
    """Return the `AlignedText` of each split, from files or from the built-in pairs (80/10/10)."""
    text = options.text
    parts = _read(text) if text.has_training_pairs else _built_in(text.built_in)
    for part in ("valid", "test"):
        path = getattr(text, f"{part}_links")
        if path is not None:
            if part not in parts or not text.has_training_pairs:
                raise InputError(f"--{part}-links requires {part} files; pass --{part}-source or --{part}-table.")
            parts[part].links = gold_links(path, parts[part])
    if "valid" not in parts:
        parts["train"], parts["valid"] = hold_out(parts["train"], text.valid_fraction, DATA_SEED)
    parts["valid"] = parts["valid"].rows(range(len(parts["valid"]))[: text.max_valid_pairs])
    if text.max_train_pairs is not None:
        order = np.random.default_rng(DATA_SEED + 2).permutation(len(parts["train"]))
        parts["train"] = parts["train"].rows(np.sort(order[: text.max_train_pairs]))
    return {part: parts[part] for part in PARTS if part in parts}


def read_other(options, evaluation):
    """Return the `AlignedText` in the files of `evaluate`, or `None` if the options name no files."""
    other = pairs.read_other(options.text, evaluation)
    if other is None:
        return None
    other = AlignedText(**vars(other))
    if evaluation.links is not None:
        other.links = gold_links(evaluation.links, other)
    return other


def gold_links(path, text):
    """Read gold alignments; return a list with the `Links` of each pair.

    Line n lists the links of pair n: ``i-j`` is sure, ``ipj`` or ``i?j`` is possible. A blank line means no links. The
    file may be compressed (.gz). tools/links_to_pharaoh.py converts a table with one link per line.
    """
    if text.skipped:
        raise InputError(f"{path}: {text.skipped} pairs were skipped, so the lines of the file do not match the pairs.")
    lines, links = read_lines(path), []
    if len(lines) != len(text):
        raise InputError(
            f"{path}:{min(len(lines), len(text)) + 1}: expected one line of links for each of the "
            f"{len(text)} pairs of sentences. Received: {len(lines)} lines"
        )
    for number, (line, *pair) in enumerate(zip(lines, text.sources, text.targets, strict=True), start=1):
        entry = links_of_line(path, number, line)
        num_source, num_target = (len(sentence.split()) for sentence in pair)
        for i, j in sorted(entry.possible):
            if i >= num_source or j >= num_target:
                raise InputError(
                    f"{path}:{number}: the link {i}-{j} is out of range (words counted from 0): pair {number} has "
                    f"{num_source} source and {num_target} target words."
                )
        links.append(entry)
    if not any(entry.sure for entry in links):
        raise InputError(f"{path}: expected at least one sure link, such as 0-0.")
    return links


@dataclasses.dataclass
class Codec:
    """The text encoders of the source and the target. With SentencePiece, both are the same encoder."""

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
        """Write the SentencePiece model or the two vocabularies to a run folder."""
        if self.source is self.target:
            with replacing(folder.file(BPE)) as temporary:
                temporary.write_bytes(self.source.tokenizer.model)
        else:
            self.source.vocabulary.save(folder.file(SOURCE_WORDS))
            self.target.vocabulary.save(folder.file(TARGET_WORDS))


def load_codec(options, folder):
    """Load the `Codec` of a run."""
    lowercase = options.text.lowercase
    if options.resolved["segmentation"] == "words":
        vocabularies = (Vocabulary.load(folder.path / name) for name in (SOURCE_WORDS, TARGET_WORDS))
        return Codec(*(WordEncoder(vocabulary, lowercase) for vocabulary in vocabularies))
    path = folder.path / BPE
    try:
        joint = SubwordEncoder(path.read_bytes(), lowercase)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path}: cannot load the SentencePiece model ({error})") from error
    return Codec(joint, joint)


def encode(options, codec, part, training=False):
    """Encode `part`, the `AlignedText` of a split, and return its `EncodedPairs`.

    In training:

    - Pairs longer than `max_length` tokens are dropped and counted.
    - Pairs with an empty text raise `InputError`. With `skip_invalid`, these pairs are dropped and counted.

    In other splits, long sentences are truncated.
    """
    limit = None if training else options.text.max_length
    encoded = pairs.EncodedPairs.encode(codec, part, limit, limit)
    encoded.report |= {"empty": 0, "too_long": 0}
    if not training:
        return encoded
    lengths = np.stack([encoded.sources.lengths, encoded.targets.lengths])
    # A text that contains only SentencePiece's space mark has no tokens.
    is_empty, is_long = lengths.min(axis=0) == 0, lengths.max(axis=0) > options.text.max_length
    if is_empty.any() and not options.text.skip_invalid:
        first = int(is_empty.argmax())
        raise InputError(
            f"pair {first + 1} of the training split: the source or target is empty after segmentation. Received: "
            f"{part.sources[first]!r}, {part.targets[first]!r}"
        )
    rows = np.flatnonzero(~is_empty & ~is_long)
    if not len(rows):
        raise InputError(f"--max-length: every training pair is longer than this. Received: {options.text.max_length}")
    encoded.report |= {"pairs": len(rows), "empty": int(is_empty.sum()), "too_long": int((is_long & ~is_empty).sum())}
    return encoded.rows(rows)


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
    """Return the `AlignedText` of each split. Files named by options replace files in the folder `data`."""
    parts = {}
    for part in PARTS:
        text, files = pairs.read_part(options, part), None
        if text is None and options.data is not None:
            files = _files_of(options, part)
            if files is None and part == "train":
                raise InputError(f"--data: {options.data} has no file train.{options.data_source}, plain or .gz.")
        if files is not None:
            text = read_parallel(*files, options.skip_invalid)
        if text is not None:
            parts[part] = AlignedText(**vars(text))
    return parts


def _files_of(options, part):
    """Return the source path and the target path, or `None` if both are missing."""
    folder, endings = pathlib.Path(options.data), (options.data_source, options.data_target)
    for name in NAMES[part]:
        sides = [[folder / f"{name}.{ending}{gz}" for gz in ("", ".gz")] for ending in endings]
        files = [next(filter(pathlib.Path.is_file, paths), None) for paths in sides]
        if all(files):
            return files
        if any(files):
            missing = endings[files.index(None)]
            raise InputError(f"--data: {folder} has only one side of {name}; {name}.{missing} is missing.")
    return None
