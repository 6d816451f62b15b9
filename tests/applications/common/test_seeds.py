import keras
import numpy as np

import keras_vattn
from applications.common.seeds import draw_initial_weights


def weights_of(names, seed):
    """Create the layers in the order of `names`, and return the initial weights of their model by path."""
    create = {
        "words": lambda: keras.layers.Embedding(7, 4, name="words"),
        "encoder": lambda: keras.layers.Bidirectional(
            keras.layers.LSTM(4, return_sequences=True, name="lstm"), name="encoder"
        ),
        # The cells and the score initialize their weights in `build`, with copies of one initializer.
        "decoder": lambda: keras_vattn.AttentionDecoder(
            8, keras_vattn.GaussianAttention("additive", name="attention"), num_layers=3, name="decoder"
        ),
        "out": lambda: keras.layers.Dense(7, name="out"),
    }
    layers = {name: create[name]() for name in names}
    source, target = keras.Input((5,), dtype="int32"), keras.Input((3,), dtype="int32")
    encoder = keras.Model(source, layers["encoder"](layers["words"](source)), name="sentences")
    decoded = layers["decoder"](layers["words"](target), encoder(source))
    model = keras.Model([source, target], layers["out"](decoded["hidden"]))
    draw_initial_weights(model.layers, seed)
    return {weight.path: weight.numpy() for weight in model.weights}


def test_initial_weights_do_not_depend_on_the_order_of_creation():
    weights = weights_of(("words", "encoder", "decoder", "out"), 3)
    reordered = weights_of(("decoder", "out", "encoder", "words"), 3)
    reseeded = weights_of(("words", "encoder", "decoder", "out"), 4)
    assert weights.keys() == reordered.keys()
    for path, weight in weights.items():
        np.testing.assert_array_equal(weight, reordered[path], err_msg=path)
    kernels = [path for path, weight in weights.items() if weight.ndim == 2]
    assert all((weights[path] != reseeded[path]).any() for path in kernels)
    # Weights with the same shape in one layer also differ.
    upper = [weights[path] for path in kernels if path.endswith(("cell_1/kernel", "cell_2/kernel"))]
    assert len(upper) == 2 and (upper[0] != upper[1]).any()
