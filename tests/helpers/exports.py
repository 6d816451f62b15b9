"""`python tests/helpers/exports.py` prints the table of docs/exports.md: which formats return the outputs of a layer.

The program needs tf2onnx and onnxruntime.
"""

import contextlib
import os
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf
from battery_table import CASES, build_model

from keras_vattn import RecurrentCell

HEAD = ("layer", "SavedModel", "ONNX", "LiteRT")


def rows_of_each_layer():
    """Return the first test case of each layer class, a dictionary by class name. Cells are omitted, because they are
    exported as a part of decoders."""
    layers = {case.name: case.make() for case in CASES}
    return {
        type(layers[case.name]).__name__: case
        for case in reversed(CASES)
        if not isinstance(layers[case.name], RecurrentCell)
    }


def format_results(case):
    """Return one result for each format in `HEAD`: "yes" if the model of a test case returns the outputs of Keras,
    "Flex" if LiteRT needs the Flex operations of TensorFlow, and "no" if the format fails."""
    model, arrays = build_model(case, case.make()), {**case.arrays(), **case.masks()}
    arrays = {name: np.asarray(x) for name, x in arrays.items()}
    expected = np.asarray(model(arrays, training=False))
    with tempfile.TemporaryDirectory() as folder:
        return [_result(function, model, arrays, folder, expected) for function in (_saved_model, _onnx, _litert)]


def _result(function, model, arrays, folder, expected):
    try:
        outputs = function(model, arrays, folder)
    except ImportError:
        raise
    except Exception as error:
        return "Flex" if "Select TensorFlow op(s)" in str(error) else "no"
    return "yes" if np.allclose(outputs, expected, rtol=1e-4, atol=1e-5) else "no"


def _saved_model(model, arrays, folder):
    model.export(f"{folder}/saved", verbose=False)
    # Store the module in a variable, because `serve` alone does not keep the variables alive.
    loaded = tf.saved_model.load(f"{folder}/saved")
    return loaded.serve({name: tf.constant(x) for name, x in arrays.items()})


def _onnx(model, arrays, folder):
    import onnxruntime

    model.export(f"{folder}/model.onnx", format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
    return session.run(None, {x.name: arrays[x.name.split(":")[0]] for x in session.get_inputs()})[0]


def _litert(model, arrays, folder):
    model.export(f"{folder}/model.tflite", format="litert", verbose=False)
    run = tf.lite.Interpreter(f"{folder}/model.tflite").get_signature_runner("serving_default")
    (outputs,) = run(**arrays).values()
    return outputs


def table_row(name, case):
    return f"| `{name}` | {' | '.join(format_results(case))} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    keras.utils.set_random_seed(0)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for name, case in sorted(rows_of_each_layer().items()):
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            row = table_row(name, case)
        print(row, flush=True)
