"""The commands that read a run: evaluate, generate or predict, export."""

import errno
import importlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import yaml
from program_case import fewer, written
from program_cases import CASES, TOY, few_cases
from run_files import files_of, read_json
from tiers import slow_except

from applications.common.runs import RunFolder
from applications.common.training import load_run

# Whose encoder is an LSTM.
WITH_LSTM = ("ved", "nmt", "vqa", "vrae")


class Unread:
    """Standard input that nobody may read."""

    @property
    def buffer(self):
        raise AssertionError("standard input is read")


@few_cases
def test_evaluate_keeps_a_file_for_each_split(case, copied):
    """And of other files; the figures are printed as a table, and what the program writes beside them."""
    digests = {}
    for split in ("valid", "test"):
        printed = case.succeeds("evaluate", "--run", copied, "--split", split)
        record = read_json(copied / f"evaluation_{split}.json")
        assert set(record) == {"split", "data_digest", "data", "report", "options"}
        assert (record["split"], record["options"]["split"]) == (split, split)
        digests[split] = record["data_digest"]
        for kind in case.outputs:
            assert (copied / f"evaluation_{split}_{kind}.txt").read_text(encoding="utf-8")
        values = [(column, column.value(record)) for column in case.program.application().columns]
        lines = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in printed.splitlines() if "|" in line}
        assert (
            lines.items() >= {c.title: c.cell([v]) for c, v in values if v is not None and c.cell([v]) != "-"}.items()
        )
        assert printed.splitlines()[-1] == f"written: {copied / f'evaluation_{split}.json'}"
    assert digests["valid"] != digests["test"]
    # What the run reported itself it reports again.
    again, report = read_json(copied / "evaluation_test.json")["report"], read_json(copied / "metrics.json")["report"]
    assert {name: again[name] for name in report} == report


@few_cases
def test_evaluate_on_other_files(case, copied, tmp_path):
    words = [word for name, path in written(case.evaluated, tmp_path).items() for word in (f"--{name}", path)]
    before = files_of(copied)
    case.succeeds("evaluate", "--run", copied, *words)
    record = read_json(copied / "evaluation_files.json")
    assert record["split"] is None
    added = {
        "evaluation_files.json",
        "evaluation_files.html",
        *(f"evaluation_files_{kind}.txt" for kind in case.outputs),
    }
    assert {path.name for path in files_of(copied).keys() - before.keys()} == added
    # Others under the same name.
    content = (copied / "evaluation_files.json").read_bytes()
    pathlib.Path(words[1]).write_text(fewer(next(iter(case.evaluated.values()))), encoding="utf-8")
    message = f"--name: {copied / 'evaluation_files.json'} has the figures of other data; choose another name."
    case.fails(message, "evaluate", "--run", copied, *words)
    case.fails(message, "evaluate", "--run", copied, "--name", "evaluation_files")
    assert (copied / "evaluation_files.json").read_bytes() == content


def test_evaluate_on_the_same_files_again(toy, copied_toy, tmp_path):
    words = ["--data", *written(toy.evaluated, tmp_path).values()]
    contents = []
    for more in ((), (), ("--name", "another"), ("--num-draws", 3)):
        toy.succeeds("evaluate", "--run", copied_toy, *words, *more)
        contents.append((copied_toy / "evaluation_files.json").read_bytes())
    assert contents[0] == contents[1] == contents[2] != contents[3]
    records = [read_json(copied_toy / f"{name}.json") for name in ("another", "evaluation_files")]
    assert records[0]["data_digest"] == records[1]["data_digest"]
    assert 0 <= records[1]["report"]["accuracy_of_draws"] <= 1


def test_names_of_reports(case, copied):
    """No other file of a run is overwritten."""
    (copied / "thesis.json").write_text('["mine"]')
    before = files_of(copied)
    for name, message in (
        ("metrics", "--name: must name a file that the run's folder has not"),
        ("report", "--name: must name a file that the run's folder has not"),
        ("../metrics", "--name: must be the name of a file, without a folder"),
        ("thesis", "is no report; choose another name"),
    ):
        case.fails(message, "evaluate", "--run", copied, "--name", name)
    assert files_of(copied) == before


def test_a_part_that_the_data_have_not(toy, tmp_path, weights_only, monkeypatch):
    data = importlib.import_module(f"{toy.program.name}.data")
    read = data.read

    def without_test(options):
        parts = read(options)
        del parts["test"]
        return parts

    monkeypatch.setattr(data, "read", without_test)
    toy.succeeds(*toy.train(tmp_path / "run", epochs=1))
    toy.fails("--split: this run has no test data.", "evaluate", "--run", tmp_path / "run", "--split", "test")


