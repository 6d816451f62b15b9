"""What the platform asks of a program: its data, its model, its figures."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.application import Application
from applications.common.errors import InputError
from applications.common.runs import write_json
from applications.common.serving import Untracked, in_graph
from applications.common.tables import Column
from applications.text.readers import read_lines, read_standard_input
from toy_program import model
from toy_program.options import PROGRAM


@dataclasses.dataclass
class Examples:
    """Steps (N, 6, 4) and classes (N,)."""

    steps: np.ndarray
    classes: np.ndarray

    @property
    def report(self):
        return {"examples": len(self.classes)}

    def rows(self, rows):
        return Examples(self.steps[rows], self.classes[rows])


@dataclasses.dataclass
class Scale:
    """The codec: what the numbers are divided by."""

    value: float

    def save(self, folder):
        write_json(folder.file("scale.json"), self.value)


def synthetic(number):
    """Return examples of which one step is marked by its first number; the class is the largest of the other three."""
    generator, rows = np.random.default_rng(0), np.arange(number)
    steps = generator.normal(size=(number, model.NUM_STEPS, model.WIDTH)).astype("float32")
    marked = generator.integers(model.NUM_STEPS, size=number)
    steps[:, :, 0] = 0.0
    steps[rows, marked, 0] = 4.0
    return Examples(steps, steps[rows, marked, 1:].argmax(axis=1))


def read_numbers(lines, place, width):
    """Return lines of so many numbers as an array."""
    try:
        table = np.loadtxt(lines, "float32", ndmin=2)
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error
    if table.shape[1] != width:
        raise InputError(f"{place}: expected {width} numbers a line. Received: {table.shape[1]}")
    return table


def read_examples(path):
    """Return the examples of a file."""
    table = read_numbers(read_lines(path), path, 1 + model.NUM_STEPS * model.WIDTH)
    if not np.isin(table[:, 0], range(model.NUM_CLASSES)).all():
        raise InputError(f"{path}: expected 0, 1 or 2 as the first number of each line, the class.")
    return Examples(table[:, 1:].reshape(-1, model.NUM_STEPS, model.WIDTH), table[:, 0].astype(int))


class Classifier(tf.Module):
    """What is exported."""

    def __init__(self, run):
        super().__init__(name="classifier")
        self.variables_of_model = [variable.value for variable in run.models.training.variables]
        self._run = Untracked(run)

    @in_graph(tf.TensorSpec([None, model.NUM_STEPS, model.WIDTH], tf.float32))
    def predict(self, steps):
        """Return the probabilities (B, 3) of steps (B, 6, 4)."""
        run = self._run.value
        return tf.nn.softmax(run.models.training(steps / run.codec.value))


class Toy(Application):
    """The program."""

    program = PROGRAM
    columns = (
        Column("accuracy (%)", "report.accuracy", 1, scale=100.0),
        Column("cross-entropy (nats)", "report.cross_entropy"),
        Column("accuracy of draws (%)", "report.accuracy_of_draws", 1, scale=100.0),
    )
    curves = {"val_accuracy": "accuracy, validation"}
    codec_options = ("standardize",)
    example = " ".join(["4 1 2 3"] + ["0 1 1 1"] * 5)

    def read(self, options):
        data = options.data
        examples = synthetic(data.num_examples) if data.data is None else read_examples(data.data)
        tenth = len(examples.classes) // 10
        if not tenth:
            raise InputError(f"--data: expected 10 examples at least. Received: {len(examples.classes)}")
        parts = {"train": slice(2 * tenth, None), "valid": slice(tenth, 2 * tenth), "test": slice(tenth)}
        return {name: examples.rows(rows) for name, rows in parts.items()}

    def codec(self, options, data):
        return Scale(float(data["train"].steps.std()) if options.data.standardize else 1.0)

    def load_codec(self, options, folder):
        return Scale(float((folder.path / "scale.json").read_text()))

    def encode(self, options, codec, part, training=False):
        return Examples(part.steps / np.float32(codec.value), part.classes)

    def build(self, options, codec):
        return model.build(options)

    def compile(self, run):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": loss, "metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")]}

    def batches(self, run, part, first_epoch=None):
        size, seed = run.options.fit.batch_size, run.options.run.seed
        if first_epoch is None:
            return tf.data.Dataset.from_tensor_slices((part.steps, part.classes)).batch(size)

        def of_epoch(epoch):
            rows = tf.random.experimental.stateless_shuffle(tf.range(len(part.classes)), [seed, epoch])
            shuffled = tf.gather(part.steps, rows), tf.gather(part.classes, rows)
            return tf.data.Dataset.from_tensor_slices(shuffled).batch(size)

        return tf.data.Dataset.counter(first_epoch).flat_map(of_epoch)

    def num_batches(self, run, part):
        return -(-len(part.classes) // run.options.fit.batch_size)

    def read_other(self, options, evaluation):
        return None if evaluation.data is None else read_examples(evaluation.data)

    def evaluate(self, run, part, evaluation=None):
        network = run.models.training
        found = keras.ops.log_softmax(network(part.steps)).numpy()
        report = {
            "accuracy": float(np.mean(found.argmax(axis=1) == part.classes)),
            "cross_entropy": float(-found[np.arange(len(found)), part.classes].mean()),
        }
        if evaluation is not None and evaluation.num_draws:
            draws = keras_vattn.posterior_predictive(network, part.steps, evaluation.num_draws, seed=0)
            mean = keras.ops.softmax(draws).numpy().mean(axis=0)
            report["accuracy_of_draws"] = float(np.mean(mean.argmax(axis=1) == part.classes))
        return report, {"predicted": found.argmax(axis=1)}

    def files(self, outputs):
        return {"predicted": outputs["predicted"]}

    def generate(self, run, options):
        lines = read_standard_input() if options.input is None else read_lines(options.input)
        numbers = read_numbers(lines, options.input or "standard input", model.NUM_STEPS * model.WIDTH)
        steps = numbers.reshape(-1, model.NUM_STEPS, model.WIDTH)
        classifier = Classifier(run)
        for probabilities in classifier.predict(steps).numpy():
            yield " ".join(f"{probability:.4f}" for probability in probabilities)

    def endpoints(self, run, options=None):
        return Classifier(run), ("predict",)


APPLICATION = Toy()
