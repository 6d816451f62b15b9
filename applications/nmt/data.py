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
from applications.text.pairs import read_part
from applications.text.readers import ParallelText, hold_out, read_lines, read_parallel

EMBEDDED = pathlib.Path(__file__).with_name("embedded.tsv.gz")
# What published data sets call their parts.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}


class AlignedPair(typing.NamedTuple):
    """A pair of sentences, words and punctuation marks joined by spaces, and the `Links` between them."""

    source: str
    target: str
    links: Links


def embedded_pairs():
    """Return the German and English pairs that ship with the program, written by tools/make_nmt_pairs.py.

    Sure links join what is a translation of each other; possible ones are for words without a counterpart of their own.

    Returns:
        A list of 8,000 `AlignedPair`, 4 to 16 words on either side, in a random order. No two have the same source.
    """
    rows = [line.split("\t") for line in read_lines(EMBEDDED)[1:]]
    return [
        AlignedPair(source, target, links_of_line(EMBEDDED, number, links))
        for number, (source, target, links) in enumerate(rows, start=2)
    ]


@dataclasses.dataclass
class AlignedText(ParallelText):
    """A `ParallelText` of which alignments may be known.

    Args:
        links: Gold alignments, one `applications.nmt.alignments.Links` a pair, or `None`.
    """

    links: list | None = None

    @classmethod
    def of(cls, text):
        """Return the same pairs, no alignment known."""
        return cls(text.sources, text.targets, text.groups, text.skipped)

    def rows(self, rows):
        """Return the rows of some indices."""
        columns = {name: getattr(self, name) for name in ("sources", "targets", "groups", "links")}
        picked = {name: [column[row] for row in rows] for name, column in columns.items() if column is not None}
        return dataclasses.replace(self, **picked)


def load(options):
    """Return the pairs that the options describe, a dictionary of `AlignedText`s: files, or the embedded pairs cut
    80/10/10 by source."""
    text = options.text
    if not text.has_training_pairs:
        found = _embedded(text.data_seed)
    else:
        found = {part: _read(text, part) for part in PARTS}
        if found["train"] is None:
            raise InputError(f"--data: {text.data} has no file train.{text.data_source}, plain or .gz.")
        if found["valid"] is None:
            if text.valid_links is not None:
                raise InputError("--valid-links is given without valid files.")
            found["train"], found["valid"] = hold_out(found["train"], text.valid_fraction, text.data_seed)
        found = {part: AlignedText.of(pairs) for part, pairs in found.items() if pairs is not None}
    _read_links(text, found)
    found["valid"] = found["valid"].rows(range(len(found["valid"]))[: text.max_valid_pairs])
    if text.max_train_pairs is not None and text.max_train_pairs < len(found["train"]):
        order = np.random.default_rng(text.data_seed + 2).permutation(len(found["train"]))
        found["train"] = found["train"].rows(sorted(order[: text.max_train_pairs]))
    return found


def _embedded(seed):
    pairs = embedded_pairs()
    order = np.random.default_rng(seed).permutation(len(pairs))
    held = len(pairs) // 10
    found = {}
    for part, rows in (("train", order[2 * held :]), ("valid", order[held : 2 * held]), ("test", order[:held])):
        chosen = [pairs[index] for index in sorted(rows)]
        columns = [[getattr(pair, name) for pair in chosen] for name in ("source", "target", "links")]
        found[part] = AlignedText(columns[0], columns[1], links=columns[2])
    return found


def _read_links(options, found):
    """Read the gold alignments of the parts that have a file of them."""
    for part in ("valid", "test"):
        path = getattr(options, f"{part}_links")
        if path is None:
            continue
        if part not in found or not options.has_training_pairs:
            raise InputError(f"--{part}-links is given without {part} files.")
        found[part].links = gold_links(path, found[part], options.skip_invalid)


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


def _read(options, part):
    # Files that are named stand before those of the folder.
    pairs = read_part(options, part)
    if pairs is None and options.data is not None:
        source, target = _files_of(options, part)
        pairs = None if source is None else read_parallel(source, target, options.skip_invalid)
    return pairs


def _files_of(options, part):
    """Return the paths of a part's two files in `data`, or `None` twice where it has neither."""
    folder = pathlib.Path(options.data)
    for name in NAMES[part]:
        found = [_existing(folder / f"{name}.{ending}") for ending in (options.data_source, options.data_target)]
        if all(found):
            return found
        if any(found):
            missing = options.data_target if found[0] else options.data_source
            raise InputError(f"--data: {folder} has one side of {name} alone; {name}.{missing} is missing.")
    return None, None


def _existing(path):
    return next((x for x in (path, path.with_name(f"{path.name}.gz")) if x.is_file()), None)
