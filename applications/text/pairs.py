"""Reads, encodes and batches sentence pairs, and reads the input of the command `generate`."""

import dataclasses
import sys

from applications.common.runs import write_text_atomically
from applications.common.shown import random_rows
from applications.text.batching import bucketed_dataset, num_batches
from applications.text.options import SIDES
from applications.text.readers import ParallelText, has_word, read_input, read_parallel, read_table
from applications.text.rows import IdRows


def read_part(options, part):
    """Return the sentence pairs of the split `part`, or `None` if `options` names no files for it."""
    return _read(options, *(getattr(options, f"{part}_{side}") for side in SIDES), options.skip_invalid)


def read_other(options, evaluation):
    """Return the sentence pairs to evaluate on, or `None` if `evaluation` names no files."""
    return _read(options, *(getattr(evaluation, side) for side in SIDES), options.skip_invalid or None)


def _read(options, source, target, table, skip_invalid):
    if table is not None:
        columns = options.source_column, options.target_column, options.group_column
        return read_table(table, *columns, skip_invalid)
    return None if source is None else read_parallel(source, target, skip_invalid)


def is_built_in(options, evaluation=None):
    """Return whether the built-in pairs are used: neither `options` nor `evaluation` names files."""
    return not options.has_training_pairs and not (evaluation and evaluation.names_other)


@dataclasses.dataclass
class EncodedPairs:
    """Sentence pairs and their ids. `report` counts pairs, tokens, unknown tokens and truncations."""

    pairs: ParallelText
    sources: IdRows
    targets: IdRows
    report: dict

    @classmethod
    def encode(cls, codec, pairs, max_source_length, max_target_length):
        """Encode a `ParallelText` with the `TextEncoder`s `codec.source` and `codec.target`."""
        sources, source_counts = codec.source.encode_numpy(pairs.sources, max_source_length)
        targets, target_counts = codec.target.encode_numpy(pairs.targets, max_target_length)
        report = {"pairs": len(pairs), "skipped": pairs.skipped}
        for side, counts in (("source", source_counts), ("target", target_counts)):
            report |= {f"{side}_{name}": value for name, value in dataclasses.asdict(counts).items()}
        return cls(pairs, sources, targets, report)

    def __len__(self):
        return len(self.sources)

    def rows(self, indices):
        """Return the pairs at these indices as `EncodedPairs`."""
        sides = self.sources.take(indices), self.targets.take(indices)
        return EncodedPairs(self.pairs.rows(indices), *sides, self.report)

    def num_batches(self, batch_size):
        """Return the number of batches per epoch."""
        return num_batches(len(self.sources), batch_size)

    def batches(self, batch_size, seed, first_epoch=None):
        """Return a `bucketed_dataset` of these pairs. With `first_epoch`, it is endless and shuffled."""
        return bucketed_dataset(self.sources, self.targets, batch_size, seed, first_epoch)

    def training_batches(self, options, first_epoch=None):
        """Return batches ({"source", "target_input", "target"}, target)."""
        batches = self.batches(options.fit.batch_size, options.run.seed, first_epoch)
        return batches.map(lambda inputs, target: ({**inputs, "target": target}, target))


def read_inputs(options, encoder, max_length):
    """Return the lines of `--input` or standard input, and `IdRows` of the lines that are not blank.
    Print the numbers of truncated lines and unknown tokens, if any."""
    lines = read_input(options)
    ids, report = encoder.encode_numpy(list(filter(has_word, lines)), max_length)
    if report.num_truncated or report.num_unknown:
        print(
            f"{report.num_truncated} lines are truncated to {max_length} tokens, "
            f"{report.num_unknown} of {report.num_tokens} tokens are unknown",
            file=sys.stderr,
        )
    return lines, ids


def write_samples(path, rows):
    """Write up to 200 random samples to samples.txt. Return the lines of five samples for report.txt.

    `rows` is a list of samples. A sample is a list of pairs (label, sentence). Each pair becomes one line.
    """
    # Sentences from a table may contain line breaks.
    texts = [[f"{label:12}{' '.join(sentence.split())}" for label, sentence in row] + [""] for row in rows]
    first, some = ([line for row in random_rows(len(texts), most) for line in texts[row]] for most in (5, 200))
    write_text_atomically(path, "\n".join(some) + "\n")
    return first