def test_a_run_that_has_not_finished_says_so(toy, tmp_path, weights_only):
    toy.succeeds(*toy.train(tmp_path / "run", epochs=1))
    config = tmp_path / "run/config.yaml"
    config.write_text(config.read_text().replace("epochs: 1\n", "epochs: 3\n"))
    status, _, err = toy.call("predict", "--run", tmp_path / "run", standard_input="\n".join(toy.lines).encode())
    assert (status, err) == (0, "the run has not finished: it has 1 of 3 epochs\n")


def test_answers_to_a_file_and_to_standard_input(case, trained, tmp_path):
    """One line for each."""
    content = "".join(f"{line}\n" for line in case.lines)
    (tmp_path / "lines.txt").write_text(content, encoding="utf-8")
    of_file = case.succeeds(*case.answers_of(trained, "--input", tmp_path / "lines.txt"))
    assert len(of_file.splitlines()) == len(case.lines)
    if case.name == TOY:
        assert of_file == case.succeeds(*case.answers_of(trained), standard_input=content.encode())
        return
    # A blank line has a blank answer, so that answers stand beside their lines.
    spaced, *blank = (
        case.succeeds(*case.answers_of(trained), standard_input=text.encode())
        for text in (content.replace("\n", "\n\u200b\n"), "\n", " \n\0\n")
    )
    assert spaced == of_file.replace("\n", "\n\n") and blank == ["\n", "\n\n"]


def test_inputs_that_cannot_be_read(case, trained, tmp_path, monkeypatch):
    """A wrong run is refused before standard input is read, and so is a file."""
    content, message = case.unreadable
    case.fails(message, *case.answers_of(trained), standard_input=content)
    case.fails("there is no line", *case.answers_of(trained), standard_input=b"")
    monkeypatch.setattr(sys, "stdin", Unread())
    (tmp_path / "lines.txt").write_bytes(content)
    case.fails("lines.txt", *case.answers_of(trained, "--input", tmp_path / "lines.txt"))
    case.fails("--input: no such file", *case.answers_of(trained, "--input", tmp_path / "none.txt"))
    no_run = "--run: must be the folder of a run, with its config.yaml. Received: "
    case.fails(no_run, case.answer, "--run", tmp_path / "none")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("hidden_units: 3\n")
    case.fails(
        f"config.yaml, of a run of another program than {case.program.name}? names an unknown option: ",
        case.answer,
        "--run",
        tmp_path / "run",
    )
    (tmp_path / "run/config.yaml").write_text((trained / "config.yaml").read_text())
    case.fails("no epoch has been finished, weights.npz is missing", case.answer, "--run", tmp_path / "run")


def test_a_run_of_an_earlier_version(toy, copied_toy):
    """Options that are gone are ignored, unless they made another model."""
    path = copied_toy / "config.yaml"
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(config | {"picture_every": 3, "data_seed": 0}))
    toy.succeeds("evaluate", "--run", copied_toy)
    toy.succeeds("train", "--resume", "--out", copied_toy)
    path.write_text(yaml.safe_dump(config | {"prior_scale": "paper"}))
    toy.fails(f"{path}: this version has no option prior_scale. Received: paper", "evaluate", "--run", copied_toy)


def test_a_value_of_the_options_that_a_run_cannot_have(toy, copied_toy, monkeypatch):
    """Each command names the file and the option; what a run no longer needs may be gone."""
    path = copied_toy / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for values, message in (
        ({"units": -3}, "units: must be greater than 0. Received: -3"),
        ({"learning_rate": float("inf")}, "learning_rate: must be a finite number. Received: inf"),
        ({"warmup_steps": 3, "schedule": "plateau"}, "--warmup-steps: the schedule plateau has no warm-up"),
    ):
        path.write_text(yaml.safe_dump(config | values))
        for command in (toy.answer, "evaluate", "export"):
            toy.fails(f"{path}: {message}", command, "--run", copied_toy)
        toy.fails(f"{path}: {message}", "train", "--resume", "--out", copied_toy)
        toy.fails(f"{path}: {message}", *toy.train(copied_toy.parent / "new"), "--start-from", copied_toy)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    path.write_text(yaml.safe_dump(config | {"data": "gone.txt", "strategy": "multi_worker"}))
    content = "".join(f"{line}\n" for line in toy.lines).encode()
    toy.succeeds(*toy.answers_of(copied_toy), standard_input=content)
    toy.fails("gone.txt: no such file", "evaluate", "--run", copied_toy)


