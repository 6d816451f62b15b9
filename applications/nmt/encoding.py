"""From parallel text to ids and batches."""

import dataclasses
import hashlib

from applications.common.errors import InputError
from applications.common.runs import write_text_atomically
from applications.nmt.subwords import SubwordEncoder, WordEncoder
from applications.text.pairs import EncodedPairs, side_reports

SEGMENTATION_DIGEST = "segmentation.sha256"
_JOINT, _SIDES = ("bpe.model",), ("source_vocabulary.txt", "target_vocabulary.txt")


@dataclasses.dataclass
class Codec:
    """The two text encoders of a model; with a joint SentencePiece model they are one."""

    source: object
    target: object

    @classmethod
    def fit(cls, options, train):
        """Fit the segmentation on the training pairs only."""
        size, normal = options.text.vocabulary_size, _normal(options)
        if options.text.segmentation == "bpe":
            joint = SubwordEncoder.fit([*dict.fromkeys(train.sources), *train.targets], size, **normal)
            return cls(joint, joint)
        return cls(*(WordEncoder.fit(sentences, size, **normal) for sentences in (train.sources, train.targets)))

    @classmethod
    def load(cls, folder, options):
        """Read what `save` wrote into a run's folder; `InputError` if it is not what the model was trained with."""
        joint = options.text.segmentation == "bpe"
        paths = [folder.path / name for name in (_JOINT if joint else _SIDES)]
        if _read(folder.path / SEGMENTATION_DIGEST).strip() != _digest(paths).encode():
            names = " and ".join(path.name for path in paths)
            raise InputError(f"{folder.path}: {names} are not those that this run was trained with.")
        load = (SubwordEncoder if joint else WordEncoder).load
        encoders = [load(path, **_normal(options)) for path in paths]
        return cls(encoders[0], encoders[-1])

    def save(self, folder):
        """Write the segmentation into a run's folder."""
        paths = [folder.file(name) for name in (_JOINT if self.source is self.target else _SIDES)]
        for path, encoder in zip(paths, (self.source, self.target), strict=False):
            encoder.save(path)
        # Another segmentation of the same size would give the weights other words.
        write_text_atomically(folder.file(SEGMENTATION_DIGEST), _digest(paths) + "\n")


def _digest(paths):
    return hashlib.sha256(b"".join(map(_read, paths))).hexdigest()


def _read(path):
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error


def _normal(options):
    form = options.text.normalization
    return {"lowercase": options.text.lowercase, "normalization": None if form == "none" else form}


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
