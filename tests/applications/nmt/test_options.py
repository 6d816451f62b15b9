"""Tests incompatible options, and the default inferences of the models."""

import typing

import pytest
from nmt_cases import write_pairs
from program_cases import NMT_CASE

from applications.common.errors import InputError
from applications.common.option_values import with_values
from applications.common.runs import RunFolder
from applications.nmt.data import load_codec
from applications.nmt.model import MODELS
from applications.nmt.options import ModelName, Options


def test_a_relaxed_alignment_is_sampled_unless_it_is_exported():
    """`relaxed` uses samples (Deng et al. 2018, section 4); BAM uses mean weights (Fan et al. 2020, section 3.2)."""
    inferences = {name: (model.inference, model.inference_without_draws) for name, model in MODELS.items()}
    assert inferences.pop("relaxed") == ("sample:10", "soft")
    assert {x for name, x in inferences.items() if name in ("soft", "wc", "lc")} == {("soft", "soft")}
    assert inferences["marginal"] == ("exact", "exact")


@pytest.fixture
def run_of(tmp_path):
    """Return a function that writes a run folder with the files that are read before TensorFlow is imported."""

    def run_of(model):
        folder = tmp_path / model
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(f"model: {model}\n")
        (folder / "weights.npz").write_bytes(b"")
        return folder

    return run_of


@pytest.mark.parametrize(
    "words, message",
    [
        (("evaluate", "--inference", "kmax"), "--inference: expected exact, kmax:K, soft or sample:n."),
        (("evaluate", "--links", __file__), "--links requires --source or --table"),
    ],
)
def test_options_of_commands(run_of, words, message):
    NMT_CASE.fails(message, words[0], "--run", run_of("soft"), *words[1:])


@pytest.mark.parametrize(
    "model, inference, message",
    [
        ("relaxed", "kmax:3", "--inference: the alignments of this model"),
        ("wc", "exact", "--inference: BAM-WC predicts with the mean attention"),
        ("lc", "sample:3", "--inference: BAM-LC predicts with the mean attention"),
    ],
)
def test_unsupported_inferences(model, inference, message):
    with pytest.raises(InputError, match=message):
        MODELS[model].parse(inference)


def test_every_model_has_a_name_among_the_options():
    assert set(typing.get_args(ModelName)) == MODELS.keys()


def test_a_run_on_files_does_not_start_from_a_run_on_built_in_pairs(run_of, tmp_path):
    """Both runs omit `segmentation`, which is then bpe for files and words for built-in pairs."""
    files = ("--data", write_pairs(tmp_path / "data"), "--out", tmp_path / "out")
    NMT_CASE.fails("was trained with different values of segmentation", "train", *files, "--start-from", run_of("soft"))


def test_a_folder_without_training_files(tmp_path):
    message = f"--data: {tmp_path} has no file train.src, plain or .gz"
    NMT_CASE.fails(message, "train", "--out", tmp_path / "new", "--data", tmp_path)


def test_a_segmentation_that_cannot_be_read(tmp_path):
    folder = RunFolder.open(tmp_path / "run", {})
    with pytest.raises(InputError, match=r"bpe\.model: cannot load the SentencePiece model"):
        load_codec(with_values(Options(), {"segmentation": "bpe"}), folder)
    with pytest.raises(InputError, match=r"source_vocabulary\.txt: no such vocabulary"):
        load_codec(with_values(Options(), {"segmentation": "words"}), folder)
