"""From parallel text to ids and batches."""

import dataclasses

import numpy as np

from applications.common.errors import InputError
from applications.nmt.subwords import PieceEncoder, SubwordEncoder, WordEncoder
from applications.text.pairs import EncodedPairs

_JOINT, _SIDES = ("bpe.model",), ("source_vocabulary.txt", "target_vocabulary.txt")


@dataclasses.dataclass
class Codec:
    """The two text encoders of a model; with a joint SentencePiece model they are one."""

    source: PieceEncoder
    target: PieceEncoder

    @classmethod
    def fit(cls, options, train):
        """Fit the segmentation on the training pairs only."""
        size, lowercase = options.text.vocabulary_size, options.text.lowercase
        if options.text.segmentation == "bpe":
            joint = SubwordEncoder.fit([*dict.fromkeys(train.sources), *train.targets], size, lowercase)
            return cls(joint, joint)
        return cls(*(WordEncoder.fit(sentences, size, lowercase) for sentences in (train.sources, train.targets)))

    @classmethod
    def load(cls, folder, options):
        """Read the segmentation of a run."""
        kind, names = (SubwordEncoder, _JOINT) if options.text.segmentation == "bpe" else (WordEncoder, _SIDES)
        encoders = [kind.load(folder.path / name, options.text.lowercase) for name in names]
        return cls(encoders[0], encoders[-1])

    def save(self, folder):
        """Write the segmentation into a run's folder."""
        names = _JOINT if self.source is self.target else _SIDES
        for name, encoder in zip(names, (self.source, self.target), strict=False):
            encoder.save(folder.file(name))


@dataclasses.dataclass
class EncodedText(EncodedPairs):
    """`EncodedPairs` of `AlignedText`; training leaves out pairs that are too long."""

    @classmethod
    def of(cls, options, codec, pairs, training=False):
        """Encode an `AlignedText`.

        Args:
            options: `Options`.
            codec: `Codec`.
            pairs: `AlignedText`.
            training: Whether pairs beyond `max_length` tokens are left out and counted; otherwise they are cut. A
                training pair with a side of no token is an `InputError`, or counted (`skip_invalid`).
        """
        limit = None if training else options.text.max_length
        encoded = cls.encode(codec, pairs, limit, limit)
        encoded.report |= {"empty": 0, "too_long": 0}
        if not training:
            return encoded
        lengths = np.array([list(map(len, row)) for row in zip(encoded.sources, encoded.targets, strict=True)])
        # A control character is text until it is normalised.
        is_empty, is_long = lengths.min(axis=1) == 0, lengths.max(axis=1) > options.text.max_length
        if is_empty.any() and not options.text.skip_invalid:
            first = int(is_empty.argmax())
            raise InputError(
                f"pair {first + 1} of the training split: segmentation leaves nothing of a side. Received: "
                f"{pairs.sources[first]!r}, {pairs.targets[first]!r}"
            )
        rows = np.flatnonzero(~is_empty & ~is_long)
        if not len(rows):
            raise InputError(f"--max-length: no pair is that short. Received: {options.text.max_length}")
        counts = {"pairs": len(rows), "empty": int(is_empty.sum()), "too_long": int((is_long & ~is_empty).sum())}
        sides = ([side[row] for row in rows] for side in (encoded.sources, encoded.targets))
        return cls(pairs.rows(rows), *sides, encoded.report | counts)

    def training_batches(self, options, first_epoch=None):
        """Return the `tf.data` set of batches: ({"source", "target_input", "target"}, target)."""
        dataset = self.batches(options.fit.batch_size, options.run.seed, first_epoch)
        return dataset.map(lambda inputs, target: ({**inputs, "target": target}, target))
