"""Texts with labels or scores, and the tokens that a transformer reads of them.

Shapes: B examples of a batch, L tokens.
"""

import csv
import dataclasses
import io
import json

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.runs import write_json
from applications.finetuning import embedded, spans
from applications.finetuning.options import TASKS
from applications.finetuning.tokens import TextEncoder
from applications.text.readers import read_lines

# What a codec is saved in, beside the folder of its encoder.
LABELS = "labels.json"
# Lengths of a batch are multiples of it.
MULTIPLE = 8


@dataclasses.dataclass
class Texts:
    """Examples as they were read.

    Attributes:
        firsts: The texts.
        seconds: The other text of each pair, `None` where there are no pairs.
        labels: A label (str) or score (float) of each.
    """

    firsts: list
    seconds: list | None
    labels: list

    def __len__(self):
        return len(self.firsts)

    def rows(self, chosen):
        seconds = None if self.seconds is None else [self.seconds[row] for row in chosen]
        return Texts([self.firsts[row] for row in chosen], seconds, [self.labels[row] for row in chosen])


def load(options):
    """Return the parts that the options describe, a dictionary of `Texts` or `spans.Questions`."""
    given = options.texts
    if given.train is None:
        if given.task != "classes":
            raise InputError(f"--task: the embedded sentences have classes; {given.task} needs --train.")
        return embedded_parts()
    parts = {name: read(getattr(given, name), given) for name in ("train", "valid", "test") if getattr(given, name)}
    order = np.random.default_rng(given.split_seed).permutation(len(parts["train"]))
    held_out = 0
    if "valid" not in parts:
        held_out = max(1, round(len(order) * given.valid_fraction))
        parts["valid"] = parts["train"].rows(np.sort(order[:held_out]))
    chosen = order[held_out:][: given.max_examples]
    if not len(chosen):
        raise InputError(f"--train: {given.train} has {len(order)} examples, of which none is left to train on.")
    parts["train"] = parts["train"].rows(np.sort(chosen))
    if TASKS[given.task].kind == "classes":
        known = set(parts["train"].labels)
        if len(known) < 2:
            raise InputError(f"--train: {given.train} has one label, {known.pop()}; two at least are needed.")
        for name in ("valid", "test"):
            if name in parts:
                _require_known(parts[name].labels, known, f"--{name}: ")
    return parts


def _require_known(labels, known, place=""):
    for label in labels:
        if label not in known:
            raise InputError(f"{place}no training example has the label {label}; they have {', '.join(sorted(known))}.")


def read(path, given):
    """Return the examples of a file in the layout of the task."""
    task = TASKS[given.task]
    if task.kind == "span":
        return spans.read_squad(path)
    rows = list(_rows(path))
    columns = _columns(path, rows, task, given)
    found = Texts([], None if columns[1] is None else [], [])
    for line, row in rows[columns[3] :]:
        place = f"{path}:{line}"
        needed = 1 + max(column for column in columns[:3] if column is not None)
        if len(row) < needed:
            raise InputError(f"{place}: expected {needed} columns at least. Received: {len(row)}")
        if columns[3] and len(row) > len(rows[0][1]):
            raise InputError(
                f"{place}: expected {len(rows[0][1])} columns, as the header has; in a .csv a text with a comma stands "
                f"in quotation marks. Received: {len(row)}"
            )
        label = row[columns[2]].strip()
        if task.kind == "score":
            try:
                label = float(label)
            except ValueError as error:
                raise InputError(f"{place}: expected a score. Received: {label[:40]!r}") from error
            if not np.isfinite(label):
                raise InputError(f"{place}: expected a finite score. Received: {label}")
        # One line, without tabs: so they stand in the files of a run.
        texts = [" ".join(row[column].split()) for column in columns[:2] if column is not None]
        if not label and label != 0.0:
            raise InputError(f"{place}: the label is empty.")
        if task.labels and label not in task.labels:
            raise InputError(f"{place}: expected a label of {', '.join(task.labels)}. Received: {label[:40]!r}")
        if not all(texts):
            raise InputError(f"{place}: a text is empty.")
        found.firsts.append(texts[0])
        if found.seconds is not None:
            found.seconds.append(texts[1])
        found.labels.append(label)
    if not found.firsts:
        raise InputError(f"{path}: expected examples. Received: none")
    return found


