"""The training step under XLA, `--jit on`: for a small program, for a decoder, and for one model of each preset.

TensorFlow translates each step to an XLA program. This requires ops that XLA supports, shapes that do not depend on
values, and loops with a known number of steps. Compilation to machine code, which takes several times as long, is
tested for the first two.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from finetuning_cases import squad, write_albert
from program_case import execution
from program_cases import CASES, TOY

from applications.finetuning import train as finetuning

# No dropout: its masks in Keras are different under XLA.
TRAINED = {TOY: {"model": "deterministic"}, "nmt": {"model": "soft"}}
# Options for tiny data, and a single layer instead of several equal layers.
SIZES = {
    "vqa": {"num_layers": 1, "min_answer_count": 1, "test_from_validation": None},
    "captioning": {"min_word_count": 1},
}
PRESETS = [
    ("ved", "paper", "ved_vattn_mean"),
    ("nmt", "paper", "variational_sample"),
    ("vqa", "updown", "variational_enum"),
    ("vqa", "mcan", "wc"),
    ("captioning", "paper", "wc"),
    ("vrae", "paper", "vrae_sa_aux"),
    ("graphs", "cora", "wc"),
]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forgotten_traces")]


@pytest.fixture(autouse=True)
def without_pretraining(monkeypatch):
    monkeypatch.setattr(finetuning, "set_pretrained_weights", lambda run: None)


def in_preset(case, preset):
    """Return the case with the values of a preset, except for integers, which are sizes."""
    values = case.program.preset_values(preset)
    case_options = {name: x for name, x in case.options.items() if name not in values or type(x) is int}
    case_options.pop("neighbors", None)
    return dataclasses.replace(case, options={"preset": preset} | case_options)


def compiled(model, signature):
    return tf.function(lambda *batch: model.train_step(batch), signature, autograph=False, jit_compile=True)


def check_program(model, batches):
    """Translate the step for one batch, and check that no shape depends on values."""
    batch = next(iter(batches))
    with execution(eager=False):
        step = compiled(model, tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), batch))
        program = step.experimental_get_compiler_ir(*batch)(stage="hlo")
    assert "ENTRY" in program
    assert "[<=" not in program and ",<=" not in program


def stepped(step, batch, variables):
    """Return the loss of a step and the variables after it; restore the variables."""
    before = [variable.numpy() for variable in variables]
    loss, after = float(step(*batch)["loss"]), [variable.numpy() for variable in variables]
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return loss, after


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_is_the_step_without_xla(name, tmp_path):
    options = {"jit": "on", "optimizer": "sgd", "learning_rate": 0.1} | TRAINED[name]
    model, batches, _ = CASES[name].until_fit(tmp_path / "run", **options)
    batch, variables = next(iter(batches)), model.variables + model.optimizer.variables
    with execution(eager=False):
        loss, weights = stepped(compiled(model, batches.element_spec), batch, variables)
    for metric in model.metrics:
        metric.reset_state()
    with execution(eager=True):
        expected, expected_weights = stepped(lambda *batch: model.train_step(batch), batch, variables)
    assert loss == pytest.approx(expected, rel=1e-5)
    for variable, weight, other in zip(variables, weights, expected_weights, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-6, err_msg=variable.path)
    assert sum(np.any(variable != weight) for variable, weight in zip(variables, weights, strict=True)) > 5


@pytest.mark.parametrize(("name", "preset", "model"), PRESETS)
def test_presets(name, preset, model, tmp_path):
    case = in_preset(CASES[name], preset)
    check_program(*case.until_fit(tmp_path / "run", model=model, jit="on", **SIZES.get(name, {}))[:2])


@pytest.mark.filterwarnings("ignore:unclosed file .*vocabulary.spm:ResourceWarning")
def test_presets_of_pretrained_transformers(tmp_path):
    case, weights = in_preset(CASES["finetuning"], "squad1"), write_albert(tmp_path / "albert")
    options = {"jit": "on", "weights": weights} | squad(tmp_path) | {"max_length": 24}
    check_program(*case.until_fit(tmp_path / "run", **options)[:2])