@pytest.mark.parametrize("case", slow_except([x for x in CASES if x in WITH_LSTM], "vqa"), indirect=True)
def test_encoders_keep_the_conditions_of_cudnn(case, trained, asked_cudnn, tmp_path):
    """Padding on the right, no empty row, though an input may be empty."""
    (tmp_path / "inputs").write_text("".join(f"{line}\n" for line in case.lines), encoding="utf-8")
    case.succeeds(*case.answers_of(trained, "--input", tmp_path / "inputs"))
    assert asked_cudnn


def test_small_files_that_are_damaged(toy, copied_toy):
    """Each is named by the first command that reads it, before it works."""
    contents = {"empty": b"", "cut": b"{", "list": b"[1]", "binary": bytes(range(256)), "missing": None}
    commands = {
        "codec.json": (toy.answer, "--run", copied_toy),
        "history.csv": (toy.answer, "--run", copied_toy),
        "data.sha256": ("evaluate", "--run", copied_toy),
        "metrics.json": [*toy.train(copied_toy.parent / "new"), "--start-from", copied_toy],
    }
    # No epoch, unknown data, no report.
    harmless = {*((name, "missing") for name in [*commands][1:])}
    harmless |= {("history.csv", damage) for damage in ("empty", "cut", "list")}
    for name, command in commands.items():
        path = copied_toy / name
        before = path.read_bytes()
        for damage, content in contents.items():
            if (name, damage) in harmless:
                continue
            path.unlink() if content is None else path.write_bytes(content)
            toy.fails("has not been trained to its end" if name == "metrics.json" else name, *command)
            path.write_bytes(before)


@pytest.mark.parametrize("damage", ["cut", "encrypted", "array"])
def test_weights_that_are_damaged(toy, copied_toy, damage):
    path = copied_toy / "weights.npz"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:1000]
    elif damage == "encrypted":
        for index in range(len(content) - 4):
            if content[index : index + 4] == b"PK\x01\x02":
                content[index + 8] |= 1
    else:
        file = io.BytesIO()
        np.save(file, np.zeros(3))
        content = file.getvalue()
    path.write_bytes(content)
    toy.fails("weights.npz cannot be loaded", "predict", "--run", copied_toy, standard_input=b"1\n")


def test_export(toy, copied_toy, tmp_path):
    """In the run's folder over the one before, and elsewhere; nothing of a user's own is overwritten."""
    for words, path in (((), copied_toy / "saved_model"), (("--out", tmp_path / "served"), tmp_path / "served")):
        printed = toy.succeeds("export", "--run", copied_toy, *words)
        assert printed == f"written: {path}, endpoints predict, serving_default\n"
        assert (path / "saved_model.pb").is_file()
    steps = np.float32([line.split() for line in toy.lines]).reshape(-1, 6, 4)
    served = tf.saved_model.load(str(tmp_path / "served"))
    run = load_run(toy.program.application(), copied_toy)
    expected = tf.nn.softmax(run.models.training(steps / run.codec["scale"]))
    np.testing.assert_allclose(served.predict(steps), expected, rtol=1e-5)


@pytest.fixture
def read_only(monkeypatch):
    """Makes a folder one of a disk that cannot be written; root may write into a folder without permissions."""

    def read_only(folder):
        temporary_file = tempfile.TemporaryFile

        def opened(*arguments, dir=None, **options):
            if pathlib.Path(dir).is_relative_to(folder):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return temporary_file(*arguments, dir=dir, **options)

        monkeypatch.setattr(tempfile, "TemporaryFile", opened)

    return read_only


def test_a_run_on_a_disk_that_cannot_be_written(toy, copied_toy, tmp_path, read_only, without_pictures):
    """What writes into it says so before any work, and writes into another folder."""
    before, read = files_of(copied_toy), ["--run", copied_toy]
    read_only(copied_toy)
    for words, out in (
        (["evaluate", *read], copied_toy),
        (["export", *read], copied_toy),
        (["train", "--resume", "--out", copied_toy], copied_toy),
        (["compare", "--models", "gaussian", "--out", copied_toy / "deep/out"], copied_toy / "deep/out"),
    ):
        toy.fails(f"--out: {out} cannot be written: Read-only file system. Name another folder.", *words)
    toy.succeeds("evaluate", *read, "--out", tmp_path / "report")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        *(f"evaluation_valid{end}" for end in (".json", ".html")),
        *(f"evaluation_valid_{kind}.txt" for kind in toy.outputs),
    }
    assert files_of(copied_toy) == before


