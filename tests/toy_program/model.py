"""The classifier, by the functional API."""

import dataclasses

import keras

import keras_vattn

NUM_STEPS, WIDTH, NUM_CLASSES = 6, 4, 3


@dataclasses.dataclass
class Models:
    """The model that is trained: steps (B, 6, 4) -> logits (B, 3)."""

    training: keras.Model


def build(options):
    """Build the model that the options describe."""
    units = options.network.units
    steps = keras.Input((NUM_STEPS, WIDTH), name="steps")
    memory = keras.layers.Dense(units, "tanh", name="memory")(steps)
    query = keras.layers.GlobalMaxPooling1D(keepdims=True, name="query")(memory)
    if options.model == "gaussian":
        attention = keras_vattn.GaussianAttention(
            score="bilinear", kl_weight=options.network.gamma, seed=options.run.seed, name="attention"
        )
    else:
        attention = keras_vattn.Attention(score="bilinear", name="attention")
    attended = keras.layers.Flatten()(attention([query, memory]))
    hidden = keras.layers.Dense(units, "relu", name="hidden")(attended)
    # Logits are float32 where the rest is computed in half precision.
    return Models(keras.Model(steps, keras.layers.Dense(NUM_CLASSES, dtype="float32", name="logits")(hidden)))
