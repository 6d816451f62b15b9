"""What several workers would gain: a model of the time of a step, from times on one machine.

    PYTHONPATH=tests:. python -m benchmarks.workers [--rounds 15]

A step of batch B takes a + b B seconds: workers share b B and not a, above all that of a loop over the words. The sum
of the gradients over n workers adds c (n - 1) / n for each of their bytes, c twice what a network takes for a byte.
Times of several batches are interleaved, c is measured between two processes over the loopback of this machine, and
given for a network of 10 Gbit/s besides. Writes runs/benchmarks/workers.json.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
from worker_processes import run_workers

from benchmarks.paired import FOLDER, interleave

BATCHES = (8, 16, 32, 64)
WORKERS = (2, 4, 8)
# Seconds for a byte, there and back.
NETWORK = 2 * 8 / 10e9
MEBIBYTES = 16


def encoder_step(batch):
    """Return a function that makes a step of four blocks of attention over 64 words, and the bytes of its gradients."""
    import keras
    import tensorflow as tf

    import keras_vattn

    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((64, 256))
    for _ in range(4):
        heads = keras_vattn.MultiHeadAttention(4, 64, alignment="weibull", prior="contextual")
        x = keras.layers.LayerNormalization()(x + heads(x, x))
        x = keras.layers.LayerNormalization()(
            x + keras.layers.Dense(256)(keras.layers.Dense(1024, activation="relu")(x))
        )
    model = keras.Model(inputs, keras.layers.Dense(10)(x[:, 0]))
    model.compile(
        keras_vattn.fast.FusedAdam(1e-4, global_clipnorm=5.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    data = tf.random.stateless_normal((batch, 64, 256), (0, 1)), tf.zeros((batch,), tf.int32)
    return lambda: model.train_on_batch(*data), 4 * model.count_params()


def decoder_step(batch):
    """Return the same of a translation model with soft attention, 13 words to 14."""
    from benchmarks.nmt_step import models_of, setting_of, training_step

    setting = f"B-batch-{batch}"
    _, models = models_of("soft", setting_of(setting))
    return training_step("soft", setting), 4 * models.training.count_params()


def sum_seconds():
    """As one of two workers, print how long the sum of gradients takes, a second over the bytes."""
    import time

    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    gradients = [tf.ones((256, 1024)) for _ in range(MEBIBYTES)]

    @tf.function
    def summed():
        reduce = lambda: tf.distribute.get_replica_context().all_reduce("sum", gradients)  # noqa: E731
        return [x[0, 0] for x in strategy.run(reduce)]

    seconds = []
    for _ in range(12):
        start = time.perf_counter()
        [x.numpy() for x in summed()]
        seconds.append(time.perf_counter() - start)
    print("RESULT" + json.dumps(float(np.median(seconds[2:])) / (MEBIBYTES * 2**20)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run_workers(sum_seconds, [(), ()], pathlib.Path(folder))
    if any(status for status, _ in found):
        sys.exit(found[0][1])
    # Of two workers half of the sum is each one's.
    loopback = 2 * json.loads(found[0][1].partition("RESULT")[2].splitlines()[0])
    record = {"loopback": loopback, "network": NETWORK, "models": {}}
    for name, make in (("encoder", encoder_step), ("decoder", decoder_step)):
        steps = {batch: make(batch) for batch in BATCHES}
        seconds = interleave({batch: step for batch, (step, _) in steps.items()}, options.rounds, num_warm_up=2)
        medians = np.array([np.median(seconds[batch]) for batch in BATCHES])
        # Least squares of the relative error.
        matrix = np.stack([np.ones(len(BATCHES)), BATCHES], axis=1) / medians[:, None]
        fixed, per_row = np.linalg.lstsq(matrix, np.ones(len(BATCHES)), rcond=None)[0]
        size = steps[BATCHES[-1]][1]
        whole = fixed + per_row * BATCHES[-1]
        speedup = {
            kind: {n: whole / (fixed + per_row * BATCHES[-1] / n + cost * size * (n - 1) / n) for n in WORKERS}
            for kind, cost in (("loopback", loopback), ("network", NETWORK), ("free", 0.0))
        }
        record["models"][name] = {
            "milliseconds": dict(zip(BATCHES, 1e3 * medians, strict=True)),
            "fixed": 1e3 * fixed,
            "per_row": 1e3 * per_row,
            "megabytes": size / 1e6,
            "speedup": speedup,
        }
        print(name, json.dumps(record["models"][name], indent=2), flush=True)
    print(f"loopback: {loopback * 1e9:.2f} ns a byte")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "workers.json").write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
