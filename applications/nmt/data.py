"""Reads parallel text and its alignments, from files or from the embedded corpus."""

import dataclasses
import pathlib
import sys
import typing

import numpy as np

from applications.common.errors import InputError
from applications.nmt.alignments import Links, check_links, links_of_line, read_pharaoh
from applications.nmt.subwords import words_of
from applications.text.options import PARTS
from applications.text.pairs import read_other, read_part
from applications.text.readers import ParallelText, hold_out, read_lines, read_parallel

EMBEDDED = pathlib.Path(__file__).with_name("embedded.tsv.gz")
# Names of the parts in published data sets.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}


class AlignedPair(typing.NamedTuple):
    """A pair of sentences, words and punctuation marks joined by spaces, and the `Links` between them."""

    source: str
    target: str
    links: Links


def embedded_pairs():
    """Return the German and English pairs that tools/make_nmt_pairs.py wrote, a list of `AlignedPair`.

    There are 8,000, of 4 to 16 words on either side, in a random order, all with different sources. Sure links join
    translations of each other; possible ones are for words without a counterpart of their own.
    """
    rows = [line.split("\t") for line in read_lines(EMBEDDED)[1:]]
    return [
        AlignedPair(source, target, links_of_line(EMBEDDED, number, links))
        for number, (source, target, links) in enumerate(rows, start=2)
    ]


@dataclasses.dataclass
class AlignedText(ParallelText):
    """A `ParallelText` with its gold alignments, a list of `Links`, or `None`."""

    links: list | None = None


def load(options):
    """Return the pairs that the options describe, a dictionary of `AlignedText`s: files, or the embedded pairs cut
    80/10/10 by source."""
    text = options.text
    parts = _read(text) if text.has_training_pairs else _embedded(text.data_seed)
    for part in ("valid", "test"):
        path = getattr(text, f"{part}_links")
        if path is not None:
            if part not in parts or not text.has_training_pairs:
                raise InputError(f"--{part}-links is given without {part} files.")
            parts[part].links = gold_links(path, parts[part], text.skip_invalid)
    if "valid" not in parts:
        parts["train"], parts["valid"] = hold_out(parts["train"], text.valid_fraction, text.data_seed)
    parts["valid"] = parts["valid"].rows(range(len(parts["valid"]))[: text.max_valid_pairs])
    if text.max_train_pairs is not None:
        order = np.random.default_rng(text.data_seed + 2).permutation(len(parts["train"]))
        parts["train"] = parts["train"].rows(sorted(order[: text.max_train_pairs]))
    return {part: parts[part] for part in PARTS if part in parts}


def read_evaluated(options, evaluation):
    """Return the `AlignedText` that `EvaluateNmt` names, with its gold alignments where it names some, or `None`."""
    pairs = read_other(options.text, evaluation)
    if pairs is None:
        return None
    pairs = AlignedText(**vars(pairs))
    if evaluation.links is not None:
        pairs.links = gold_links(evaluation.links, pairs, options.text.skip_invalid)
    return pairs


def gold_links(path, pairs, skip_invalid=False):
    """Read the word alignments of pairs, a line a pair; links out of range are an `InputError`, or counted."""
    if pairs.skipped:
        raise InputError(f"{path}: {pairs.skipped} pairs were skipped; its lines no longer correspond to the others.")
    links = read_pharaoh(path, len(pairs))
    # "@@ " joins segments to words, and links are between words.
    sources, targets = ([words_of(sentence) for sentence in side] for side in (pairs.sources, pairs.targets))
    links, num_dropped = check_links(links, sources, targets, skip_invalid, path)
    if not any(entry.sure for entry in links):
        raise InputError(f"{path}: there is no sure link in the file.")
    if num_dropped:
        print(f"{path}: {num_dropped} links out of range were left out", file=sys.stderr)
    return links


def _embedded(seed):
    pairs = embedded_pairs()
    order, held = np.random.default_rng(seed).permutation(len(pairs)), len(pairs) // 10
    sources, targets, links = map(list, zip(*pairs, strict=True))
    whole = AlignedText(sources, targets, links=links)
    rows = {"train": order[2 * held :], "valid": order[held : 2 * held], "test": order[:held]}
    return {part: whole.rows(sorted(chosen)) for part, chosen in rows.items()}


def _read(options):
    """Return the parts that have files; files that options name stand before the files in `data`."""
    parts = {}
    for part in PARTS:
        pairs, files = read_part(options, part), None
        if pairs is None and options.data is not None:
            files = _files_of(options, part)
            if files is None and part == "train":
                raise InputError(f"--data: {options.data} has no file train.{options.data_source}, plain or .gz.")
        if files is not None:
            pairs = read_parallel(*files, options.skip_invalid)
        if pairs is not None:
            parts[part] = AlignedText(**vars(pairs))
    return parts


def _files_of(options, part):
    """Return the paths of a part's two files in `data`, or `None` where it has neither."""
    folder, endings = pathlib.Path(options.data), (options.data_source, options.data_target)
    for name in NAMES[part]:
        paths = [[folder / f"{name}.{ending}{gz}" for gz in ("", ".gz")] for ending in endings]
        source, target = (next((path for path in side if path.is_file()), None) for side in paths)
        if source and target:
            return source, target
        if source or target:
            missing = endings[1] if source else endings[0]
            raise InputError(f"--data: {folder} has one side of {name} alone; {name}.{missing} is missing.")
    return None
