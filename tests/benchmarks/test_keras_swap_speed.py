"""Times training steps of a tagger with the LSTM, Dropout and Adam of Keras, and with ours. Asserts nothing."""

import keras
import numpy as np
import pytest

from benchmarks.paired import interleave, median_interval, report
from keras_vattn import fast

BATCH, LENGTH = 32, 20
KERAS_CLASSES = {"LSTM": keras.layers.LSTM, "Dropout": keras.layers.Dropout, "FusedAdam": keras.optimizers.Adam}


def training_step(ours, jit, units, vocabulary_size):
    """Return a function that runs a training step of the tagger; `ours` names the classes to take from the library."""
    keras.utils.set_random_seed(0)
    classes = {name: getattr(fast, name) if name in ours else layer for name, layer in KERAS_CLASSES.items()}
    layers = [keras.layers.Embedding(vocabulary_size, units), classes["Dropout"](0.3, seed=1)]
    layers += [keras.layers.Bidirectional(classes["LSTM"](units, return_sequences=True)) for _ in range(2)]
    model = keras.Sequential([*layers, keras.layers.Dense(20, "softmax")])
    optimizer = classes["FusedAdam"](1e-3, global_clipnorm=5.0)
    model.compile(optimizer, loss="sparse_categorical_crossentropy", jit_compile=jit)
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, vocabulary_size, (BATCH, LENGTH)), generator.integers(0, 20, (BATCH, LENGTH))
    return lambda: model.train_on_batch(x, y)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("units", "vocabulary_size"), [(64, 2000), (256, 20_000)])
def test_a_tagger(jit, units, vocabulary_size):
    swaps = {"Keras": (), "LSTM": ("LSTM",), "LSTM, Dropout": ("LSTM", "Dropout"), "all three": tuple(KERAS_CLASSES)}
    steps = {name: training_step(ours, jit, units, vocabulary_size) for name, ours in swaps.items()}
    seconds = interleave(steps, num_rounds=60, num_warm_up=5)
    rows = [(name, median_interval(1e3 * seconds[name]), "ms") for name in steps]
    rows += [(f"{name} / Keras", median_interval(seconds[name] / seconds["Keras"]), "ratio") for name in steps]
    kind = "under XLA" if jit else "graph"
    title = f"keras swap {kind} {units}: tagger, batch {BATCH}, {LENGTH} words of {vocabulary_size:,}, "
    report(title + f"two bidirectional LSTMs of {units}", rows)
