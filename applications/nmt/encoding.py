"""From parallel text to ids and batches: the segmentation that a model has, and alignments of its pieces."""

import dataclasses
import hashlib

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.runs import write_text_atomically
from applications.nmt.subwords import CharacterEncoder, SegmentedEncoder, SubwordEncoder
from applications.text.pairs import EncodedPairs, side_reports
from applications.text.text import PAD

SEGMENTATION_DIGEST = "segmentation.sha256"


@dataclasses.dataclass
class Codec:
    """The two text encoders of a model; with joint BPE they are one."""

    source: object
    target: object

    @classmethod
    def fit(cls, options, train):
        """Fit the segmentation on the training pairs only."""
        text, normal = options.text, _normal(options)
        if text.segmentation == "bpe":
            sentences = [*dict.fromkeys(train.sources), *train.targets]
            joint = SubwordEncoder.fit(sentences, text.vocabulary_size, **normal)
            return cls(joint, joint)
        fit = _encoder_class(options).fit
        return cls(*(fit(sentences, text.vocabulary_size, **normal) for sentences in (train.sources, train.targets)))

    @classmethod
    def load(cls, folder, options):
        """Read what `save` wrote into a run's folder; `InputError` if it is not what the model was trained with."""
        joint = options.text.segmentation == "bpe"
        files = ["bpe.model"] if joint else ["source_vocabulary.txt", "target_vocabulary.txt"]
        digest = folder.path / SEGMENTATION_DIGEST
        if digest.exists() and digest.read_text(encoding="utf-8").strip() != _digest(folder, files):
            raise InputError(f"{folder.path}: {' and '.join(files)} are not those that this run was trained with.")
        load = (SubwordEncoder if joint else _encoder_class(options)).load
        encoders = [load(folder.path / name, **_normal(options)) for name in files]
        return cls(encoders[0], encoders[-1])

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


def _normal(options):
    form = options.text.normalization
    return {"lowercase": options.text.lowercase, "normalization": None if form == "none" else form}


def _encoder_class(options):
    # A word without "@@" is a segment of its own.
    return CharacterEncoder if options.text.segmentation == "characters" else SegmentedEncoder


@dataclasses.dataclass
class EncodedText(EncodedPairs):
    """`EncodedPairs`, and the alignments of their pieces that training takes for q.

    Attributes:
        posteriors: An array (n, 3) a pair: target piece, source piece, probability; or `None`.
    """

    posteriors: list | None = None

    @classmethod
    def of(cls, options, codec, pairs, training=False):
        """Encode an `AlignedText`.

        Args:
            options: `Options`.
            codec: `Codec`.
            pairs: `AlignedText`.
            training: Whether pairs beyond `max_length` tokens are left out and counted; otherwise they are cut. Of
                these pairs, one with a side of no token is an `InputError`, or counted (`skip_invalid`).
        """
        text = options.text
        limit = None if training else text.max_length
        sources, source_report = codec.source.encode_numpy(pairs.sources, limit)
        targets, target_report = codec.target.encode_numpy(pairs.targets, limit)
        rows, num_empty = list(range(len(pairs))), 0
        if training:
            # A control character is text until it is normalised.
            empty = [row for row in rows if not (len(sources[row]) and len(targets[row]))]
            if empty and not text.skip_invalid:
                raise InputError(
                    f"pair {empty[0] + 1} of the training split: segmentation leaves nothing of a side. Received: "
                    f"{pairs.sources[empty[0]]!r}, {pairs.targets[empty[0]]!r}"
                )
            num_empty = len(empty)
            rows = [row for row in rows if min(len(sources[row]), len(targets[row])) > 0]
            rows = [row for row in rows if max(len(sources[row]), len(targets[row])) <= text.max_length]
            if not rows:
                raise InputError(f"--max-length: no pair is that short. Received: {text.max_length}")
        report = {"pairs": len(rows), "skipped": pairs.skipped, "empty": num_empty}
        report["too_long"] = len(pairs) - len(rows) - num_empty
        kept = pairs.rows(rows)
        sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        posteriors = None
        if kept.posteriors is not None:
            of_source = codec.source.words_of_pieces(kept.sources)
            of_target = codec.target.words_of_pieces(kept.targets)
            posteriors = [
                of_pieces(posterior, of_source[index][: len(source)], of_target[index][: len(target)])
                for index, (posterior, source, target) in enumerate(zip(kept.posteriors, sources, targets, strict=True))
            ]
        return cls(kept, sources, targets, report | side_reports(source_report, target_report), posteriors)

    def training_batches(self, options, first_epoch=None):
        """Return the `tf.data` set of batches: ({"source", "target_input", "target"}, target)."""
        extra = None if self.posteriors is None else {"posterior": self.posteriors}
        dataset = self.batches(
            options.fit.batch_size,
            options.run.seed,
            first_epoch,
            batch_tokens=options.text.batch_tokens,
            extra=extra,
        )

        def with_target(inputs, target):
            inputs = {**inputs, "target": target}
            if self.posteriors is not None:
                inputs["posterior_logits"] = posterior_logits(inputs, options.text.posterior_smoothing)
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
