"""The training step of every model and preset under XLA, `--jit on`.

TensorFlow translates each step to XLA's program, which needs ops that XLA has, sizes that do not depend on values, and
loops of a known form. Machine code, which takes several times as long, is made for one model of each program.
"""

import dataclasses
import typing

import numpy as np
import pytest
import tensorflow as tf
from finetuning_cases import pairs_with_scores, squad, write_albert
from program_case import execution
from program_cases import CASES
from tensorflow_session import traces_forgotten

from applications.common.option_values import fields_of
from applications.finetuning import train as finetuning

ROWS = [
    f"{name}-{model}"
    for name, case in CASES.items()
    for model in typing.get_args(fields_of(case.program.options)["model"])
]
# Models that also train a step, and options of these: Keras's dropout has other masks under XLA. Another test trains
# spotlight.
TRAINED = {
    "ved-ved": {},
    "nmt-soft": {},
    "vqa-soft": {},
    "captioning-soft": {},
    "vrae-vrae": {},
    "graphs-no_kl": {},
    "finetuning-deterministic": {"classifier_dropout": 0.0},
}
# Models in a preset, with the case's sizes.
IN_PRESETS = {
    "ved-ved_vattn_mean": "paper",
    "nmt-variational_sample": "paper",
    "vqa-variational_enum": "updown",
    "vqa-wc": "mcan",
    "captioning-wc": "paper",
    "vrae-vrae_sa_aux": "paper",
    "graphs-wc": "cora",
}
TASKS = {
    "rte": lambda folder: {"task": "classes", "max_length": 16},
    "sts": lambda folder: pairs_with_scores(folder) | {"max_length": 16},
    "squad1": lambda folder: squad(folder) | {"max_length": 24},
}
# Presets of the same steps: they differ in sizes, values and files.
LIKE = {
    "paper_dialogue": "paper",
    **dict.fromkeys(("citeseer", "pubmed"), "cora"),
    **dict.fromkeys(("cola", "mnli", "mrpc", "qnli", "qqp", "sst2"), "rte"),
    "squad2": "squad1",
}
# Of data of a few examples, and one of the layers that are the same.
SIZES = {
    "vqa": {"num_layers": 1, "min_answer_count": 1, "test_from_validation": None},
    "captioning": {"min_word_count": 1},
}


@pytest.fixture(autouse=True)
def without_pretraining(monkeypatch):
    monkeypatch.setattr(finetuning, "set_pretrained_weights", lambda run: None)


@pytest.fixture(autouse=True)
def freed():
    """The graphs of some 60 steps would be more than one process should hold."""
    with traces_forgotten():
        yield


def in_preset(case, preset):
    """Return the case with the values of a preset, but for whole numbers: those are sizes."""
    values = case.program.preset_values(preset)
    own = {name: x for name, x in case.options.items() if name not in values or type(x) is int}
    own.pop("neighbors", None)
    return dataclasses.replace(case, options={"preset": preset} | own)


def step_of(model, signature):
    return tf.function(lambda *batch: model.train_step(batch), signature, autograph=False, jit_compile=True)


def shapes_of(batch):
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), batch)


def check_program(step, batch):
    """Translate a step, and look for sizes that depend on values."""
    program = step.experimental_get_compiler_ir(*batch)(stage="hlo")
    assert "ENTRY" in program
    assert "[<=" not in program and ",<=" not in program


def stepped(step, batch, variables):
    """Return the loss of a step and what the variables are after it; put their values back."""
    before = [variable.numpy() for variable in variables]
    loss, after = float(step(*batch)["loss"]), [variable.numpy() for variable in variables]
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return loss, after


def test_every_preset_has_its_step():
    known = {preset for case in CASES.values() for preset in case.program.presets} - {"small"}
    assert known == {*IN_PRESETS.values(), *TASKS, *LIKE} and {*LIKE.values()} <= known - {*LIKE}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_models(row, tmp_path):
    """The step of a model compiles; where it is trained, it is the step without XLA."""
    name, model = row.split("-")
    case, options = CASES[name], {"model": model, "jit": "on"} | SIZES.get(name, {})
    if row in IN_PRESETS:
        case = in_preset(case, IN_PRESETS[row])
    else:
        # The program's optimizer has as many operations as a model; the rows in presets compile it.
        options |= {"optimizer": "sgd", "learning_rate": 0.1}
    options |= TRAINED.get(row, {})
    network, batches, _ = case.until_fit(tmp_path / "run", **options)
    batch = next(iter(batches))
    with execution(eager=False):
        # `fit` traces a step once for all shapes, and XLA compiles it for each. To trace it for one is less work.
        step = step_of(network, batches.element_spec if row in TRAINED else shapes_of(batch))
        check_program(step, batch)
        if row not in TRAINED:
            return
        variables = network.variables + network.optimizer.variables
        loss, weights = stepped(step, batch, variables)
    for metric in network.metrics:
        metric.reset_state()
    with execution(eager=True):
        expected, expected_weights = stepped(lambda *batch: network.train_step(batch), batch, variables)
    assert loss == pytest.approx(expected, rel=1e-5)
    for variable, weight, other in zip(variables, weights, expected_weights, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-6, err_msg=variable.path)
    assert sum(np.any(variable != weight) for variable, weight in zip(variables, weights, strict=True)) > 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file .*vocabulary.spm:ResourceWarning")
@pytest.mark.parametrize("preset", TASKS)
def test_presets_of_pretrained_transformers(preset, tmp_path):
    """Each kind of task has a loss of its own, over an ALBERT."""
    case, weights = in_preset(CASES["finetuning"], preset), write_albert(tmp_path / "albert")
    network, batches, _ = case.until_fit(tmp_path / "run", jit="on", weights=weights, **TASKS[preset](tmp_path))
    batch = next(iter(batches))
    with execution(eager=False):
        check_program(step_of(network, shapes_of(batch)), batch)
