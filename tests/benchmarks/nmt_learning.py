"""Learning per step of the soft translation model, with the initial biases and the epsilon of other code.

    PYTHONPATH=tests python -m benchmarks.nmt_learning SOURCE TARGET VALID_SOURCE VALID_TARGET [--seeds 3] [--steps 907]

The biases of PyTorch's LSTM are two a gate, all from U[-r, r]; ours is one, 0, and 1 at the forget gate. Writes the
loss of every step to runs/benchmarks/learning/, and prints means over the seeds with paired intervals.
"""

import argparse
import dataclasses
import json
import pathlib

import keras
import numpy as np
import scipy.stats
from benchmarks.nmt_step import SMALL
from benchmarks.paper import paper_options

import keras_vattn
from applications.common.application import Run
from applications.nmt.application import APPLICATION
from applications.nmt.options import PROGRAM

FOLDER = pathlib.Path("runs/benchmarks/learning")
SIZES = {**SMALL, "vocabulary_size": 6000, "learning_rate": 5e-4, "batch_size": 32}


@dataclasses.dataclass(frozen=True)
class Variant:
    """How the biases of the LSTMs, or all, start, and how Adam updates them.

    Attributes:
        lstm: Whether those of the LSTMs are drawn.
        two: Whether each stands for a sum of two, which have one gradient, and so the same moments.
        others: Whether all other biases are drawn.
        epsilon: Of Adam.
    """

    lstm: bool = False
    two: bool = False
    others: bool = False
    epsilon: float = 1e-7


VARIANTS = {
    "ours": Variant(),
    "drawn biases": Variant(lstm=True),
    "two drawn biases": Variant(lstm=True, two=True),
    "epsilon 1e-8": Variant(epsilon=1e-8),
    "all of PyTorch's": Variant(True, True, True, 1e-8),
}


class TwoBiases(keras_vattn.FusedAdam):
    """Takes twice the step for some variables."""

    doubled = ()

    def update_step(self, gradient, variable, learning_rate):
        factor = 2.0 if self._get_variable_index(variable) in self.doubled else 1.0
        super().update_step(gradient, variable, factor * learning_rate)


class LossOfSteps(keras.callbacks.Callback):
    """Keras logs the mean of an epoch so far."""

    def on_train_begin(self, logs=None):
        self.sums = [0.0]

    def on_train_batch_end(self, batch, logs=None):
        self.sums.append(logs["loss"] * (batch + 1))


def train(variant, seed, options, codec, encoded, num_steps):
    """Return the losses of the steps, and that of validation, in nats a token."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    options = dataclasses.replace(options, run=dataclasses.replace(options.run, seed=seed))
    run = Run(None, options, encoded, codec, APPLICATION.build(options, codec))
    model, generator, limit = run.models.training, np.random.default_rng(seed), options.network.initial_range
    biases = [weight for weight in model.trainable_weights if weight.path.endswith("/bias")]
    of_lstm = [weight for weight in biases if "/lstm_cell/" in weight.path or "/cell_" in weight.path]
    for weight in biases:
        if variant.lstm if any(weight is x for x in of_lstm) else variant.others:
            draws = generator.uniform(
                -limit, limit, (2 if variant.two and any(weight is x for x in of_lstm) else 1, *weight.shape)
            )
            weight.assign(draws.sum(axis=0))
    optimizer = TwoBiases(options.fit.learning_rate, epsilon=variant.epsilon, global_clipnorm=options.fit.clip_norm)
    optimizer.build(model.trainable_variables)
    if variant.two:
        optimizer.doubled = {optimizer._get_variable_index(weight) for weight in of_lstm}
    model.compile(optimizer, **APPLICATION.compile(run))
    batches = APPLICATION.batches(run, encoded["train"], first_epoch=0)
    tokens = [np.sum(target.numpy() != 0) / len(target) for _, target in batches.take(num_steps)]
    losses = LossOfSteps()
    model.fit(batches, steps_per_epoch=num_steps, verbose=0, shuffle=False, callbacks=[losses])
    valid = model.evaluate(APPLICATION.batches(run, encoded["valid"]), verbose=0, return_dict=True)["loss"]
    valid /= np.mean([len(target) + 1 for target in encoded["valid"].targets])
    return np.diff(losses.sums) / tokens, valid


def table(seeds):
    """Print means over seeds of the losses, and the differences from ours with intervals of Student's t."""
    found = {}
    for name in VARIANTS:
        rows = [json.loads((FOLDER / f"{name}_{seed}.json").read_text()) for seed in range(seeds)]
        found[name] = np.array([[*(np.mean(row["losses"][a:b]) for a, b in PARTS), row["valid"]] for row in rows])
    print("nats a token, steps " + ", ".join(f"{a + 1}-{b}" for a, b in PARTS) + ", validation")
    half = scipy.stats.t.ppf(0.975, seeds - 1) / seeds**0.5
    for name, values in found.items():
        line = " ".join(f"{x:.3f}" for x in values.mean(axis=0))
        if name != "ours":
            differences = values - found["ours"]
            pairs = zip(differences.mean(axis=0), half * differences.std(axis=0, ddof=1), strict=True)
            line += "  less ours: " + " ".join(f"{x:+.3f} [{x - h:+.3f}, {x + h:+.3f}]" for x, h in pairs)
        print(f"{name:18} {line}")


PARTS = ((400, 500), (600, 700), (700, 800))


def main(arguments):
    names = ("train_source", "train_target", "valid_source", "valid_target")
    files = {name: getattr(arguments, name) for name in names}
    options = paper_options(PROGRAM, model="soft", **files, **SIZES)
    parts = APPLICATION.read(options)
    codec = APPLICATION.codec(options, parts)
    encoded = {name: APPLICATION.encode(options, codec, parts[name], name == "train") for name in ("train", "valid")}
    FOLDER.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for name, variant in VARIANTS.items():
            path = FOLDER / f"{name}_{seed}.json"
            if not path.exists():
                losses, valid = train(variant, seed, options, codec, encoded, arguments.steps)
                path.write_text(json.dumps({"losses": losses.tolist(), "valid": valid}))
    table(arguments.seeds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("train_source", "train_target", "valid_source", "valid_target"):
        parser.add_argument(name)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=907)
    main(parser.parse_args())
