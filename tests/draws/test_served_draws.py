"""Tests exported draws in a process without this project: strings, JSON, and many threads."""

import json

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from conversion_cases import bayesian_of
from elsewhere import result_elsewhere
from finetuning_cases import PIECES

from keras_vattn import Sampler, export_draws

# KerasHub before 0.32 raises this warning with Keras 3.15.
pytestmark = pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer 'bert_text_classifier:UserWarning")
# A program that loads the SavedModel with only TensorFlow and sends each request alone, then eight in parallel.
SERVING_PROGRAM = """
import concurrent.futures, json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text

serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
dtypes = {name: spec.dtype for name, spec in serve.structured_input_signature[1].items()}
requests = json.loads(sys.stdin.read())

def call(request):
    outputs = serve(**{name: tf.constant(value, dtypes[name]) for name, value in request.items()})
    return {name: x.numpy() for name, x in outputs.items()}

one_by_one = [call(request) for request in requests]
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    threaded = list(threads.map(call, requests))
equal = [all(np.array_equal(x, two[name]) for name, x in one.items()) for one, two in zip(one_by_one, threaded)]
print("RESULT" + json.dumps({
    "outputs": [{name: x.tolist() for name, x in outputs.items()} for outputs in one_by_one[:4]],
    "equal": sum(equal),
    "project": sorted({name.split(".")[0] for name in sys.modules} & {"keras_vattn", "keras_hub"}),
}))
"""
TEXTS = ["the dog barked at a cat.", "a cat", "the dog", "barked"]


def task():
    keras.utils.set_random_seed(0)
    tokenizer = keras_hub.models.BertTokenizer(PIECES, lowercase=True)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=12)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8, "max_sequence_length": 16}
    backbone = keras_hub.models.BertBackbone(15, **sizes)
    model = keras_hub.models.BertTextClassifier(backbone, 3, preprocessor)
    model = bayesian_of(model, "lognormal", None)
    for variable in model.trainable_variables:
        # Scale the kernels, because at the initial scale the outputs for different texts hardly differ.
        variable.assign(variable * (10.0 if len(variable.shape) > 1 else 1.0))
    return model


@pytest.mark.slow
def test_a_task_takes_strings_from_many_threads(tmp_path):
    """Strings are preprocessed once, as in `predict`. Another process sends 300 requests from eight threads."""
    model = task()
    export_draws(model, tmp_path, num_samples=8, outputs="logits")
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert set(serve.structured_input_signature[1]) == {"texts", "seed"}
    results = serve(texts=tf.constant(TEXTS), seed=tf.constant(2))
    draws = Sampler(model).draws(lambda x: tf.nn.softmax(model(x, training=False)), model.preprocessor(TEXTS), 8, 2)
    np.testing.assert_allclose(results["mean"], np.mean(draws, axis=0), rtol=1e-4, atol=1e-5)
    assert np.ptp(results["mean"].numpy(), axis=0).max() > 2e-3 and np.std(draws, axis=0).max() > 1e-3
    generator = np.random.default_rng(0)
    rows = [generator.choice(TEXTS, size=1 + number % 3).tolist() for number in range(300)]
    requests = [{"texts": texts, "seed": number % 50} for number, texts in enumerate(rows)]
    results = result_elsewhere(SERVING_PROGRAM, tmp_path, folder=tmp_path, text=json.dumps(requests))
    assert (results["equal"], results["project"]) == (300, [])
    for request, outputs in zip(requests, results["outputs"]):
        inputs = {name: tf.constant(value) for name, value in request.items()}
        expected = serve(**inputs)
        for name, value in outputs.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
