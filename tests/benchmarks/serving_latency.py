"""Measures the latency of exported models that sample their attention, relative to the model with mean attention.

    python tests/benchmarks/serving_latency.py

The script prints a table of ratios for several numbers of samples. In each round, every SavedModel serves one request;
the table shows medians over the rounds, with quartiles.
"""

import pathlib
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

import keras_vattn

NUM_DRAWS, BATCHES, ROUNDS, LENGTH, UNITS = (1, 5, 20, 100), (1, 32), 60, 32, 64


def model():
    """Return a classifier with one transformer block, stochastic attention weights and three classes."""
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    x = keras.layers.Embedding(5000, UNITS)(ids)
    x = x + keras_vattn.MultiHeadAttention(4, 16, alignment="weibull")(x, x)
    x = x + keras.layers.Dense(UNITS)(keras.layers.Dense(4 * UNITS, "relu")(keras.layers.LayerNormalization()(x)))
    return keras.Model(ids, keras.layers.Dense(3, "softmax")(keras.layers.GlobalAveragePooling1D()(x)))


def main():
    classifier, folder = model(), pathlib.Path(tempfile.mkdtemp())
    classifier.export(folder / "mean", verbose=False)
    at_mean, served = tf.saved_model.load(folder / "mean"), {}
    for count in NUM_DRAWS:
        keras_vattn.export_draws(classifier, folder / str(count), num_samples=count)
        served[count] = tf.saved_model.load(folder / str(count)).signatures["serving_default"]
    print("| draws | batch | over a request at the mean |\n|---|---|---|")
    for batch in BATCHES:
        ids = tf.constant(np.random.default_rng(0).integers(5000, size=(batch, LENGTH)), tf.int32)
        calls = {0: lambda ids=ids: at_mean.serve(ids)}
        for count, serve in served.items():
            calls[count] = lambda serve=serve, ids=ids: serve(ids=ids, seed=tf.constant(1))
        seconds = {count: [] for count in calls}
        for _ in range(ROUNDS + 3):
            for count, call in calls.items():
                start = time.perf_counter()
                tf.nest.map_structure(lambda x: x.numpy(), call())
                seconds[count].append(time.perf_counter() - start)
        for count in NUM_DRAWS:
            ratios = np.divide(seconds[count], seconds[0])[3:]
            low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75))
            print(f"| {count} | {batch} | {median:.1f} [{low:.1f}, {high:.1f}] |")


if __name__ == "__main__":
    main()
