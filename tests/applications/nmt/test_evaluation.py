"""What is reported of a trained model: several inferences, validation after each epoch, files."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from application_cases import prepared_anywhere
from applications.nmt.serve import Translator, translate
from nmt_cases import APPLICATION, small_options
from program_cases import NMT_CASE, PAIRS
from run_files import read_history, read_json

from applications.common.bounds import bound_report
from applications.common.checkpoint import read_weights
from applications.common.training import load_run
from applications.nmt.options import EvaluateNmt, ExportNmt, GenerateNmt
from applications.nmt.report import attention, controls, normalized, quality
from applications.nmt.train import TranslateValidation


@pytest.fixture(scope="module")
def run(run_of):
    """Of a model with an inference network."""
    run = load_run(APPLICATION, run_of(NMT_CASE).path)
    for name, part in APPLICATION.read(run.options).items():
        run.data[name] = APPLICATION.encode(run.options, run.codec, part)
    return run


@pytest.mark.slow
def test_several_inferences(run, eagerly, capsys, monkeypatch):
    """Each of them has a report of its own, the first one is also that of the tables, and each has its files; the bound
    is that of q, and computed once."""
    bounds = []
    once = lambda *arguments: bounds.append(bound_report(*arguments)) or bounds[-1]  # noqa: E731
    monkeypatch.setattr("applications.nmt.report.bound_report", once)
    part, names = run.data["valid"], ("kmax:2", "exact", "soft")
    report, outputs = APPLICATION.evaluate(run, part, EvaluateNmt("", inference=names, k_curve=2))
    assert list(report["inferences"]) == list(names)
    assert {name: x["likelihood"]["kind"] for name, x in report["inferences"].items()} == {
        "kmax:2": "K-max 2",
        "exact": "exact",
        "soft": "plug-in",
    }
    of_first = report["inferences"]["kmax:2"]
    (bound,) = bounds
    assert all(x["likelihood"] | bound == x["likelihood"] for x in report["inferences"].values())
    assert {name: report[name] for name in of_first} == of_first and report["inference"] == "kmax:2"
    assert report["inferences"]["exact"]["likelihood"] == APPLICATION.evaluate(run, part)[0]["likelihood"]
    # K-max 2 is the curve at K = 2, renormalised.
    curve = report["k_curve"]
    assert curve["k"] == [1, 2]
    assert np.log(of_first["likelihood"]["perplexity"]) == pytest.approx(-curve["renormalised"][1], rel=1e-4)
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line in names] == list(names)
    files = APPLICATION.files(outputs)
    assert set(files) == {"hypotheses", "references", "hypotheses_exact", "hypotheses_soft"}
    for name, lines in files.items():
        assert len(lines) == len(part.pairs), name
    assert all("|case:lc|" in report["translation"][f"{name}_signature"] for name in ("bleu", "chrf"))
    assert quality(files["hypotheses"], files["references"], True) == report["translation"]
    assert files["references"] == normalized(run.codec, part.pairs.targets)


@pytest.mark.slow
def test_the_model_s_own_inference(run, eagerly, capsys):
    report, outputs = APPLICATION.evaluate(run, run.data["valid"], EvaluateNmt(""))
    assert list(report["inferences"]) == ["exact"] and "k_curve" not in report
    assert set(APPLICATION.files(outputs)) == {"hypotheses", "references"}
    assert "| figure" not in capsys.readouterr().out
    at_the_end, of_training = APPLICATION.evaluate(run, run.data["valid"])
    assert "inferences" not in at_the_end and at_the_end["translation"] == report["translation"]
    assert APPLICATION.files(of_training) == APPLICATION.files(outputs)


@pytest.mark.slow
def test_in_graph_as_step_by_step(run):
    """The run was trained and reported on step by step."""
    record, part = read_json(run.folder.path / "metrics.json"), run.data["test"]
    report, outputs = APPLICATION.evaluate(run, part)
    (hypotheses,) = outputs["hypotheses"].values()
    assert hypotheses == (run.folder.path / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
    keras.tree.assert_same_structure(report, record["report"])
    for figure, before in zip(keras.tree.flatten(report), keras.tree.flatten(record["report"]), strict=True):
        assert figure == (before if isinstance(before, str) else pytest.approx(before, rel=1e-4, abs=1e-6))


@pytest.mark.parametrize(
    "model, kinds",
    [
        ("soft", ["prior", "exact"]),
        ("relaxed", ["prior", "posterior"]),
        ("wc", ["prior", "mean"]),
        ("gaussian_mean", ["mean"]),
        ("variational_enum", ["prior", "posterior", "exact"]),
    ],
)
def test_the_alignments_that_every_kind_of_model_shows(model, kinds, tmp_path, eagerly):
    run = prepared_anywhere(APPLICATION, small_options(tmp_path, model=model))
    (alignment, *_) = attention(run, run.data["valid"])
    assert list(alignment.weights) == kinds
    spread = {"relaxed": ["prior"], "wc": ["prior", "mean"], "gaussian_mean": ["mean"]}.get(model, [])
    assert list(alignment.spread) == spread
    for weights in alignment.weights.values():
        assert weights.shape == (len(alignment.target), len(alignment.source))
        np.testing.assert_allclose(np.sum(weights, axis=1), 1.0, rtol=1e-4)


def test_what_another_source_costs(run, eagerly, monkeypatch):
    """Of every sentence, by the likelihood of the pairs that the rolled sources make."""
    part = run.data["valid"]
    monkeypatch.setattr(run.options.fit, "batch_size", 5)
    translator, costs = Translator(run), []
    for inputs, target in part.training_batches(run.options):
        for row in range(len(target)):
            one = (inputs["target_input"][row : row + 1], target[row : row + 1])
            half_away = (row - len(target) // 2) % len(target)
            sources = [inputs["source"].numpy()[index : index + 1] for index in (row, half_away)]
            if (sources[0] != sources[1]).any():
                own, other = (np.sum(translator.log_likelihood(source, *one)) for source in sources)
                costs.append(own - other)
    found = controls(translator, run, part)["source"]
    assert found["nats"] == pytest.approx(np.mean(costs), rel=1e-3, abs=1e-5)
    assert found["standard_error"] == pytest.approx(np.std(costs, ddof=1) / np.sqrt(len(costs)), rel=1e-3)


def test_validation_after_an_epoch(run, eagerly, monkeypatch):
    """The perplexity that the loss amounts to, and the BLEU of greedy translations of the first sentences."""
    monkeypatch.setattr(run.options.reports, "num_decoded", 3)
    callback, part = TranslateValidation(run), run.data["valid"]
    logs = {"val_loss": 12.5}
    callback.on_epoch_end(0, logs)
    tokens = sum(len(text.split()) + 1 for text in part.pairs.targets) / len(part.pairs)
    assert logs["val_perplexity"] == pytest.approx(np.exp(12.5 / tokens))
    greedy = translate(Translator(run, num_beams=1), run.codec, part.sources[:3], title=None)
    assert logs["val_bleu"] == quality(greedy, part.pairs.targets[:3], True)["bleu"]
    # The KL of BAM's weights may be hundreds of nats a word; TensorBoard takes what a float32 holds.
    for nats_of_a_word in (100.0, 1e4):
        logs["val_loss"] = nats_of_a_word * tokens
        callback.on_epoch_end(1, logs)
        assert logs["val_perplexity"] == np.inf and np.isinf(tf.constant(logs["val_perplexity"]))


@pytest.mark.slow
def test_validation_before_the_end_of_a_warm_start_counts_for_nothing(tmp_path, monkeypatch, weights_only):
    """Neither for the learning rate nor for the weights that are kept: q has not been trained."""
    losses = iter([5.0, 6.0, 9.0, 8.0])
    perplexity_of = lambda nats: next(losses)  # noqa: E731
    monkeypatch.setattr("applications.nmt.train.perplexity", perplexity_of)
    on_epoch_end = TranslateValidation.on_epoch_end

    def with_loss(self, epoch, logs=None):
        on_epoch_end(self, epoch, logs)
        logs["val_loss"] = logs["val_perplexity"]

    monkeypatch.setattr(TranslateValidation, "on_epoch_end", with_loss)
    options = {"model": "relaxed", "warm_start": 6, "epochs": 4, "decode_every": 0, "tensorboard": False}
    NMT_CASE.succeeds(*NMT_CASE.train(tmp_path / "run", **options))
    rows = read_history(tmp_path / "run")
    # Three steps an epoch; the loss of the third is the first that counts.
    assert [row.get("warm_start") for row in rows] == [1.0, 1.0, None, None]
    assert len({row["learning_rate"] for row in rows}) == 1
    assert read_weights(tmp_path / "run/weights.npz")[2]["epoch"] == 4


@pytest.mark.parametrize("every, decoded", [(0, []), (2, [1, 3])])
def test_validation_is_translated_as_often_as_asked(run, eagerly, monkeypatch, every, decoded):
    monkeypatch.setattr(run.options.reports, "decode_every", every)
    callback, found = TranslateValidation(run), []
    for epoch in range(4):
        logs = {"val_loss": 12.5}
        callback.on_epoch_end(epoch, logs)
        assert "val_perplexity" in logs
        found += [epoch] * ("val_bleu" in logs)
    assert found == decoded


def test_generate_is_what_the_translator_writes(run, tmp_path, eagerly, capsys):
    (tmp_path / "lines").write_text("".join(f"{source}\n" for source, _ in (*PAIRS[:2], ("", ""))))
    options = GenerateNmt(run.folder.path, input=str(tmp_path / "lines"), inference="soft", num_beams=1)
    written = list(APPLICATION.generate(run, options))
    translator = Translator(run, "soft", 1)
    assert written == [text.decode() for text in translator.generate([source for source, _ in PAIRS[:2]]).numpy()] + [
        ""
    ]
    assert "truncated" not in capsys.readouterr().err


def test_the_endpoints_have_the_inference_that_is_asked_for(run):
    for options, name in ((None, "exact"), (ExportNmt(""), "exact"), (ExportNmt("", inference="kmax:2"), "kmax:2")):
        module, names = APPLICATION.endpoints(run, options)
        assert module.inference.value.name == name and names == ("generate", "n_best", "score")
