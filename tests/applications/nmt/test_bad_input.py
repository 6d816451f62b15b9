"""Bad input of the translation program: one clear error before any work."""

import dataclasses
import re
import shutil

import numpy as np
import pytest
import yaml
from nmt_cases import arguments_of, call, small_options

from applications.common.errors import InputError
from applications.nmt.options import Options, validate


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row": "hardest"}, "--row: expected one of soft, .*Received: hardest"),
        ({"segmentation": "morphemes"}, "--segmentation: expected one of bpe, "),
        ({"dropout": 1.0}, r"--dropout: must be in \[0, 1\)"),
        ({"num_beams": 0}, "--num-beams: must be positive. Received: 0"),
        ({"learning_rate": float("nan")}, "--learning-rate: must be finite"),
        ({"length_penalty": -1.0}, "--length-penalty: must be at least 0"),
        ({"baseline": "mean"}, "--baseline: expected one of soft, moving_average, none"),
        ({"relaxed": "beta"}, "--relaxed: expected one of dirichlet, "),
    ],
)
def test_options_out_of_range(changes, message):
    with pytest.raises(InputError, match=message):
        validate(dataclasses.replace(Options(), **changes))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "train.tgt",
            "one line\n",
            r"train.src has 36 lines and .*train.tgt has 1: .*; line 2 of .*train.src has none",
        ),
        ("train.src", "", "train.src: the file is empty"),
        ("train.tgt", "x\n\n" + "y\n" * 34, "train.tgt:2: an empty sentence"),
    ],
)
def test_bad_files_stop_before_any_work(tmp_path, name, text, message):
    options = small_options(tmp_path)
    (tmp_path / "data" / name).write_text(text, encoding="utf-8")
    status, _, err = call(*arguments_of(options))
    assert status == 2
    assert re.search(message, err)
    assert not (tmp_path / "run").exists()


def test_bad_words_on_the_command_line(trained, tmp_path):
    options, _ = trained
    (tmp_path / "file").write_text("")
    for arguments, message in (
        (("evaluate", "--run", tmp_path), "is not the folder of a run"),
        (("evaluate", "--run", options.out, "--inference", "kmax"), "--inference: expected exact, kmax:K"),
        (("evaluate", "--run", options.out, "--split", "train"), "--split: expected valid or test"),
        (("evaluate", "--run", options.out, "--split", "test"), "this run has no test pairs"),
        (("generate", "--run", options.out, "--num-beams", 0), "--num-beams: must be positive"),
        (("generate", "--run", options.out, "--input", tmp_path / "no"), "no such file"),
        (("export", "--run", options.out, "--inference", "sample:3"), "an export has no draws"),
        (("train", "--out", options.out), "holds a run"),
        (("compare", "--k-curve", 2), "name its --inference"),
        (("compare", "--k-curve", -1), "--k-curve: must be at least 0"),
        (("compare", "--rows", "soft@marginal@soft"), "--rows: expected soft, "),
        (("compare", "--rows", "soft", "--out", tmp_path / "file"), "cannot be made"),
        (("evaluate", "--run", options.out, "--name", "alignments"), "--name: must name a file"),
        (("compare", "--rows", "softer"), "--rows: expected soft, "),
        (("compare", "--inference", "most"), "--inference: expected exact"),
    ):
        status, _, err = call(*arguments)
        assert status == 2, arguments
        assert message in err


def test_another_segmentation_of_the_same_size(trained, tmp_path):
    """The weights fit it, and every word would be another."""
    options, _ = trained
    shutil.copytree(options.out, tmp_path / "run")
    file = tmp_path / "run" / "target_vocabulary.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n", encoding="utf-8")
    for command in (("generate", "--input", __file__), ("evaluate",), ("export", "--out", tmp_path / "served")):
        status, _, err = call(command[0], "--run", tmp_path / "run", *command[1:])
        assert status == 2
        assert "target_vocabulary.txt are not those that this run was trained with" in err
    file.unlink()
    assert "cannot be read" in call("generate", "--run", tmp_path / "run", "--input", __file__)[2]


def test_weights_that_are_cut_off(trained, tmp_path):
    options, _ = trained
    shutil.copytree(options.out, tmp_path / "run")
    file = tmp_path / "run" / "weights" / "best.npz"
    content = file.read_bytes()
    # Cut off; a flag that says it is encrypted; an array and no archive.
    encrypted = bytearray(content)
    for index in range(len(content) - 4):
        if content[index : index + 4] == b"PK\x01\x02":
            encrypted[index + 8] |= 1
    np.save(tmp_path / "array.npy", np.zeros(3))
    for damaged in (content[:1000], bytes(encrypted), (tmp_path / "array.npy").read_bytes()):
        file.write_bytes(damaged)
        status, _, err = call("generate", "--run", tmp_path / "run", "--input", __file__)
        assert (status, "best.npz cannot be loaded" in err) == (2, True)


def test_weights_of_another_model(trained, tmp_path):
    options, _ = trained
    shutil.copytree(options.out, tmp_path / "run")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({**config, "units": 11}))
    status, _, err = call("generate", "--run", tmp_path / "run", "--input", __file__)
    assert status == 2
    assert "does not fit the model" in err