def _rows(path):
    """Yield the lines of a table, each its number and its cells."""
    text = "\n".join(read_lines(path))
    if path.removesuffix(".gz").endswith(".csv"):
        reader = csv.reader(io.StringIO(text), strict=True)
        try:
            yield from ((reader.line_num, row) for row in reader if row)
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: cannot be read as a CSV: {error}") from error
    else:
        # GLUE's files have quotation marks that mean nothing.
        yield from ((number, line.split("\t")) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _columns(path, rows, task, given):
    """Return the places of text, pair and label in a row, and whether there is a header."""
    head = [name.strip() for name in rows[0][1]] if rows else []
    asked = [given.text_column, given.pair_column, given.label_column]
    names = [own or name for own, name in zip(asked, task.columns, strict=True)]
    if task.columns == ("text", "pair", task.columns[2]) and given.pair_column is None and "pair" not in head:
        names[1] = None
    if all(name is None or name in head for name in names):
        return (*(None if name is None else head.index(name) for name in names), True)
    places = task.places if not any(asked) else [int(name) if name and name.isdigit() else None for name in asked]
    if places and places[0] and places[2]:
        return (*(None if place is None else place - 1 for place in places), False)
    missing = next(name for name in names if name is not None and name not in head)
    raise InputError(f"{path}:1: expected a header with the column {missing}. Received: {', '.join(head)[:80]}")


def embedded_parts():
    """Return sentences of the standard library, and whether their words are in order."""
    sentences, labels = embedded.labelled()
    found = Texts(sentences, None, labels)
    tenth = len(found) // 10
    cuts = {"test": (0, 2 * tenth), "valid": (2 * tenth, 3 * tenth), "train": (3 * tenth, len(found))}
    return {name: found.rows(range(*cuts[name])) for name in ("train", "valid", "test")}


@dataclasses.dataclass
class Codec:
    """What turns texts into tokens and answers into names.

    Attributes:
        encoder: `TextEncoder`.
        labels: Names of the classes, `None` of a score or spans.
        backbone: Config of the transformer that reads the tokens.
        pairs: Whether an example is two texts.
    """

    encoder: TextEncoder
    labels: list | None
    backbone: dict
    pairs: bool

    def save(self, folder):
        self.encoder.save(folder.path / "tokenizer")
        record = {"labels": self.labels, "backbone": self.backbone, "pairs": self.pairs}
        record["max_length"] = self.encoder.max_length
        write_json(folder.file(LABELS), record)

    @classmethod
    def load(cls, folder):
        try:
            record = json.loads((folder.path / LABELS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{folder.path / LABELS} cannot be read: {error}") from error
        encoder = TextEncoder.load(folder.path / "tokenizer", record["max_length"])
        return cls(encoder, record["labels"], record["backbone"], record["pairs"])


@dataclasses.dataclass
class EncodedPart:
    """The tokens of a part.

    Attributes:
        part: `Texts`.
        ids: Token ids of each example, with the marks.
        num_first: Tokens of each before its second text.
        targets: Classes (N,) or scores (N,).
        report: How many there are, and how many were cut.
    """

    part: Texts
    ids: list
    num_first: np.ndarray
    targets: np.ndarray
    report: dict

    @classmethod
    def of(cls, codec, part):
        ids, num_first, cut = codec.encoder.encode_all(part.firsts, part.seconds)
        if codec.labels is None:
            targets = np.array(part.labels, np.float32)
        else:
            numbers = {label: number for number, label in enumerate(codec.labels)}
            _require_known(part.labels, numbers)
            targets = np.array([numbers[label] for label in part.labels], np.int32)
        report = {"examples": len(ids), "tokens": int(sum(map(len, ids))), "cut": cut}
        if codec.labels is not None:
            counts = np.bincount(targets, minlength=len(codec.labels))
            # Of many classes their number says enough.
            if len(counts) <= 10:
                report |= {f"class {label}": count for label, count in zip(codec.labels, counts.tolist(), strict=True)}
            else:
                report["classes"] = len(counts)
        return cls(part, ids, num_first, targets, report)

    def __len__(self):
        return len(self.ids)

    def batches(self, options, first_epoch=None, count=None):
        return token_batches(self.ids[:count], self.num_first[:count], self.targets[:count], options, first_epoch)

    def num_batches(self, batch_size):
        return -(-len(self.ids) // batch_size)


@dataclasses.dataclass
class EncodedQuestions:
    """The windows of questions, which are the examples of training.

    Attributes:
        part: `spans.Questions`.
        windows: `spans.Windows`.
    """

    part: spans.Questions
    windows: spans.Windows

    @property
    def report(self):
        answered = sum(map(bool, self.part.answers))
        return {"questions": len(self.part), "with an answer": answered, "windows": len(self.windows.ids)}

    def __len__(self):
        return len(self.windows.ids)

    def batches(self, options, first_epoch=None):
        windows = self.windows
        return token_batches(windows.ids, windows.num_first, windows.targets, options, first_epoch)

    def num_batches(self, batch_size):
        return -(-len(self) // batch_size)


def token_batches(ids, num_first, targets, options, first_epoch=None):
    """Return batches of ({"token_ids", "segment_ids", "padding_mask"} (B, L), targets), in an order that depends on the
    seed and the epoch alone; L is what the longest example needs."""
    batch_size, seed = options.fit.batch_size, options.run.seed
    with tf.device("CPU:0"):
        ragged = tf.ragged.constant(
            [np.asarray(row, np.int32) for row in ids], dtype=tf.int32, row_splits_dtype="int64"
        )
        num_first, targets = tf.constant(num_first, tf.int32), tf.nest.map_structure(tf.constant, targets)

    def batch_of(rows):
        inputs = padded(tf.gather(ragged, rows), tf.gather(num_first, rows), options.texts.max_length)
        return inputs, tf.nest.map_structure(lambda x: tf.gather(x, rows), targets)

    if first_epoch is None:
        batches = tf.data.Dataset.range(len(ids)).batch(batch_size)
        return batches.map(batch_of).prefetch(tf.data.AUTOTUNE)

    def rows_of(epoch):
        order = tf.random.experimental.stateless_shuffle(tf.range(len(ids)), tf.stack([seed, epoch]))
        return tf.data.Dataset.from_tensor_slices(order).batch(batch_size)

    rows = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(rows_of)
    return rows.map(batch_of).prefetch(tf.data.AUTOTUNE)


def padded(ragged, num_first, max_length):
    """Return the inputs of a transformer for ragged token ids (B, None), none of them longer than `max_length`."""
    lengths = tf.cast(ragged.row_lengths(), tf.int32)
    length = MULTIPLE * tf.cast(tf.math.ceil(tf.reduce_max(lengths) / MULTIPLE), tf.int32)
    length = tf.minimum(length, max_length)
    place = tf.range(length)[None]
    mask = place < lengths[:, None]
    shape = tf.stack([ragged.nrows(), tf.cast(length, ragged.row_splits.dtype)])
    return {
        "token_ids": tf.ensure_shape(ragged.to_tensor(shape=shape), [None, None]),
        "segment_ids": tf.cast(mask & (place >= num_first[:, None]), tf.int32),
        "padding_mask": tf.cast(mask, tf.int32),
    }
