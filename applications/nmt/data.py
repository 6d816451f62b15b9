"""Reads parallel text, fits its segmentation and makes the batches of the translation models."""

import dataclasses
import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

from applications.common.alignments import check_links, read_pharaoh
from applications.common.batching import bucketed_dataset, num_batches, num_token_batches
from applications.common.errors import InputError
from applications.common.readers import ParallelText, read_lines, read_parallel, split_by_group
from applications.common.splits import Splits
from applications.common.subwords import CONTINUES, CharacterEncoder, SegmentedEncoder, SubwordEncoder
from applications.common.text import END, PAD, START
from applications.nmt.embedded import embedded_pairs

PARTS = ("train", "valid", "test")
# What published data sets call their parts.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "test_2016_flickr")}


@dataclasses.dataclass
class AlignedSplits(Splits):
    """`Splits` of which some have alignments.

    Attributes:
        links: Gold alignments of a part's pairs where they are known, a dictionary from its name to a list of
            `applications.common.alignments.Links`.
        posteriors: Alignments that training takes for q, a dictionary from "train" and "valid" to one array (n, 3) a
            pair: target word, source word, probability.
    """

    links: dict = dataclasses.field(default_factory=dict)
    posteriors: dict = dataclasses.field(default_factory=dict)


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


def words_of(sentence):
    """Return the words of a sentence that may be segmented with "@@ "."""
    return sentence.replace(f"{CONTINUES} ", "").split()


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


@dataclasses.dataclass
class Codec:
    """The two text encoders of a model; with joint BPE they are one."""

    source: object
    target: object

    @classmethod
    def fit(cls, options, train):
        """Fit the segmentation on the training pairs only."""
        if options.segmentation == "bpe":
            sentences = [*dict.fromkeys(train.sources), *train.targets]
            joint = SubwordEncoder.fit(
                sentences, options.vocabulary_size, options.lowercase, options.normalization, options.data_seed
            )
            return cls(joint, joint)
        encoder = _encoder_class(options)
        return cls(
            *(
                encoder.fit(
                    sentences,
                    options.vocabulary_size,
                    lowercase=options.lowercase,
                    normalization=options.normalization,
                )
                for sentences in (train.sources, train.targets)
            )
        )

    @classmethod
    def load(cls, folder, options):
        """Read what `save` wrote into a run's folder."""
        if options.segmentation == "bpe":
            joint = SubwordEncoder.load(
                folder.path / "bpe.model", lowercase=options.lowercase, normalization=options.normalization
            )
            return cls(joint, joint)
        encoder = _encoder_class(options)
        return cls(
            *(
                encoder.load(
                    folder.path / f"{side}_vocabulary.txt",
                    lowercase=options.lowercase,
                    normalization=options.normalization,
                )
                for side in ("source", "target")
            )
        )

    def save(self, folder):
        """Write the segmentation into a run's folder."""
        if isinstance(self.source, SubwordEncoder):
            self.source.save(folder.file("bpe.model"))
            return
        self.source.save(folder.file("source_vocabulary.txt"))
        self.target.save(folder.file("target_vocabulary.txt"))


def _encoder_class(options):
    # A word without "@@" is a segment of its own.
    return CharacterEncoder if options.segmentation == "characters" else SegmentedEncoder


@dataclasses.dataclass
class EncodedPairs:
    """Ids of a split, the row of the text that each pair is, and what encoding did."""

    sources: list
    targets: list
    rows: list
    report: dict
    posteriors: list | None = None

    @classmethod
    def encode(cls, options, codec, pairs, drop_long=False, posteriors=None):
        """Encode a split.

        Args:
            options: `Options`.
            codec: `Codec`.
            pairs: `ParallelText`.
            drop_long: Whether pairs beyond `max_length` tokens are left out and counted; otherwise they are cut.
            posteriors: Alignments of the pairs' words as in `AlignedSplits`, or `None`.
        """
        limit = None if drop_long else options.max_length
        sources, source_report = codec.source.encode_numpy(pairs.sources, limit)
        targets, target_report = codec.target.encode_numpy(pairs.targets, limit)
        rows = list(range(len(pairs)))
        if drop_long:
            rows = [row for row in rows if max(len(sources[row]), len(targets[row])) <= options.max_length]
            if not rows:
                raise InputError(f"--max-length: no pair is that short. Received: {options.max_length}")
        report = {"pairs": len(rows), "skipped": pairs.skipped, "too_long": len(pairs) - len(rows)}
        for side, counts in (("source", source_report), ("target", target_report)):
            report |= {f"{side}_{name}": value for name, value in dataclasses.asdict(counts).items()}
        sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        if posteriors is not None:
            posteriors = [
                of_pieces(codec, posteriors[row], source, target)
                for row, source, target in zip(rows, sources, targets, strict=True)
            ]
        return cls(sources, targets, rows, report, posteriors)

    def num_batches(self, options):
        if options.batch_tokens is not None:
            return num_token_batches(self.sources, self.targets, options.batch_tokens)
        return num_batches(len(self.sources), options.batch_size)

    def batches(self, options, shuffle=False, first_epoch=0, num_epochs=1):
        """Return the `tf.data` set of batches: ({"source", "target_input", "target"}, target)."""
        dataset = bucketed_dataset(
            self.sources,
            self.targets,
            options.batch_size,
            start_id=START,
            end_id=END,
            shuffle=shuffle,
            seed=options.seed,
            first_epoch=first_epoch,
            num_epochs=num_epochs,
            batch_tokens=options.batch_tokens,
            extra=None if self.posteriors is None else {"posterior": self.posteriors},
        )

        def with_target(inputs, target):
            inputs = {**inputs, "target": target}
            if self.posteriors is not None:
                inputs["posterior_logits"] = posterior_logits(inputs, options.posterior_smoothing)
                del inputs["posterior"]
            return inputs, target

        return dataset.map(with_target)


def of_pieces(codec, posterior, source, target):
    """Return the (n, 3) alignment of a pair's pieces from that of its words.

    All pieces of a target word have its row; the pieces of a source word share its probability.
    """
    sides = ((codec.target, target), (codec.source, source))
    target_words, source_words = (np.array(encoder.word_of_piece(encoder.pieces(ids)), int) for encoder, ids in sides)
    found = []
    for target_word, source_word, probability in posterior:
        places = np.flatnonzero(source_words == source_word)
        found += [
            (row, place, probability / len(places))
            for row in np.flatnonzero(target_words == target_word)
            for place in places
        ]
    return np.array(found, np.float32).reshape(-1, 3)


def posterior_logits(inputs, smoothing):
    """Return log q (B, T, S) of a batch: the alignments of "posterior", smoothed; uniform where a word has none."""
    ragged, source = inputs["posterior"], inputs["source"]
    shape = tf.stack([tf.shape(source)[0], tf.shape(inputs["target"])[1], tf.shape(source)[1]])
    places = tf.cast(ragged.values[:, :2], tf.int32)
    places = tf.concat([tf.cast(ragged.value_rowids(), tf.int32)[:, None], places], axis=1)
    weights = tf.scatter_nd(places, ragged.values[:, 2], shape)
    valid = tf.cast(source != PAD, tf.float32)[:, None]
    uniform = valid / tf.maximum(tf.reduce_sum(valid, axis=-1, keepdims=True), 1.0)
    total = tf.reduce_sum(weights, axis=-1, keepdims=True)
    weights = tf.where(total > 0, tf.math.divide_no_nan(weights, total), uniform)
    return tf.math.log(tf.maximum((1.0 - smoothing) * weights + smoothing * uniform, 1e-9))