def test_figures_are_printed_where_they_cannot_be_written(toy, copied_toy, monkeypatch):
    def fsync(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    status, out, err = toy.call("evaluate", "--run", copied_toy)
    assert status == 4 and "| accuracy" in out
    assert err == f"error: [Errno 28] No space left on device: '{copied_toy / 'evaluation_valid_predicted.txt'}'\n"


def test_export_spares_what_is_no_export(toy, trained_toy, tmp_path):
    (tmp_path / "thesis.tex").write_text("my thesis")
    for out in (tmp_path, tmp_path / "thesis.tex"):
        toy.fails("is not empty and holds no SavedModel", "export", "--run", trained_toy, "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_every_argument_of_an_endpoint_has_its_name(case, exported_by):
    """A name of its own: not that of a list with a number, nor one that TensorFlow makes up."""
    loaded = tf.saved_model.load(str(exported_by(case)))
    for endpoint in loaded.signatures.values():
        positional, named = endpoint.structured_input_signature
        assert not positional and not [name for name in named if re.search(r"_\d+$|^(args|arguments|inputs)$", name)]
    if case.name == "finetuning":
        assert set(loaded.signatures["predict"].structured_input_signature[1]) == {"texts"}
        assert set(loaded.signatures["sample"].structured_input_signature[1]) == {"texts", "num_samples", "seed"}


# Knows TensorFlow and its operations on text, and neither Keras models nor this project.
SERVED = """
import json, sys
import numpy as np
import tensorflow as tf, tensorflow_text

answers = {}
for name, (path, lines, images) in json.loads(sys.argv[1]).items():
    model = tf.saved_model.load(path)
    given = {} if images is None else np.load(images)
    if "arr_0" in given:
        pixels = given["arr_0"]
        ids, *texts = zip(*(line.split("\\t") for line in lines))
        pngs = tf.stack([tf.io.encode_png(pixels[int(row)]) for row in ids])
    if "edges" in given:
        found, names = model.predict(given["features"], given["edges"]), given["names"]
        rows = found["probabilities"].numpy()[given["rows"]]
        answers[name] = ["\\t".join(f"{names[i]} {row[i]:.4f}" for i in np.argsort(-row)[:3]) for row in rows]
    elif "arr_0" in given and hasattr(model, "generate"):
        answers[name] = [line.decode() for line in model.generate(pngs)["captions"].numpy()]
    elif "arr_0" in given:
        found = model.predict(pngs, tf.constant(texts[0]))
        rows = zip(found["answers"].numpy(), found["probabilities"].numpy())
        answers[name] = ["\\t".join(f"{x.decode()} {p:.3f}" for x, p in list(zip(*row))[:3]) for row in rows]
    elif hasattr(model, "generate"):
        answer = model.reconstruct if hasattr(model, "reconstruct") else model.generate
        answers[name] = [line.decode() for line in answer(tf.constant(lines)).numpy()]
    elif name == "finetuning":
        found = model.predict(tf.constant(lines))
        rows = zip(found["labels"].numpy(), found["probabilities"].numpy().max(axis=1))
        answers[name] = [f"{label.decode()}\\t{probability:.4f}" for label, probability in rows]
    else:
        steps = tf.reshape(tf.strings.to_number([line.split() for line in lines]), (len(lines), 6, 4))
        answers[name] = [" ".join(f"{x:.4f}" for x in row) for row in model.predict(steps).numpy()]
project = sorted(name for name in sys.modules if name.split(".")[0] in ("keras_vattn", "applications"))
print("RESULT" + json.dumps([answers, project]))
"""


@pytest.mark.slow
def test_what_is_exported_answers_without_this_project(run_of, exported_by, tmp_path):
    asked = {}
    for name, case in CASES.items():
        path = run_of(case).path
        images = path.parent / "images.npz" if "images" in case.data else None
        if name == "graphs":
            graph = case.program.application().read(case.program.options_of(RunFolder.load(path)))["train"].graph
            images, rows = tmp_path / "graph.npz", [graph.names.index(line) for line in case.lines]
            raw = np.float32(graph.features)
            np.savez(images, features=raw, edges=graph.edges, rows=rows, names=graph.classes)
        asked[name] = (str(exported_by(case)), case.lines, images and str(images))
    result = subprocess.run(
        [sys.executable, "-c", SERVED, json.dumps(asked)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    answers, project = json.loads(result.stdout.partition("RESULT")[2])
    assert project == []
    for name, case in CASES.items():
        content = "".join(f"{line}\n" for line in case.lines).encode()
        printed = case.succeeds(*case.answers_of(run_of(case).path), standard_input=content)
        # The command answers a blank line with a blank line.
        expected = [answer if line.strip() else "" for line, answer in zip(case.lines, answers[name], strict=True)]
        assert printed.split("\n")[:-1] == expected
