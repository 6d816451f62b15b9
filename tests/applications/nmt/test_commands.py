"""The commands as they are used: train, evaluate, generate, export, compare."""

import csv
import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import pytest
import sacrebleu.metrics
import yaml
from nmt_cases import PAIRS, SMALL, call, small_options, write_pairs

from applications.common.comparison import Comparison
from applications.common.errors import InputError
from applications.nmt import training
from applications.nmt.generation import Inference, Translator
from applications.nmt.training import HalveOnPlateau, load_run, read_weights

SENTENCES = ["der hund hat das haus gekauft", "mein freund hat den ball", ""]


def test_a_run_leaves_what_it_should(trained):
    options, out = trained
    folder = pathlib.Path(options.out)
    record = json.loads((folder / "metrics.json").read_text())
    for name in ("model.keras", "config.yaml", "report.txt", "samples.txt", "curves.png", "saved_model/saved_model.pb"):
        assert (folder / name).exists(), name
    assert (folder / "alignments.png").stat().st_size > 5000
    drawn = json.loads((folder / "alignments.json").read_text())["pairs"]
    assert len(drawn) == 3
    for pair in drawn:
        for weights in pair["weights"].values():
            assert np.shape(weights) == (len(pair["target"]), len(pair["source"]))
            np.testing.assert_allclose(np.sum(weights, axis=1), 1.0, rtol=1e-5)
    sentences = [(folder / f"{name}.txt").read_text().splitlines() for name in ("hypotheses", "references")]
    assert [len(column) for column in sentences] == 2 * [record["report"]["num_sentences"]]
    quality = sacrebleu.metrics.BLEU(force=True).corpus_score(sentences[0], [sentences[1]])
    assert record["report"]["translation"]["bleu"] == pytest.approx(quality.score)
    for name in ("prior", "posterior", "exact"):
        assert 0 <= record["report"]["alignment"][f"{name}_entropy"] <= np.log(12)
    likelihood = record["report"]["likelihood"]
    assert likelihood["kind"] == "exact"
    assert 1 < likelihood["perplexity"] <= likelihood["elbo_perplexity"] < 100
    assert record["parameters"]["inference"] > 0
    assert record["steps"] == 2 * -(-record["data"]["train"]["pairs"] // 8)
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {"loss", "val_loss", "latent_kl", "learning_rate"} <= set(rows[0])
    assert "perplexity (exact)" in out
    best = int(np.argmin([float(row["val_loss"]) for row in rows])) + 1
    assert record["best_epoch"] == best


def test_best_last_and_averaged_weights(trained):
    options, _ = trained
    folder = pathlib.Path(options.out) / "weights"
    epochs = [read_weights(folder / f"epoch_{number}.npz") for number in (1, 2)]
    for name, expected in (("last", epochs[1]), ("averaged", [(a + b) / 2 for a, b in zip(*epochs, strict=True)])):
        for one, other in zip(read_weights(folder / f"{name}.npz"), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    with pytest.raises(InputError, match=r"--weights: expected one of best, last, averaged. Received: first"):
        load_run(options.out, "first")


def test_evaluate_crosses_inferences(trained, eagerly):
    options, _ = trained
    status, out, err = call(
        "evaluate", "--run", options.out, "--inference", "exact", "kmax:2", "soft", "--k-curve", 3, "--weights", "last"
    )
    assert status == 0, err
    report = json.loads((pathlib.Path(options.out) / "evaluation.json").read_text())
    kinds = [found["likelihood"]["kind"] for found in report["inferences"]]
    assert kinds == ["exact", "K-max 2", "plug-in"]
    assert np.all(np.diff(report["k_curve"]["plain"]) >= 0)
    assert "kmax:2: perplexity (K-max 2)" in out


def test_evaluate_on_other_files(trained, tmp_path, eagerly):
    options, _ = trained
    folder = write_pairs(tmp_path / "other", PAIRS[3:6], ("a", "b"))
    (folder / "links").write_text("0-0\n1-1 2-2\n5-3\n")
    files = ("--source", folder / "a", "--target", folder / "b")
    status, _, err = call("evaluate", "--run", options.out, *files, "--links", folder / "links", "--name", "other")
    assert status == 0, err
    report = json.loads((pathlib.Path(options.out) / "other.json").read_text())
    assert (report["split"], report["files"]["target"]) == (None, str(folder / "b"))
    found = report["inferences"][0]
    assert found["num_sentences"] == 3
    assert {"prior", "posterior", "exact", "posterior_f1_minus_prior_f1"} <= set(found["alignment"])
    for words, message in (
        (files[:2], "--source and --target belong together"),
        (("--links", folder / "links"), "--links: those of a run's own pairs"),
    ):
        status, _, err = call("evaluate", "--run", options.out, *words)
        assert status == 2
        assert message in err


def test_generate_is_what_the_export_gives(trained, tmp_path):
    """A process that imports only TensorFlow and tensorflow-text translates the same lines, byte for byte."""
    options, _ = trained
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    status, out, err = call("generate", "--run", options.out, "--input", lines)
    assert status == 0, err
    status, _, err = call("export", "--run", options.out, "--out", tmp_path / "served")
    assert status == 0, err
    program = (
        "import sys, tensorflow as tf, tensorflow_text\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "lines = open(sys.argv[2], encoding='utf-8').read().split('\\n')[:-1]\n"
        "for text in model.generate(tf.constant(lines)).numpy(): sys.stdout.buffer.write(text + b'\\n')\n"
        "found = model.n_best(tf.constant(lines))\n"
        "assert found['texts'].shape == found['scores'].shape == (3, 3)\n"
        "assert (model.score(tf.constant(lines), tf.constant(lines))['log_likelihood'].numpy() < 0).all()\n"
        "assert not any(name.startswith(('keras_vattn', 'applications')) for name in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "served"), str(lines)], capture_output=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    assert result.stdout.decode() == out
    assert len(out.splitlines()) == len(SENTENCES)


def test_resume_repeats_the_uninterrupted_run(tmp_path, monkeypatch, eagerly):
    """Stopped after the first epoch and resumed: the same history and weights."""
    whole = small_options(tmp_path, row="marginal", epochs=2, out=str(tmp_path / "whole"), export=False)
    parts = dataclasses.replace(whole, out=str(tmp_path / "parts"))
    monkeypatch.setattr(training, "evaluate_split", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        training.train(whole)
    with pytest.raises(KeyboardInterrupt):
        training.train(dataclasses.replace(parts, epochs=1))
    with pytest.raises(KeyboardInterrupt):
        training.train(dataclasses.replace(parts, resume=True))
    for one, other in zip(
        *(read_weights(tmp_path / name / "weights/last.npz") for name in ("whole", "parts")), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_finished_run_reports_again(trained, tmp_path, eagerly):
    """What is missing of it is written, and it trains no more."""
    options, _ = trained
    folder = tmp_path / "run"
    shutil.copytree(options.out, folder)
    history = (folder / "history.csv").read_text()
    for name in ("history.csv", "metrics.json", "alignments.json"):
        (folder / name).unlink()
    training.train(dataclasses.replace(options, out=str(folder), resume=True, export=False))
    assert (folder / "history.csv").read_text() == history
    assert {"metrics.json", "alignments.json"} <= {path.name for path in folder.iterdir()}


def test_a_run_starts_from_another(trained, tmp_path, monkeypatch):
    """The shared weights are those of the other run, and its segmentation is taken over."""
    options, _ = trained
    started = dataclasses.replace(
        options, row="variational_sample", init_from=options.out, out=str(tmp_path / "started"), export=False
    )
    seen = {}

    def look(options, folder, models, encoded):
        seen.update({weight.path: weight.numpy() for weight in models.training.trainable_weights})
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_fit", look)
    with pytest.raises(KeyboardInterrupt):
        training.train(started)
    _, _, _, models = load_run(options.out)
    for weight in models.training.trainable_weights:
        np.testing.assert_array_equal(seen[weight.path], weight.numpy())
    # A run that was killed before its first checkpoint starts from the same weights.
    seen.clear()
    with pytest.raises(KeyboardInterrupt):
        training.train(dataclasses.replace(started, resume=True))
    for weight in models.training.trainable_weights:
        np.testing.assert_array_equal(seen[weight.path], weight.numpy())
    unfinished = tmp_path / "unfinished"
    shutil.copytree(options.out, unfinished)
    # One that goes on for more epochs, one without a report.
    config = {**yaml.safe_load((unfinished / "config.yaml").read_text()), "epochs": 9}
    (unfinished / "config.yaml").write_text(yaml.safe_dump(config))
    for _ in range(2):
        with pytest.raises(InputError, match=r"--init-from: .*unfinished has not been trained to its end"):
            training.train(dataclasses.replace(started, init_from=str(unfinished), out=str(tmp_path / "other")))
        (unfinished / "metrics.json").unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"--init-from: .* is another model: units differ"):
        training.train(dataclasses.replace(started, units=12, out=str(tmp_path / "other")))
    assert not (tmp_path / "other").exists()


def test_the_learning_rate_is_halved():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    callback = HalveOnPlateau(patience=1, rows=[{"val_loss": 3.0}])
    callback.set_model(model)
    rates = []
    for epoch, value in enumerate([2.0, 2.5, 2.4, 2.3, 1.0, 1.5]):
        logs = {"val_loss": value}
        callback.on_epoch_end(epoch, logs)
        rates.append(logs["learning_rate"])
    assert rates == [1.0, 1.0, 0.5, 0.25, 0.25, 0.25]


def test_a_source_without_a_word(trained):
    """It is translated from nothing, and has a probability."""
    options, _ = trained
    _, run_options, codec, models = load_run(options.out)
    translator = Translator(models, codec, run_options)
    log_likelihood = translator.score(["", "der hund"], ["the dog", "the dog"])["log_likelihood"].numpy()
    assert (log_likelihood > -200).all()


def test_a_comparison_reads_what_was_asked_for(trained, tmp_path):
    """A run that decoded otherwise is evaluated again, and is not reported as it was."""
    options, _ = trained
    comparison = Comparison("applications.nmt", tmp_path, 1, training.MAY_DIFFER)
    assert comparison.is_finished(options)
    assert comparison.is_finished(dataclasses.replace(options, export=False))
    for changes in ({"num_beams": 5}, {"length_penalty": 0.0}, {"epochs": 3}):
        other = dataclasses.replace(options, **changes)
        comparison.check(other)
        assert not comparison.is_finished(other)
    with pytest.raises(InputError, match="holds a run with other options"):
        comparison.check(dataclasses.replace(options, units=11))
    # What a run was started from belongs to its epochs.
    longer = dataclasses.replace(options, epochs=9)
    comparison.check(longer)
    with pytest.raises(InputError, match=r"other options \(epochs\)"):
        comparison.check(longer, fixed=("epochs",))
    damaged = dataclasses.replace(options, out=str(tmp_path))
    for name, content in (("metrics.json", b"{\xff"), ("hypotheses.txt", b"\xff")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            comparison.lines(damaged, name)
    with pytest.raises(InputError, match="cannot be read"):
        comparison.is_finished(damaged)
    (tmp_path / "metrics.json").write_text("{}")
    assert not comparison.is_finished(damaged)
    (tmp_path / "history.csv").write_text("epoch,loss\n1,much\n")
    with pytest.raises(InputError, match=r"history.csv is damaged"):
        comparison.history(damaged, ["loss"])


def test_compare(tmp_path, monkeypatch, eagerly):
    """Rows, one started from another, crossed with inferences: every table, and the pictures."""

    def in_this_process(self, name, arguments):
        return None if call(*arguments)[0] == 0 else name

    monkeypatch.setattr(Comparison, "run", in_this_process)
    given = {name: value for name, value in SMALL.items() if name != "epochs"}
    write_pairs(tmp_path / "data")
    values = {**given, "data": str(tmp_path / "data"), "epochs": 2, "export": False}
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(values))
    rows = ("soft", "variational_sample@soft")
    words = ["--out", tmp_path / "out", "--options", tmp_path / "options.yaml", "--seeds", 1, "--split", "valid"]
    words += ["--rows", *rows, "--inference", "exact", "kmax:2", "soft", "--k-curve", 2]
    status, out, err = call("compare", *words)
    assert status == 0, err
    table = (tmp_path / "out/table.md").read_text()
    assert table in out
    assert table.startswith("one seed, no claim; ")
    comparison = json.loads((tmp_path / "out/comparison.json").read_text())
    assert [len(report["inferences"]) for (report,) in comparison["crossing"].values()] == [3, 3]
    for line in (
        "Table 1 of Deng et al. 2018",
        "| Variational Attention, from Soft Attention | E_q[log p] - KL | Sample | exact | ",
        "Table 2 of Deng et al. 2018, left",
        "| model | PPL, exact | PPL, K-max 2 | BLEU, exact | BLEU, K-max 2 |",
        "| Soft Attention | plain | ",
        "Table 3 of Deng et al. 2018, right",
        "Table 4 of Fan et al. 2020",
        "Table 8 of Fan et al. 2020",
        "| variational_sample@soft | kmax:2 | K-max 2 | ",
        "Paired bootstrap over sentences against soft, 1000 resamples",
    ):
        assert line in table, line
    for name in ("alignments.png", "curves.png"):
        assert (tmp_path / "out" / name).stat().st_size > 5000
    crossed = tmp_path / "out/soft_seed_0/crossing_kmax_2_hypotheses.txt"
    assert (
        len(crossed.read_text().splitlines())
        == json.loads((tmp_path / "out/soft_seed_0/metrics.json").read_text())["report"]["num_sentences"]
    )
    # What has been trained, and crossed, is read.
    monkeypatch.setattr(Comparison, "run", lambda self, name, arguments: name)
    status, again, err = call("compare", *words)
    assert status == 0, err
    assert again == out
    # What is missing is asked for: a run of an older version, without its translations, and another curve.
    assert call("compare", *words[:-1], 1)[0] == 2
    for name in ("hypotheses.txt", "history.csv"):
        file = tmp_path / "out/soft_seed_0" / name
        file.rename(tmp_path / name)
        assert call("compare", *words)[0] == 2
        (tmp_path / name).rename(file)
    # More epochs: it would go on after the half it started from, which is longer now.
    (tmp_path / "options.yaml").write_text(yaml.safe_dump({**values, "epochs": 4}))
    status, _, err = call("compare", *words)
    assert (status, "holds a run with other options (epochs)" in err) == (2, True)
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(values))
    # Other data.
    write_pairs(tmp_path / "data", PAIRS[:-3])
    status, _, err = call("compare", *words)
    assert status == 2
    assert "the data are not those of this run" in err


def test_draws_of_continuous_alignments():
    assert Inference.parse("sample:3", "bam_weibull").draws_weights("bam_weibull")
    assert not Inference.parse("sample:3", "marginal").draws_weights("marginal")
    with pytest.raises(InputError, match="the alignments of relaxed are continuous"):
        Inference.parse("kmax:3", "relaxed")


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_run_waits_for_the_half_that_it_starts_from(tmp_path, monkeypatch, jobs):
    """Every run once, what starts from another after it, and the others need not wait."""
    begun, ended, others_ended = [], [], threading.Event()

    def train(self, run_options):
        name = pathlib.Path(run_options.out).name
        assert run_options.init_from is None or pathlib.Path(run_options.init_from).name in ended
        begun.append(name)
        if jobs == 3 and "half" in name:
            others_ended.wait(60)
            # A run that waited for no half would begin now.
            time.sleep(0.1)
        ended.append(name)
        if {"soft_seed_0", "soft_seed_1"} <= set(ended):
            others_ended.set()

    monkeypatch.setattr(Comparison, "train", train)
    write_pairs(tmp_path / "data")
    values = {**SMALL, "data": str(tmp_path / "data"), "epochs": 2}
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(values))
    rows = ["variational_sample@soft", "soft", "variational_enum@soft"]
    words = ["--out", tmp_path / "out", "--options", tmp_path / "options.yaml", "--seeds", 2, "--jobs", jobs]
    status, _, err = call("compare", *words, "--rows", *rows)
    # Nothing was trained, so that there is nothing to read.
    assert (status, "cannot be read" in err) == (2, True)
    halves = [f"soft_half_seed_{seed}" for seed in (0, 1)]
    assert sorted(begun) == sorted(
        [f"{row.replace('@', '_from_')}_seed_{seed}" for row in rows for seed in (0, 1)] + halves
    )
    if jobs == 3:
        assert set(ended[:2]) == {"soft_seed_0", "soft_seed_1"}


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_run_does_not_start_from_a_half_that_failed(tmp_path, monkeypatch, jobs):
    begun = []

    def run(self, name, arguments):
        begun.append(name)
        return f"train {name} failed: killed" if "half" in name else None

    monkeypatch.setattr(Comparison, "run", run)
    write_pairs(tmp_path / "data")
    (tmp_path / "options.yaml").write_text(yaml.safe_dump({**SMALL, "data": str(tmp_path / "data"), "epochs": 2}))
    words = ["--out", tmp_path / "out", "--options", tmp_path / "options.yaml", "--seeds", 1, "--jobs", jobs]
    status, _, err = call("compare", *words, "--rows", "soft", "variational_sample@soft")
    assert status == 2
    assert "train soft_half_seed_0 failed: killed" in err
    assert "variational_sample_from_soft_seed_0 was not begun" in err
    assert sorted(begun) == ["soft_half_seed_0", "soft_seed_0"]
