"""The models, the presets, and options that do not go together, of the variational encoder-decoder."""

import pytest
from program_case import words_of
from program_cases import VED_CASE

from applications.ved.options import MODELS, PROGRAM

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


def test_the_paper_preset_has_the_values_of_the_paper_or_its_code():
    values = PROGRAM.preset_values("paper")
    assert {name: values[name] for name in SECTION_4_1} == SECTION_4_1
    assert {name: values[name] for name in PUBLISHED_CODE} == PUBLISHED_CODE


def test_dialogue_has_a_smaller_vocabulary():
    changed = {"source_vocabulary_size": 30_000, "target_vocabulary_size": 30_000}  # section 4.2
    assert PROGRAM.preset_values("paper_dialogue") == PROGRAM.preset_values("paper") | changed


def test_models():
    assert set(MODELS) >= {
        "ded",
        "ded_dattn",
        "ved",
        "ved_dattn",
        "ved_vattn_0",
        "ved_vattn_mean",
        "ved_wc",
        "ved_lc",
        "ved_dirichlet",
        "rnnsearch",
        "vae",
        "vae_hidden_init",
    }
    assert [name for name, kind in MODELS.items() if not kind.stochastic] == ["ded", "ded_dattn", "rnnsearch"]
    assert [name for name, kind in MODELS.items() if kind.autoencoder] == ["vae", "vae_hidden_init"]


@pytest.fixture
def run(tmp_path):
    """The folder of a run, as far as it is looked at before TensorFlow is imported."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("model: ved\n")
    (tmp_path / "run/weights.npz").write_bytes(b"")
    return tmp_path / "run"


def test_options_that_do_not_go_together(run, tmp_path):
    (tmp_path / "a").write_text("a\n")
    file = str(tmp_path / "a")
    for values, message in (
        ({"embeddings": "vectors.txt"}, "--embeddings: no such file. Received: vectors.txt"),
        ({"train_source": file}, "--train-source and --train-target belong together"),
        ({"train_source": file, "train_target": file, "train_table": file}, "--train-table and --train-source exclude"),
        ({"test_table": file}, "--test-table is given without training data"),
    ):
        VED_CASE.fails(message, "train", *words_of({"out": tmp_path / "new", **values}))
    for words, message in (
        (
            ("evaluate", "--latent-temperatures", 1, "nan"),
            "--latent-temperatures: must be a finite number. Received: nan",
        ),
        (("evaluate", "--word-temperatures", 0), "--word-temperatures: must be greater than 0. Received: 0.0"),
        (("evaluate", "--source", file), "--source and --target belong together"),
        (("evaluate", "--source", file, "--target", file, "--table", file), "--table and --source exclude each other"),
    ):
        VED_CASE.fails(message, words[0], "--run", run, *words[1:])
    assert not (tmp_path / "new").exists()


def test_data_of_which_nothing_is_left(tmp_path):
    """All of one source, words that are all too rare, a column that there is not."""
    same = "source\ttarget\n" + "one source\ta target\n" * 5
    distinct = "source\ttarget\n" + "".join(f"source{index}\ttarget{index}\n" for index in range(20))
    for text, options, message in (
        (same, {}, "--valid-fraction: cannot divide 5 rows with the same source or --group-column"),
        (distinct, {"min_count": 9}, "--min-count: no source word of the pairs occurs that often. Received: 9"),
        (distinct, {"target_column": "question"}, "table.tsv:1: no column named 'question'"),
        (distinct, {"group_column": "article"}, "table.tsv:1: no column named 'article'"),
        (distinct.replace("target3", ""), {}, "table.tsv:5: an empty sentence or field"),
    ):
        (tmp_path / "table.tsv").write_text(text)
        values = {"out": tmp_path / "new", "train_table": tmp_path / "table.tsv", **options}
        VED_CASE.fails(message, "train", *words_of(values))
    assert not (tmp_path / "new").exists()
