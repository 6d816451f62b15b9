"""Tests presets of the variational encoder-decoder, and options of earlier versions."""

import json
import typing

import pytest
from program_case import words_of
from program_cases import VED_CASE

from applications.common.option_values import values_of, with_values
from applications.common.program import config_of
from applications.common.runs import RunFolder
from applications.ved.model import MODELS
from applications.ved.options import DETERMINISTIC, OLD_MODELS, PROGRAM, Options

# Values in section 4.1 of Bahuleyan et al. 2018.
SECTION_4_1 = {
    "source_vocabulary_size": 40_000,
    "target_vocabulary_size": 40_000,
    "embedding_width": 300,
    "encoder_units": 100,
    "units": 100,
    "latent_units": 100,
    "gamma_a": 0.1,
    "word_dropout": 0.25,
    "batch_size": 100,
    "learning_rate": 0.005,
    "learning_rate_decay": 0.95,
    "num_draws": 10,
}
PUBLISHED_CODE = {
    "max_source_length": 30,
    "max_target_length": 20,
    "attention_size": 100,
    "annealing_center": 4500.0,
    "annealing_slope": 0.002,
    "annealing_end": 0.047426,
    "encoder_dropout": 0.2,
    "epochs": 10,
    "clip_norm": 5.0,
}


def test_the_paper_preset_has_the_values_of_the_paper_or_its_code():
    values = PROGRAM.preset_values("paper")
    assert {name: values[name] for name in SECTION_4_1} == SECTION_4_1
    assert {name: values[name] for name in PUBLISHED_CODE} == PUBLISHED_CODE


def test_dialogue_has_a_smaller_vocabulary():
    changed = {"source_vocabulary_size": 30_000, "target_vocabulary_size": 30_000}  # section 4.2
    assert PROGRAM.preset_values("paper_dialogue") == PROGRAM.preset_values("paper") | changed


def test_every_model_option_can_be_built():
    assert set(typing.get_args(typing.get_type_hints(Options)["model"])) == MODELS.keys()
    assert tuple(name for name, kind in MODELS.items() if not kind.latent) == DETERMINISTIC


@pytest.mark.parametrize("model", OLD_MODELS)
def test_a_run_with_an_old_name_of_a_model_can_be_read(tmp_path, model):
    (tmp_path / "config.yaml").write_text(f"model: {model}\nepochs: 7\ndecoder_form: code\n", encoding="utf-8")
    values = values_of(PROGRAM.options_of(RunFolder.load(tmp_path)))
    assert values == values_of(Options()) | OLD_MODELS[model] | {"epochs": 7}


def test_rare_words_and_missing_columns_are_errors(tmp_path):
    rows = "".join(f"source{index}\ttarget{index}\n" for index in range(20))
    (tmp_path / "table.tsv").write_text(f"source\ttarget\n{rows}")
    for options, message in (
        ({"min_count": 9}, "--min-count: no source word occurs at least 9 times; lower the number."),
        ({"target_column": "question"}, "table.tsv:1: no column named 'question'"),
    ):
        values = {"out": tmp_path / "new", "train_table": tmp_path / "table.tsv", **options}
        VED_CASE.fails(message, "train", *words_of(values))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("model", OLD_MODELS)
def test_a_run_with_an_old_name_of_its_model_is_resumed(model, tmp_path):
    config = config_of(with_values(Options(), {"out": str(tmp_path)})) | {"model": model}
    (tmp_path / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    PROGRAM.check_train(with_values(Options(), OLD_MODELS[model] | {"out": str(tmp_path), "resume": True}))
