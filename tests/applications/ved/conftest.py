"""One trained run for the tests of the program, and what its SavedModel says, in a process of its own."""

import json
import pathlib

import pytest
from elsewhere import result_elsewhere
from program_case import execution
from program_cases import VED_CASE
from ved_cases import SOURCES, TARGETS, small_options

from applications.ved.train import train

# Knows neither Keras models nor this project.
SERVED = """
import json, sys
import tensorflow as tf, tensorflow_text

sources = tf.constant(json.loads(sys.argv[2]))
models = [tf.saved_model.load(sys.argv[1]) for _ in range(2)]
text = lambda tensor: [[s.decode() for s in row] if isinstance(row, list) else row.decode() for row in tensor]
score = models[0].score(sources, tf.constant(json.loads(sys.argv[3])))
result = {
    "generate": text(models[0].generate(sources).numpy().tolist()),
    "sample": [text(model.sample(sources, 3, 5).numpy().tolist()) for model in models],
    "other": text(models[0].sample(sources, 3, 6).numpy().tolist()),
    "log_likelihood": score["log_likelihood"].numpy().tolist(),
    "num_tokens": score["num_tokens"].numpy().tolist(),
    "signatures": sorted(models[0].signatures),
    "project": sorted(name for name in sys.modules if name.split(".")[0] in ("keras_vattn", "applications")),
}
print("RESULT" + json.dumps(result))
"""


@pytest.fixture(scope="session")
def trained(of_session, tmp_path_factory):
    """The folder of a finished run of ved_vattn_mean."""

    def make():
        options = small_options(tmp_path_factory.mktemp("ved"))
        options.run.export = False
        with execution(eager=True):
            train(options)
        return options.run.out

    return pathlib.Path(of_session("ved-small", make))


@pytest.fixture(scope="session")
def served(of_session, trained):
    """What the SavedModel says in a process of its own."""

    def make():
        VED_CASE.succeeds("export", "--run", trained)
        saved_model = trained / "saved_model"
        return result_elsewhere(SERVED, saved_model, json.dumps(SOURCES), json.dumps(TARGETS), folder=trained)

    return of_session("ved-served", make)
