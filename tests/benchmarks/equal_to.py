"""Gradients and losses of this checkout less those of another: of every row of the battery, and of steps of training.

    PYTHONPATH=tests python -m benchmarks.equal_to OTHER_CHECKOUT [PROGRAMS ...] [--steps 200] [--roundings 1]

Of programs whose name holds one of the words alone, where some are given. Training amplifies what rounding does, so the
other checkout's losses stand beside its own from initial weights of which each is one rounding larger or smaller; of
several such roundings both checkouts' smallest and largest loss. Writes to runs/benchmarks/equal_to*.json the largest
differences: of a gradient over its largest entry, of a loss over the loss.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from benchmarks.against import ROOT, environment_of

PROGRAMS = ("ved ved_vattn_mean", "nmt soft B", "nmt wc B", "nmt variational_sample B")
SMALLEST = 1e-30
STEPS = (1, 10, 20, 30, 40, 50, 60, 100, 200)
# What is Keras's where an older library has not its own.
OF_KERAS = ("LSTM", "Dropout")


def gradients(case):
    """Return the gradients of a row in training, in graph mode: a dictionary of arrays."""
    import keras
    import tensorflow as tf
    from battery_checks import value_and_gradients
    from battery_table import takes_training

    keras.utils.set_random_seed(0)
    layer = case.built(**({"seed": 1} if case.draws else {}))
    arrays, masks = case.arrays(), case.masks()
    training = True if takes_training(case) else None
    step = tf.function(lambda: value_and_gradients(case, layer, arrays, masks, training)[2], autograph=False)
    # A path holds the name of a layer, which counts the layers of the process.
    return {f"{case.name}|{index}": x.numpy() for index, x in enumerate(step().values())}


def round_weights(model, seed):
    """Make each weight one rounding larger or smaller."""
    generator = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        value = weight.numpy()
        weight.assign(np.nextafter(value, np.where(generator.random(value.shape) < 0.5, -np.inf, np.inf).astype("f")))


def losses(row, num_steps, rounding):
    import keras
    from benchmarks.against import build_program

    compile_model = keras.Model.compile

    def compile_rounded(model, *arguments, **options):
        round_weights(model, rounding)
        compile_model(model, *arguments, **options)

    keras.utils.set_random_seed(0)
    if rounding is not None:
        keras.Model.compile = compile_rounded
    step = build_program("graph", *row.split())
    keras.Model.compile = compile_model
    return np.asarray([np.ravel(step())[0] for _ in range(num_steps)], np.float64)


def work(path, words, num_steps, rounding=None):
    """Write what this process's library computes; `rounding` is the seed of that of the initial weights."""
    import keras

    import keras_vattn

    for name in OF_KERAS:
        if not hasattr(keras_vattn, name):
            setattr(keras_vattn, name, getattr(keras.layers, name))
    from battery_table import CASES

    found = {}
    if rounding is None and not words:
        for case in CASES:
            found |= gradients(case)
    for row in PROGRAMS:
        if not words or any(word in row for word in words):
            found[f"losses|{row}"] = losses(row, num_steps, rounding)
    print(f"{keras_vattn.__file__}: {len(found)} arrays")
    np.savez(path, **found)


def computed_by(checkout, folder, *arguments):
    path = pathlib.Path(folder, "found.npz")
    command = [sys.executable, "-c", f"from benchmarks.equal_to import work; work{(str(path), *arguments)}"]
    subprocess.run(command, env=environment_of(checkout), cwd=checkout, check=True)
    with np.load(path) as file:
        return dict(file)


def compare(new, old):
    """Return the largest difference of each row, and of each program after some steps."""
    found = {}
    for name, x in new.items():
        row = name.partition("|")[0]
        if row == "losses":
            steps = np.abs(x - old[name]) / np.abs(old[name])
            found[name] = {count: float(steps[:count].max()) for count in STEPS if count <= len(steps)}
        else:
            difference = np.max(np.abs(x - old[name]), initial=0.0) / np.max(np.abs(old[name]), initial=SMALLEST)
            if x.shape != old[name].shape or not np.isfinite(difference):
                raise ValueError(f"{name}: {x.shape} and {old[name].shape}, difference {difference}")
            found[row] = max(found.get(row, 0.0), float(difference))
    return found


def ranges(runs):
    """Return the smallest and the largest loss of runs of one program after some steps."""
    of_steps = np.stack(runs, axis=1)
    return {count: [*map(float, (x.min(), x.max()))] for count, x in enumerate(of_steps, 1) if count in STEPS}


def main(options):
    other, programs = options.other.resolve(), (options.words, options.steps)
    with tempfile.TemporaryDirectory() as folder:
        old, new = (computed_by(checkout, folder, *programs) for checkout in (other, ROOT))
        of_old = [computed_by(other, folder, *programs, seed) for seed in range(options.roundings)]
        of_new = [computed_by(ROOT, folder, *programs, seed) for seed in range(options.roundings if of_old[1:] else 0)]
    found, rounded = compare(new, old), compare(of_old[0], old)
    found |= {f"{name}, the other one's own, of rounded weights": x for name, x in rounded.items()}
    for whose, runs in (("this one's", of_new), ("the other one's", of_old if of_new else [])):
        for name in runs[0] if runs else ():
            found[f"range of {name}, {whose}, of rounded weights"] = ranges([run[name] for run in runs])
    path = pathlib.Path("runs/benchmarks", "_".join(["equal_to", *options.words]) + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2))
    rows = {name: x for name, x in found.items() if "losses|" not in name}
    print(f"{len(rows)} rows of the battery; largest differences of a gradient:")
    for name, x in sorted(rows.items(), key=lambda item: -item[1])[:8]:
        print(f"  {name:50} {x:.1e}")
    for name in sorted(found.keys() - rows.keys()):
        of_steps = {count: [x] if np.isscalar(x) else x for count, x in found[name].items()}
        said = (f"{' to '.join(f'{x:.4g}' for x in values)} in {count} steps" for count, values in of_steps.items())
        print(f"  {name}: {', '.join(said)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--roundings", type=int, default=1)
    main(parser.parse_args())
