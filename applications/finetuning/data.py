"""Read texts with labels or scores, and encode them for a transformer.

Shapes: N examples, B examples per batch, L tokens.
"""

import contextlib
import dataclasses

import numpy as np
import tensorflow as tf

from applications.common.batches import array_batches, prefetched
from applications.common.errors import InputError
from applications.common.records import read_record
from applications.common.runs import write_json
from applications.finetuning import embedded, spans
from applications.finetuning.options import TASKS
from applications.finetuning.tokens import TextEncoder
from applications.text.batching import cheapest_cuts, num_buckets
from applications.text.readers import has_word, table_rows

# Batch lengths are rounded up to a multiple of this many tokens.
MULTIPLE = 8
# Training sorts the examples by length within pools of this many batches.
POOL = 32


@dataclasses.dataclass
class Texts:
    """The examples of a file. `seconds` is `None` without pairs. Labels are strings or, for scores, floats."""

    firsts: list
    seconds: list | None
    labels: list

    def __len__(self):
        return len(self.firsts)

    @property
    def columns(self):
        return [self.firsts] if self.seconds is None else [self.firsts, self.seconds]

    def rows(self, chosen):
        return Texts(*(column and [column[row] for row in chosen] for column in vars(self).values()))


def read(options):
    """Return the `Texts` or `spans.Questions` of each split."""
    texts = options.texts
    if texts.train is None:
        if texts.task != "classes":
            raise InputError(f"--task: {texts.task} requires --train; the built-in sentences only have classes.")
        return embedded_parts()
    parts = {name: read_examples(path, texts) for name in ("train", "valid", "test") if (path := getattr(texts, name))}
    if "valid" not in parts:
        parts["train"], parts["valid"] = _cut(parts["train"], texts)
    if TASKS[texts.task].kind == "classes":
        known_labels = set(parts["train"].labels)
        if len(known_labels) < 2:
            raise InputError(f"--train: {texts.train}: expected at least 2 labels. Received: only {known_labels.pop()}")
        for name in parts.keys() - {"train"}:
            _require_known(parts[name].labels, known_labels, f"--{name}: ")
    return parts


def _cut(examples, options):
    """Return two random parts, `(train, held_out)`; `train` has an example of every class."""
    order = np.random.default_rng(0).permutation(len(examples))
    if TASKS[options.task].kind == "classes":
        reserved = {examples.labels[row]: row for row in order}.values()
    else:
        reserved = order[-1:]
    candidates = order[~np.isin(order, list(reserved))]
    held_out = np.sort(candidates[: max(1, round(len(order) * options.valid_fraction))])
    if not held_out.size:
        raise InputError(
            f"--train: {options.train}: expected more than {len(order)} examples, because training needs an "
            "example of each class, and validation needs a further example. Add examples, or set --valid."
        )
    return examples.rows(np.setdiff1d(order, held_out)), examples.rows(held_out)


def _require_known(labels, known_labels, prefix=""):
    for label in labels:
        if label not in known_labels:
            raise InputError(
                f"{prefix}expected a label from the training data: {', '.join(sorted(known_labels))}. Received: {label}"
            )


def read_other(options, evaluation):
    return None if evaluation.data is None else read_examples(evaluation.data, options.texts)


def read_examples(path, options):
    """Return the examples of a file: `spans.Questions` for a span task, otherwise `Texts`."""
    task = TASKS[options.task]
    if task.kind == "span":
        return spans.read_squad(path)
    # Do not parse GLUE's files as CSV: their quotation marks are part of the text.
    rows = list(table_rows(path, ".csv" if path.removesuffix(".gz").endswith(".csv") else ".tsv"))
    header = [name.strip() for name in rows[0][1]] if rows else []
    names = [options.text_column, options.pair_column, options.label_column]
    names = [name or default for name, default in zip(names, task.columns)]
    if options.pair_column is None and names[1] == "pair" and "pair" not in header:
        names[1] = None
    missing = [name for name in names if name is not None and name not in header]
    repeated = [name for name in names if header.count(name) > 1]
    if repeated or (missing and task.places is None):
        expected = f"a header with the column {missing[0]}" if missing else f"one column {repeated[0]}"
        raise InputError(f"{path}:1: expected {expected}. Received: {', '.join(header)[:80]}")
    if missing:
        indices, width = task.places, None
    else:
        indices, width, rows = [None if x is None else header.index(x) for x in names], len(header), rows[1:]
    examples = [_example(f"{path}:{line}", row, indices, width, task) for line, row in rows]
    if not examples:
        raise InputError(f"{path}: expected examples. Received: none")
    firsts, seconds, labels = map(list, zip(*examples))
    return Texts(firsts, None if indices[1] is None else seconds, labels)


