"""Write the files that `test_older_files.py` loads: run once with the version whose files they are.

PYTHONPATH=CHECKOUT_OF_THAT_VERSION python tests/saved/write.py FOLDER
"""

import pathlib
import sys

import keras
import numpy as np

import keras_vattn

GENERATOR = np.random.default_rng(0)
QUERY = GENERATOR.normal(size=(4, 3, 6)).astype("float32")
VALUE = GENERATOR.normal(size=(4, 5, 6)).astype("float32")
TARGET = GENERATOR.normal(size=(4, 3, 1)).astype("float32")


def models():
    annealing = keras_vattn.LinearAnnealing(4)
    yield (
        "weibull",
        keras_vattn.Attention("additive", "weibull", prior="contextual", kl_annealing=annealing, name="layer"),
    )
    yield "gaussian", keras_vattn.GaussianAttention("bilinear", prior="mean", name="layer")
    yield "deterministic", keras_vattn.DeterministicAttention("additive", name="layer")
    yield "heads", keras_vattn.MultiHeadAttention(2, 3, alignment="lognormal", prior="contextual", name="layer")
    yield "latent", keras_vattn.GaussianLatent(2, name="layer")
    yield (
        "decoder",
        keras_vattn.AttentionDecoder(4, keras_vattn.BayesianAttention("lognormal", "bilinear"), "gru", 2, name="layer"),
    )


def model_of(layer):
    query, value = keras.Input((None, 6), name="query"), keras.Input((None, 6), name="value")
    if isinstance(layer, keras_vattn.GaussianLatent):
        hidden = layer(query) + keras.ops.mean(value)
    elif isinstance(layer, keras_vattn.AttentionDecoder):
        hidden = layer(query, value)["hidden"]
    else:
        hidden = layer(query, value)
    return keras.Model([query, value], keras.layers.Dense(1)(hidden))


def main(folder):
    folder = pathlib.Path(folder)
    outputs = {"query": QUERY, "value": VALUE}
    for name, layer in models():
        model = model_of(layer)
        model.compile("adam", "mse")
        model.fit([QUERY, VALUE], TARGET, batch_size=2, verbose=0)
        model.save(folder / f"{name}.keras")
        outputs[name] = np.asarray(model([QUERY, VALUE], training=False))
    model.save_weights(folder / "decoder.weights.h5")
    np.savez(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    main(sys.argv[1])
