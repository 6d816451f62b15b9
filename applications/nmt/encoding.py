"""From parallel text to ids and batches: the segmentation that a model has, and alignments of its pieces."""

import dataclasses
import hashlib

from applications.common.errors import InputError
from applications.common.runs import write_text_atomically
from applications.nmt.subwords import CharacterEncoder, SegmentedEncoder, SubwordEncoder
from applications.text.pairs import EncodedPairs, side_reports

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
    """`EncodedPairs` of which training leaves out those that are too long."""

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
        return cls(kept, sources, targets, report | side_reports(source_report, target_report))

    def training_batches(self, options, first_epoch=None):
        """Return the `tf.data` set of batches: ({"source", "target_input", "target"}, target)."""
        dataset = self.batches(options.fit.batch_size, options.run.seed, first_epoch)
        return dataset.map(lambda inputs, target: ({**inputs, "target": target}, target))