def _example(position, row, indices, width, task):
    """Return the text, the second text or `None`, and the label (str) or score (float) of a row."""
    num_needed = 1 + max(column for column in indices if column is not None)
    if len(row) < num_needed:
        raise InputError(f"{position}: expected at least {num_needed} columns. Received: {len(row)}")
    if width is not None and len(row) > width:
        hint = "as in the header; in a .csv, put texts with commas in quotation marks"
        raise InputError(f"{position}: expected {width} columns, {hint}. Received: {len(row)}")
    # A line break or a tab in a text would break the run's output files.
    first, second, label = (None if column is None else " ".join(row[column].split()) for column in indices)
    if not label:
        raise InputError(f"{position}: expected a label. Received an empty label.")
    if task.labels and label not in task.labels:
        raise InputError(f"{position}: expected one of the labels {', '.join(task.labels)}. Received: {label[:40]!r}")
    if not all(text is None or has_word(text) for text in (first, second)):
        raise InputError(f"{position}: expected a text with visible characters. Received a blank text.")
    if task.kind != "score":
        return first, second, label
    with contextlib.suppress(ValueError):
        if np.isfinite(float(label)):
            return first, second, float(label)
    raise InputError(f"{position}: expected a score. Received: {label[:40]!r}")


def embedded_parts():
    """Return the built-in `Texts` of each split. No docstring has sentences in two splits."""
    parts = {name: Texts([], None, []) for name in embedded.TENTHS}
    for text, topic, tenth in embedded.labelled():
        part = next(parts[name] for name, tenths in embedded.TENTHS.items() if tenth in tenths)
        part.firsts.append(text)
        part.labels.append(topic)
    return parts


@dataclasses.dataclass
class Codec:
    """The text encoder, the labels and the transformer config of a run.

    Attributes:
        encoder: `TextEncoder`.
        labels: Class names; `None` for scores and answer spans.
        backbone: Config of the transformer.
        pairs: Whether an example is a pair of texts.
    """

    encoder: TextEncoder
    labels: list | None
    backbone: dict
    pairs: bool

    def save(self, folder):
        self.encoder.save(folder.path / "tokenizer")
        record = {"labels": self.labels, "backbone": self.backbone, "pairs": self.pairs}
        write_json(folder.file("labels.json"), record | {"max_length": self.encoder.max_length})


def load_codec(options, folder):
    record = read_record(folder.path / "labels.json")
    encoder = TextEncoder.load(folder.path / "tokenizer", record["max_length"])
    return Codec(encoder, record["labels"], record["backbone"], record["pairs"])


