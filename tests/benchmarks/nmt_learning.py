"""Learning per step of the soft translation model, by how its biases start.

    PYTHONPATH=tests python -m benchmarks.nmt_learning SOURCE TARGET VALID_SOURCE VALID_TARGET [--seeds 3] [--epochs 1]

The variants of a seed have the same batches, noise, kernels and draws of the biases. Writes the loss of every step and
the perplexity on validation after every epoch to `--out`, and prints means over the seeds with paired intervals.
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
from applications.nmt.data import Codec
from applications.nmt.options import PROGRAM
from applications.text.text import PAD

APPLICATION = PROGRAM.application()
SIZES = {**SMALL, "vocabulary_size": 6000, "learning_rate": 5e-4, "batch_size": 32}
# Steps whose mean loss is shown.
PARTS = ((400, 500), (600, 700), (700, 800))


@dataclasses.dataclass(frozen=True)
class Variant:
    """How the biases start.

    Attributes:
        drawn: Whether from U[-r, r], as all kernels do, or from 0.
        forget: What is added in the forget gates of the LSTMs.
    """

    drawn: bool
    forget: float


VARIANTS = {
    "zeros-forget-1": Variant(drawn=False, forget=1.0),
    "zeros": Variant(drawn=False, forget=0.0),
    "drawn": Variant(drawn=True, forget=0.0),
    "drawn-forget-1": Variant(drawn=True, forget=1.0),
}


class LossOfSteps(keras.callbacks.Callback):
    """Keras logs the mean of an epoch so far."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_epoch_begin(self, epoch, logs=None):
        self.total = 0.0

    def on_train_batch_end(self, batch, logs=None):
        total = logs["loss"] * (batch + 1)
        self.losses.append(total - self.total)
        self.total = total


def train(variant, seed, options, codec, encoded, num_epochs):
    """Return the losses of the steps in nats a token, and the perplexities on validation after the epochs."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    options = dataclasses.replace(options, run=dataclasses.replace(options.run, seed=seed))
    run = Run(None, options, encoded, codec, APPLICATION.build(options, codec))
    model = run.models.training
    for weight in model.trainable_weights:
        if weight.path.endswith("/bias"):
            bias = weight.numpy() * variant.drawn
            if "cell" in weight.path:
                bias.reshape(4, -1)[1] += variant.forget
            weight.assign(bias)
    model.compile(
        keras_vattn.fast.FusedAdam(options.fit.learning_rate, global_clipnorm=options.fit.clip_norm),
        loss=keras_vattn.NegativeBound(ignore_class=PAD),
    )
    model.optimizer.build(model.trainable_variables)
    num_steps = encoded["train"].num_batches(options.fit.batch_size)
    losses, tokens, perplexities = LossOfSteps(), [], []
    valid_tokens = np.mean([len(target) + 1 for target in encoded["valid"].targets])
    for epoch in range(num_epochs):
        batches = encoded["train"].training_batches(options, first_epoch=epoch)
        tokens += [np.sum(target.numpy() != 0) / len(target) for _, target in batches.take(num_steps)]
        model.fit(batches, steps_per_epoch=num_steps, verbose=0, shuffle=False, callbacks=[losses])
        loss = model.evaluate(encoded["valid"].training_batches(options), verbose=0, return_dict=True)["loss"]
        perplexities.append(float(np.exp(loss / valid_tokens)))
        print(f"seed {seed}, {variant}: epoch {epoch + 1}, perplexity {perplexities[-1]:.2f}", flush=True)
    return (np.array(losses.losses) / tokens).tolist(), perplexities


def table(folder, variants, seeds):
    """Print means over seeds of the losses and of the logarithm of the perplexities, and the differences from the first
    variant, with intervals of Student's t."""
    found = {}
    for name in variants:
        rows = [json.loads((folder / f"{name}_{seed}.json").read_text()) for seed in range(seeds)]
        found[name] = np.array(
            [[*(np.mean(row["losses"][a:b]) for a, b in PARTS), *np.log(row["perplexities"])] for row in rows]
        )
    print("nats a token, steps " + ", ".join(f"{a + 1}-{b}" for a, b in PARTS) + ", validation after each epoch")
    half = scipy.stats.t.ppf(0.975, seeds - 1) / seeds**0.5
    for name, values in found.items():
        line = " ".join(f"{x:.3f}" for x in values.mean(axis=0))
        if name != variants[0] and seeds > 1:
            differences = values - found[variants[0]]
            pairs = zip(differences.mean(axis=0), half * differences.std(axis=0, ddof=1), strict=True)
            line += f"  less {variants[0]}: " + " ".join(f"{x:+.3f} [{x - h:+.3f}, {x + h:+.3f}]" for x, h in pairs)
        print(f"{name:14} {line}")


def main(arguments):
    names = ("train_source", "train_target", "valid_source", "valid_target")
    files = {name: getattr(arguments, name) for name in names}
    options = paper_options(PROGRAM, model="soft", **files, **SIZES)
    parts = APPLICATION.read(options)
    codec = Codec.fit(options, parts["train"])
    encoded = {name: APPLICATION.encode(options, codec, parts[name], name == "train") for name in ("train", "valid")}
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for name in arguments.variants:
            path = arguments.out / f"{name}_{seed}.json"
            if not path.exists():
                losses, perplexities = train(VARIANTS[name], seed, options, codec, encoded, arguments.epochs)
                path.write_text(json.dumps({"losses": losses, "perplexities": perplexities}))
    table(arguments.out, arguments.variants, arguments.seeds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("train_source", "train_target", "valid_source", "valid_target"):
        parser.add_argument(name)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=pathlib.Path, default="runs/benchmarks/learning")
    main(parser.parse_args())
