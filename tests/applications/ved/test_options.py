import dataclasses

import pytest

from applications.common.command_line import read_options
from applications.common.errors import InputError
from applications.ved.__main__ import COMMANDS
from applications.ved.comparison import CompareOptions
from applications.ved.inference import EvaluateOptions, ExportOptions, GenerateOptions
from applications.ved.options import PAPER, PRESETS, ROWS, SMALL, Options, find_row, validate

# Section 4.1 of Bahuleyan et al. 2018.
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
    "stage_one_epochs": 6,
    "learning_rate": 0.005,
    "learning_rate_decay": 0.95,
    "num_draws": 10,
}
PUBLISHED_CODE = {
    "max_source_length": 30,
    "max_target_length": 20,
    "attention_size": 100,
    "decoder_form": "code",
    "annealing_center": 4500.0,
    "annealing_slope": 0.002,
    "annealing_end": 0.047426,
    "encoder_dropout": 0.2,
    "epochs": 10,
    "clip_norm": 5.0,
}


def read(*arguments):
    return read_options("train", Options, PRESETS, list(arguments))


@pytest.mark.parametrize("name", [*SECTION_4_1, *PUBLISHED_CODE])
def test_the_paper_preset_has_the_value_of_the_paper_or_its_code(name):
    assert getattr(PAPER, name) == {**SECTION_4_1, **PUBLISHED_CODE}[name]


def test_presets_choose_no_data_and_are_valid():
    for preset in PRESETS.values():
        validate(preset)
        for name in ("train_table", "train_source", "embeddings", "row", "out", "seed", "data_seed"):
            assert getattr(preset, name) == getattr(Options(), name)


def test_dialogue_has_a_smaller_vocabulary():
    changed = {"source_vocabulary_size": 30_000, "target_vocabulary_size": 30_000}  # section 4.2
    assert dataclasses.replace(PAPER, **changed) == PRESETS["paper_dialogue"]


def test_rows():
    assert list(ROWS) == [
        "ded",
        "ded_dattn",
        "ved_dattn",
        "ved_dattn_2stage",
        "ved_vattn_0",
        "ved_vattn_mean",
        "rnnsearch",
        "vae",
        "vae_hidden_init",
    ]
    assert [name for name, row in ROWS.items() if not row.stochastic] == ["ded", "ded_dattn", "rnnsearch"]
    assert [name for name, row in ROWS.items() if row.autoencoder] == ["vae", "vae_hidden_init"]
    with pytest.raises(InputError, match=r"^--row: expected one of ded, .*Received: ved_attn$"):
        find_row("ved_attn")


@pytest.mark.parametrize(
    "name, value",
    [
        ("row", "nothing"),
        ("decoder_form", "luong"),
        ("precision", "float64"),
        *(
            (name, 0)
            for name in ("units", "epochs", "batch_size", "max_target_length", "num_draws", "max_test_sources")
        ),
        ("max_train_pairs", -1),
        ("source_vocabulary_size", 4),
        ("learning_rate", float("inf")),
        ("learning_rate", float("nan")),
        ("clip_norm", -1.0),
        ("gamma_a", -0.1),
        ("gamma_a", float("nan")),
        ("free_bits", -0.1),
        ("annealing_slope", 0.0),
        ("annealing_end", 0.0),
        ("annealing_end", 1.5),
        ("word_dropout", 1.0),
        ("encoder_dropout", -0.1),
        ("valid_fraction", 0.0),
        ("valid_fraction", 1.0),
        ("seed", -1),
        ("data_seed", 2**40),
    ],
)
def test_an_option_out_of_range_is_named(name, value):
    with pytest.raises(InputError, match=rf"^--{name.replace('_', '-')}: .*Received: {value}$"):
        validate(dataclasses.replace(SMALL, **{name: value}))


def test_two_stages_need_epochs_for_both():
    validate(dataclasses.replace(SMALL, row="ved_dattn_2stage", epochs=7, stage_one_epochs=6))
    with pytest.raises(InputError, match=r"^--epochs: ved_dattn_2stage needs more epochs than its first stage, 6"):
        validate(dataclasses.replace(SMALL, row="ved_dattn_2stage", epochs=6, stage_one_epochs=6))


def test_preset_then_file_then_command_line(tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("units: 7\nepochs: 3\nlearning_rate: 1e-3\nclip_norm: 2\nembeddings:\nlowercase: false\n")
    options = read("--preset", "paper", "--config", str(file), "--epochs", "4")
    changed = {"units": 7, "epochs": 4, "learning_rate": 0.001, "clip_norm": 2.0, "lowercase": False}
    assert options == dataclasses.replace(PAPER, **changed)
    assert read() == SMALL


FILES_OF_COMMANDS = {
    "train": ("row: ded\nepochs: 3", dataclasses.replace(SMALL, row="ded", epochs=3)),
    "evaluate": (
        "run: a\nsplit: test\nlatent_temperatures: [0, 1.5]\ncurves_only: true",
        EvaluateOptions("a", split="test", latent_temperatures=(0.0, 1.5), curves_only=True),
    ),
    "generate": ("run: a\nnum_samples: 4\ninput: b.txt", GenerateOptions("a", input="b.txt", num_samples=4)),
    "compare": (
        "rows: [ded, 'ved_vattn_mean:0.01']\nseeds: 2\npreset: paper\noptions: b.yaml",
        CompareOptions(rows=("ded", "ved_vattn_mean:0.01"), seeds=2, preset="paper", options="b.yaml"),
    ),
    "export": ("run: a\nout: b", ExportOptions("a", out="b")),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_its_options_from_a_file(tmp_path, command):
    text, expected = FILES_OF_COMMANDS[command]
    (tmp_path / "options.yaml").write_text(text)
    _, options_class, presets = COMMANDS[command]
    assert read_options(command, options_class, presets, ["--config", str(tmp_path / "options.yaml")]) == expected
