"""Texts with labels or scores, and the tokens that a transformer reads of them.

Shapes: B examples of a batch, L tokens.
"""

import contextlib
import csv
import dataclasses
import io
import json

import numpy as np
import tensorflow as tf

from applications.common.batches import array_batches
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
    places, has_header = _columns(path, rows, task, given)
    width = len(rows[0][1]) if has_header else None
    examples = [_example(f"{path}:{line}", row, places, width, task) for line, row in rows[has_header:]]
    if not examples:
        raise InputError(f"{path}: expected examples. Received: none")
    firsts, seconds, labels = map(list, zip(*examples))
    return Texts(firsts, None if places[1] is None else seconds, labels)


def _example(place, row, places, width, task):
    """Return the text, the other one of a pair or `None`, and the label or score in the cells of a line."""
    needed = 1 + max(column for column in places if column is not None)
    if len(row) < needed:
        raise InputError(f"{place}: expected {needed} columns at least. Received: {len(row)}")
    if width is not None and len(row) > width:
        raise InputError(
            f"{place}: expected {width} columns, as the header has; in a .csv a text with a comma stands in quotation "
            f"marks. Received: {len(row)}"
        )
    # One line, without tabs: so they stand in the files of a run.
    first, second, label = (None if column is None else " ".join(row[column].split()) for column in places)
    if not label:
        raise InputError(f"{place}: the label is empty.")
    if task.labels and label not in task.labels:
        raise InputError(f"{place}: expected a label of {', '.join(task.labels)}. Received: {label[:40]!r}")
    if "" in (first, second):
        raise InputError(f"{place}: a text is empty.")
    if task.kind != "score":
        return first, second, label
    with contextlib.suppress(ValueError):
        if np.isfinite(float(label)):
            return first, second, float(label)
    raise InputError(f"{place}: expected a score. Received: {label[:40]!r}")


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
    """Return the places of text, pair (or `None`) and label in a row, and whether there is a header."""
    head = [name.strip() for name in rows[0][1]] if rows else []
    asked = given.text_column, given.pair_column, given.label_column
    names = [own or name for own, name in zip(asked, task.columns)]
    if names[1] == "pair" and asked[1] is None and "pair" not in head:
        names[1] = None
    if all(name is None or name in head for name in names):
        return [None if name is None else head.index(name) for name in names], True
    places = [int(name) if name and name.isdigit() else 0 for name in asked] if any(asked) else task.places
    if places and places[0] and places[2]:
        return [place - 1 if place else None for place in places], False
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
class Encoded:
    """The tokens of a part.

    Attributes:
        part: `Texts` or `spans.Questions`.
        ids: Token ids of each example, with the marks; the examples of questions are their windows.
        num_first: Tokens of each before its second text.
        targets: Classes (N,), scores (N,), or the first and the last token of an answer (N, 2).
        report: How many there are, and how many were cut.
        windows: `spans.Windows` of questions.
    """

    part: Texts | spans.Questions
    ids: list
    num_first: np.ndarray
    targets: np.ndarray
    report: dict
    windows: spans.Windows | None = None

    def __len__(self):
        return len(self.ids)

    def num_batches(self, batch_size):
        return -(-len(self.ids) // batch_size)

    def batches(self, options, first_epoch=None):
        return token_batches(self.ids, self.num_first, self.targets, options, first_epoch)


def encoded(options, codec, part):
    """Return the `Encoded` part."""
    if isinstance(part, spans.Questions):
        windows = spans.windows_of(codec.encoder, part, options.texts.stride)
        answered = sum(map(bool, part.answers))
        report = {"questions": len(part), "with an answer": answered, "windows": len(windows.ids)}
        return Encoded(part, windows.ids, windows.num_first, windows.targets, report, windows)
    ids, num_first, cut = codec.encoder.encode_all(part.firsts, part.seconds)
    report = {"examples": len(ids), "tokens": int(sum(map(len, ids))), "cut": cut}
    if codec.labels is None:
        return Encoded(part, ids, num_first, np.array(part.labels, np.float32), report)
    _require_known(part.labels, codec.labels)
    targets = np.array([codec.labels.index(label) for label in part.labels], np.int32)
    # Of many classes their number says enough.
    if len(codec.labels) > 10:
        report["classes"] = len(codec.labels)
    else:
        report |= {f"class {label}": part.labels.count(label) for label in codec.labels}
    return Encoded(part, ids, num_first, targets, report)


def token_batches(ids, num_first, targets, options, first_epoch=None):
    """Return batches of ({"token_ids", "segment_ids", "padding_mask"} (B, L), targets), in an order that depends on the
    seed and the epoch alone; L is what the longest example needs."""
    with tf.device("CPU:0"):
        ragged = tf.ragged.constant(ids, dtype=tf.int32, row_splits_dtype="int64")
        num_first, targets = tf.constant(num_first, tf.int32), tf.constant(targets)

    def batch_of(rows):
        inputs = padded(tf.gather(ragged, rows), tf.gather(num_first, rows), options.texts.max_length)
        return inputs, tf.gather(targets, rows)

    rows = array_batches(np.arange(len(ids)), options.fit.batch_size, options.run.seed, first_epoch)
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