@dataclasses.dataclass
class Encoded:
    """The encoded examples of a split.

    Attributes:
        part: `Texts` or `spans.Questions`.
        ids: Token ids with special tokens, ragged (N, None). For questions, each row is a window: [CLS] question [SEP]
            chunk of the context [SEP].
        num_first: Number of tokens before the second text. For questions, number of tokens before the context.
        targets: Classes (N,) or scores (N,). For questions, indices (N, 2) of the first and last answer token; both are
            0 without an answer.
        report: Counts of examples and tokens.
        questions: For each window, the index of the question; `None` in other tasks.
        places: For each window, the character offsets (start, end) of the context tokens; `None` in other tasks.
    """

    part: Texts | spans.Questions
    ids: tf.RaggedTensor
    num_first: np.ndarray
    targets: np.ndarray
    report: dict
    questions: np.ndarray | None = None
    places: list | None = None

    def num_batches(self, batch_size):
        return -(-len(self.targets) // batch_size)

    def batches(self, options, first_epoch=None):
        """Return batches of ({"token_ids", "segment_ids", "padding_mask"} (B, L), targets).

        Training batches group examples of similar length. A full batch is padded to the length of its longest example,
        rounded up. A smaller last batch is padded to the maximum length. All batches together have at most
        `batching.MAX_SHAPES` shapes.

        Args:
            options: `Options`.
            first_epoch: `None` for one pass in order. An integer is the first of endless shuffled epochs.
        """
        batch_size, lengths = options.fit.batch_size, self.ids.row_lengths().numpy()
        rounded = np.minimum(-(-lengths // MULTIPLE) * MULTIPLE, options.texts.max_length)
        lengths, counts = np.unique(rounded, return_counts=True)
        lengths = lengths[cheapest_cuts(counts, lengths, num_buckets(len(rounded), batch_size))]
        with tf.device("CPU:0"):
            num_first, targets = tf.constant(self.num_first, tf.int32), tf.constant(self.targets)
            lengths = tf.constant(lengths, tf.int64)

        def batch_of(rows):
            ids = tf.gather(self.ids, rows)
            length = lengths[tf.searchsorted(lengths, ids.bounding_shape()[1:])[0]]
            length = tf.where(tf.size(rows) < batch_size, lengths[-1], length)
            return padded(ids, tf.gather(num_first, rows), length), tf.gather(targets, rows)

        if first_epoch is None:
            rows = array_batches(np.arange(len(self.targets)), batch_size)
        else:
            rows = self._rows_of_batches(batch_size, options.run.seed, first_epoch)
        return prefetched(rows.map(batch_of))

    def _rows_of_batches(self, batch_size, seed, first_epoch):
        """Return a dataset with the row indices of each batch."""
        num_rows, lengths = len(self.targets), tf.cast(self.ids.row_lengths(), tf.int32)
        pools = tf.range(num_rows) // (POOL * batch_size) * (1 + tf.reduce_max(lengths))

        def epoch_batches(epoch):
            order = tf.random.experimental.stateless_shuffle(tf.range(num_rows), tf.stack([seed, 2 * epoch]))
            order = tf.gather(order, tf.argsort(pools + tf.gather(lengths, order), stable=True))
            starts = tf.range(0, num_rows, batch_size)
            starts = tf.random.experimental.stateless_shuffle(starts, tf.stack([seed, 2 * epoch + 1]))
            return tf.data.Dataset.from_tensor_slices(starts).map(lambda start: order[start : start + batch_size])

        return tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(epoch_batches)


def encode(options, codec, part, training=False):
    """Return the `Encoded` examples of a split."""
    if isinstance(part, spans.Questions):
        windows = spans.windows_of(codec.encoder, part, options.texts.stride)
        answered = sum(map(bool, part.answers))
        report = {"questions": len(part), "with an answer": answered, "windows": len(windows["targets"])}
        return Encoded(part, report=report, **windows)
    ids, num_first, cut = codec.encoder.encode_all(*part.columns)
    report = {"examples": len(part), "tokens": len(ids.flat_values), "cut": np.count_nonzero(cut)}
    if codec.labels is None:
        return Encoded(part, ids, num_first, np.array(part.labels, np.float32), report)
    _require_known(part.labels, codec.labels)
    targets = np.array([codec.labels.index(label) for label in part.labels], np.int32)
    counts = {f"class {label}": part.labels.count(label) for label in codec.labels}
    report |= counts if len(counts) <= 10 else {"classes": len(counts)}
    return Encoded(part, ids, num_first, targets, report)


def own_length(ragged, max_length):
    """Return the padded length for ragged ids (B, None): a multiple of `MULTIPLE`, at most `max_length`."""
    # A batch without tokens would fail: the transformer reads the first token.
    longest = tf.maximum(ragged.bounding_shape()[1], 1)
    return tf.minimum(-(-longest // MULTIPLE) * MULTIPLE, max_length)


def padded(ragged, num_first, length):
    """Return the transformer inputs for ragged token ids (B, None), padded to `length`."""
    lengths = ragged.row_lengths()
    mask = tf.sequence_mask(lengths, length, tf.int32)
    token_ids = ragged.to_tensor(shape=tf.stack([ragged.nrows(), length]))
    return {
        "token_ids": tf.ensure_shape(token_ids, [None, None]),
        "segment_ids": mask * (1 - tf.sequence_mask(num_first, length, tf.int32)),
        "padding_mask": mask,
    }
