"""From parallel text to ids and batches: the segmentation that a model has, and alignments of its pieces."""

import dataclasses
import hashlib

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.runs import write_text_atomically
from applications.nmt.subwords import CharacterEncoder, SegmentedEncoder, SubwordEncoder
from applications.text.batching import bucketed_dataset, num_batches, num_token_batches
from applications.text.text import END, PAD, START

SEGMENTATION_DIGEST = "segmentation.sha256"


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
        """Read what `save` wrote into a run's folder; `InputError` if it is not what the model was trained with."""
        files = ["bpe.model"] if options.segmentation == "bpe" else ["source_vocabulary.txt", "target_vocabulary.txt"]
        digest = folder.path / SEGMENTATION_DIGEST
        if digest.exists() and digest.read_text(encoding="utf-8").strip() != _digest(folder, files):
            raise InputError(f"{folder.path}: {' and '.join(files)} are not those that this run was trained with.")
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
        encoders = {"source_vocabulary.txt": self.source, "target_vocabulary.txt": self.target}
        if isinstance(self.source, SubwordEncoder):
            encoders = {"bpe.model": self.source}
        for name, encoder in encoders.items():
            encoder.save(folder.file(name))
        # Another segmentation of the same size would give the weights other words.
        write_text_atomically(folder.file(SEGMENTATION_DIGEST), _digest(folder, encoders) + "\n")


def _digest(folder, names):
    digest = hashlib.sha256()
    for name in names:
        try:
            digest.update((folder.path / name).read_bytes())
        except OSError as error:
            raise InputError(f"{folder.path / name} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


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
            drop_long: Whether pairs beyond `max_length` tokens are left out and counted; otherwise they are cut. Of
                these, the training pairs, one with a side of no token is an `InputError`, or counted (`skip_invalid`).
            posteriors: Alignments of the pairs' words as in `AlignedSplits`, or `None`.
        """
        limit = None if drop_long else options.max_length
        sources, source_report = codec.source.encode_numpy(pairs.sources, limit)
        targets, target_report = codec.target.encode_numpy(pairs.targets, limit)
        rows, num_empty = list(range(len(pairs))), 0
        if drop_long:
            # A control character is text until it is normalised.
            empty = [row for row in rows if not (len(sources[row]) and len(targets[row]))]
            if empty and not options.skip_invalid:
                raise InputError(
                    f"pair {empty[0] + 1} of the training split: segmentation leaves nothing of a side. Received: "
                    f"{pairs.sources[empty[0]]!r}, {pairs.targets[empty[0]]!r}"
                )
            num_empty = len(empty)
            rows = [row for row in rows if min(len(sources[row]), len(targets[row])) > 0]
            rows = [row for row in rows if max(len(sources[row]), len(targets[row])) <= options.max_length]
            if not rows:
                raise InputError(f"--max-length: no pair is that short. Received: {options.max_length}")
        report = {"pairs": len(rows), "skipped": pairs.skipped, "empty": num_empty}
        report["too_long"] = len(pairs) - len(rows) - num_empty
        for side, counts in (("source", source_report), ("target", target_report)):
            report |= {f"{side}_{name}": value for name, value in dataclasses.asdict(counts).items()}
        sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        if posteriors is not None:
            of_source, of_target = (
                encoder.words_of_pieces([sentences[row] for row in rows])
                for encoder, sentences in ((codec.source, pairs.sources), (codec.target, pairs.targets))
            )
            posteriors = [
                of_pieces(posteriors[row], of_source[index][: len(source)], of_target[index][: len(target)])
                for index, (row, source, target) in enumerate(zip(rows, sources, targets, strict=True))
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


def of_pieces(posterior, source_words, target_words):
    """Return the (n, 3) alignment of a pair's pieces from that of its words.

    All pieces of a target word have its row; the pieces of a source word share its probability.

    Args:
        posterior: (n, 3): target word, source word, probability.
        source_words: (S,), the word of each source piece.
        target_words: (T,), likewise.
    """
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
