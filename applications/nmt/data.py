"""Reads parallel text and its alignments, from files or from the embedded corpus."""

import dataclasses
import hashlib
import json
import pathlib
import sys

import numpy as np

from applications.common.errors import InputError
from applications.nmt.alignments import check_links, read_pharaoh
from applications.nmt.embedded.corpus import embedded_pairs
from applications.nmt.subwords import words_of
from applications.text.readers import ParallelText, read_lines, read_parallel, split_by_group
from applications.text.splits import Splits

PARTS = ("train", "valid", "test")
# What published data sets call their parts.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}


@dataclasses.dataclass
class AlignedSplits(Splits):
    """`Splits` of which some have alignments.

    Attributes:
        links: Gold alignments of a part's pairs where they are known, a dictionary from its name to a list of
            `applications.nmt.alignments.Links`.
        posteriors: Alignments that training takes for q, a dictionary from "train" and "valid" to one array (n, 3) a
            pair: target word, source word, probability.
    """

    links: dict = dataclasses.field(default_factory=dict)
    posteriors: dict = dataclasses.field(default_factory=dict)

    def fingerprint(self):
        """Return a digest of all pairs and of what their alignments are known to be."""
        pairs = super().fingerprint()
        if not self.links and not self.posteriors:
            return pairs
        digest = hashlib.sha256(pairs.encode())
        for part, links in sorted(self.links.items()):
            for entry in links:
                digest.update(f"{part} {sorted(entry.sure)} {sorted(entry.possible)}\n".encode())
        for part, posteriors in sorted(self.posteriors.items()):
            for posterior in posteriors:
                digest.update(f"{part} {posterior.shape}\n".encode() + posterior.tobytes())
        return digest.hexdigest()


def is_embedded(options):
    """Return whether no data option is given."""
    return options.data is None and options.train_source is None


def load_splits(options):
    """Return the `AlignedSplits` that the options describe: files, or the embedded pairs cut 80/10/10 by source."""
    if is_embedded(options):
        for name in (f"{part}_{side}" for part in PARTS for side in ("source", "target")):
            if getattr(options, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is given without training pairs: --data or both sides.")
        splits = _embedded_splits(options)
    else:
        train, valid, test = (_read(options, part) for part in PARTS)
        if train is None:
            raise InputError(f"--data: {options.data} has no file train.{options.data_source}, plain or .gz.")
        if valid is None:
            if options.valid_links is not None:
                raise InputError("--valid-links is given without valid files.")
            train, valid = split_by_group(train, options.valid_fraction, options.data_seed)
        splits = AlignedSplits(train, valid, test)
    _read_links(options, splits)
    _read_posteriors(options, splits)
    for part, maximum in (("valid", options.max_valid_pairs), ("test", options.max_test_pairs)):
        _keep(splits, part, slice(maximum))
    if options.max_train_pairs is not None and options.max_train_pairs < len(splits.train):
        order = np.random.default_rng(options.data_seed + 2).permutation(len(splits.train))
        _keep(splits, "train", sorted(order[: options.max_train_pairs]))
    if options.shuffle_sources:
        order = np.random.default_rng(options.data_seed).permutation(len(splits.train))
        splits.train = ParallelText([splits.train.sources[index] for index in order], splits.train.targets)
        splits.links.pop("train", None)
    return splits


def _embedded_splits(options):
    pairs = embedded_pairs()
    order = np.random.default_rng(options.data_seed).permutation(len(pairs))
    held = len(pairs) // 10
    cuts = {"test": order[:held], "valid": order[held : 2 * held], "train": order[2 * held :]}
    texts, links = {}, {}
    for part, rows in cuts.items():
        chosen = [pairs[index] for index in sorted(rows)]
        texts[part] = ParallelText([pair.source for pair in chosen], [pair.target for pair in chosen])
        links[part] = [pair.links for pair in chosen]
    return AlignedSplits(texts["train"], texts["valid"], texts["test"], links)


def _read_links(options, splits):
    """Read the gold alignments of the parts that have a file of them."""
    for part in ("valid", "test"):
        path, pairs = getattr(options, f"{part}_links"), getattr(splits, part)
        if path is None:
            continue
        if pairs is None or is_embedded(options):
            raise InputError(f"--{part}-links is given without {part} files.")
        splits.links[part] = gold_links(path, pairs, options.skip_invalid)


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


def _read_posteriors(options, splits):
    """Read the alignments that take the place of an inference network."""
    if options.posterior_file is None:
        return
    if options.shuffle_sources or is_embedded(options):
        raise InputError("--posterior-file: alignments belong to the pairs of files, in their order.")
    if options.valid_source is None and (options.data is None or _files_of(options, "valid")[0] is None):
        raise InputError("--valid-posterior-file is given without validation files.")
    for part, path in (("train", options.posterior_file), ("valid", options.valid_posterior_file)):
        pairs = getattr(splits, part)
        if str(path).removesuffix(".gz").endswith(".jsonl"):
            splits.posteriors[part] = _read_probabilities(path, pairs)
            continue
        splits.posteriors[part] = [
            np.array([(j, i, 1.0) for i, j in sorted(entry.possible)], np.float32).reshape(-1, 3)
            for entry in gold_links(path, pairs, options.skip_invalid)
        ]


def _read_probabilities(path, pairs):
    lines = read_lines(path)
    if len(lines) != len(pairs):
        raise InputError(f"{path} has {len(lines)} lines for {len(pairs)} pairs.")
    posteriors = []
    for number, (line, source, target) in enumerate(zip(lines, pairs.sources, pairs.targets, strict=True), start=1):
        try:
            matrix = np.array(json.loads(line), np.float32)
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}:{number}: expected a JSON list of rows of numbers ({error})") from error
        expected = (len(words_of(target)), len(words_of(source)))
        if matrix.shape != expected:
            raise InputError(f"{path}:{number}: expected {expected[0]} rows of {expected[1]}. Received: {matrix.shape}")
        if not (np.isfinite(matrix) & (matrix >= 0)).all():
            raise InputError(f"{path}:{number}: probabilities are at least 0.")
        places = np.argwhere(matrix > 0)
        posteriors.append(np.concatenate([places, matrix[matrix > 0][:, None]], axis=1).astype(np.float32))
    return posteriors


def _keep(splits, part, rows):
    """Keep some rows of a part, given as a slice or a list of indices."""
    text = getattr(splits, part)
    if text is None:
        return

    def pick(column):
        return column[rows] if isinstance(rows, slice) else [column[row] for row in rows]

    setattr(splits, part, ParallelText(pick(text.sources), pick(text.targets), pick(text.groups), text.skipped))
    for known in (splits.links, splits.posteriors):
        if part in known:
            known[part] = pick(known[part])


def _read(options, part):
    source, target = getattr(options, f"{part}_source"), getattr(options, f"{part}_target")
    if (source is None) != (target is None):
        raise InputError(f"--{part}-source and --{part}-target belong together; one of them is missing.")
    # Files that are named stand before those of the folder.
    if source is None and options.data is not None:
        source, target = _files_of(options, part)
    return None if source is None else read_parallel(source, target, options.skip_invalid)


def _files_of(options, part):
    """Return the paths of a part's two files in `data`, or `None` twice where it has neither."""
    folder = pathlib.Path(options.data)
    if not folder.is_dir():
        raise InputError(f"--data: {folder} is not a folder.")
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


def load_splits_of(folder, options):
    """Return the `AlignedSplits` of a run; `InputError` if the files, or the installed facts, have changed since."""
    splits = load_splits(options)
    splits.require_those_of(folder)
    return splits
