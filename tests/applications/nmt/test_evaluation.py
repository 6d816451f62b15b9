"""Tests reports of a trained model, validation after each epoch, and generation."""

import numpy as np
import pytest
import tensorflow as tf
from application_cases import prepared_anywhere
from nmt_cases import APPLICATION, small_options
from program_cases import NMT_CASE, PAIRS
from run_files import read_history

from applications.common.checkpoint import read_weights
from applications.common.training import load_run
from applications.nmt.decode import Translator, translate
from applications.nmt.options import EvaluateNmt, GenerateNmt
from applications.nmt.report import attention, controls, normalized, quality
from applications.nmt.train import TranslateValidation


@pytest.fixture(scope="module")
def run(run_of):
    """Return a run, with encoded data, of a model that has an inference network."""
    run = load_run(APPLICATION, run_of(NMT_CASE).path)
    for name, part in APPLICATION.read(run.options).items():
        run.data[name] = APPLICATION.encode(run.options, run.codec, part)
    return run


@pytest.mark.slow
def test_the_report_under_another_inference(run, eagerly):
    part = run.data["valid"]
    report, outputs = APPLICATION.evaluate(run, part, EvaluateNmt("", inference="kmax:2"))
    default, _ = APPLICATION.evaluate(run, part)
    assert (report["inference"], report["likelihood"]["kind"]) == ("kmax:2", "K-max 2")
    assert (default["inference"], default["likelihood"]["kind"]) == ("exact", "exact")
    assert report["likelihood"]["perplexity"] != default["likelihood"]["perplexity"]
    # The ELBO uses q, so it does not depend on the option `inference`.
    assert report["likelihood"]["elbo_perplexity"] == default["likelihood"]["elbo_perplexity"]
    files = APPLICATION.files(outputs)
    assert quality(files["hypotheses"], files["references"], True) == report["translation"]
    assert files["references"] == normalized(run.codec, part.pairs.targets)
    assert all("|case:lc|" in report["translation"][f"{name}_signature"] for name in ("bleu", "chrf"))


@pytest.mark.parametrize(
    "model, kinds",
    [
        ("soft", ["prior", "exact"]),
        ("relaxed", ["prior", "posterior"]),
        ("wc", ["mean"]),
        ("variational_enum", ["prior", "posterior", "exact"]),
    ],
)
def test_alignments_of_every_kind_of_model(model, kinds, tmp_path, eagerly):
    run = prepared_anywhere(APPLICATION, small_options(tmp_path, model=model))
    (alignment, *_) = attention(run, run.data["valid"])
    assert list(alignment.weights) == kinds
    for weights in alignment.weights.values():
        assert weights.shape == (len(alignment.target), len(alignment.source))
        np.testing.assert_allclose(np.sum(weights, axis=1), 1.0, rtol=1e-4)


@pytest.mark.slow
def test_controls_swap_the_source(run, eagerly, monkeypatch):
    """The source control is the mean drop of log p of the target if another sentence replaces the source."""
    part = run.data["valid"]
    monkeypatch.setattr(run.options.fit, "batch_size", 5)
    translator, costs = Translator(run), []
    for inputs, target in part.training_batches(run.options):
        for row in range(len(target)):
            arguments = (inputs["target_input"][row : row + 1], target[row : row + 1])
            half_away = (row - len(target) // 2) % len(target)
            sources = [inputs["source"].numpy()[index : index + 1] for index in (row, half_away)]
            if (sources[0] != sources[1]).any():
                log_p, rolled_log_p = (np.sum(translator.log_likelihood(source, *arguments)) for source in sources)
                costs.append(log_p - rolled_log_p)
    reported = controls(translator, run, part)["source"]
    assert reported["nats"] == pytest.approx(np.mean(costs), rel=1e-3, abs=1e-5)
    assert reported["standard_error"] == pytest.approx(np.std(costs, ddof=1) / np.sqrt(len(costs)), rel=1e-3)


@pytest.mark.slow
def test_validation_after_an_epoch(run, eagerly, monkeypatch):
    """Validation logs the perplexity, computed from the loss, and BLEU of the first sentences, decoded greedily."""
    monkeypatch.setattr(run.options.reports, "num_decoded", 3)
    monkeypatch.setattr(run.options.reports, "decode_every", 2)
    callback, part = TranslateValidation(run), run.data["valid"]
    logs = [{"val_loss": 12.5}, {"val_loss": 12.5}]
    for epoch, epoch_logs in enumerate(logs):
        callback.on_epoch_end(epoch, epoch_logs)
    tokens = sum(len(text.split()) + 1 for text in part.pairs.targets) / len(part.pairs)
    assert logs[0] == {"val_loss": 12.5, "val_perplexity": pytest.approx(np.exp(12.5 / tokens))}
    greedy = translate(Translator(run, num_beams=1), run.codec, part.sources[:3], title=None)
    assert logs[1]["val_bleu"] == quality(greedy, part.pairs.targets[:3], True)["bleu"]
    # BAM may have a KL of hundreds of nats per word. TensorBoard reads float32, so larger perplexities become inf.
    for nats_of_a_word in (100.0, 1e4):
        epoch_logs = {"val_loss": nats_of_a_word * tokens}
        callback.on_epoch_end(0, epoch_logs)
        assert epoch_logs["val_perplexity"] == np.inf and np.isinf(tf.constant(epoch_logs["val_perplexity"]))


@pytest.mark.slow
def test_validation_during_the_warm_start_is_ignored(tmp_path, monkeypatch, weights_only):
    """The learning rate schedule and the choice of weights skip the warm start, because q is untrained there."""
    losses = iter([5.0, 6.0, 9.0, 8.0])
    monkeypatch.setattr("applications.nmt.train.perplexity", lambda nats: next(losses))
    on_epoch_end = TranslateValidation.on_epoch_end

    def with_loss(self, epoch, logs=None):
        on_epoch_end(self, epoch, logs)
        logs["val_loss"] = logs["val_perplexity"]

    monkeypatch.setattr(TranslateValidation, "on_epoch_end", with_loss)
    options = {"model": "relaxed", "warm_start": 6, "epochs": 4, "decode_every": 0, "tensorboard": False}
    NMT_CASE.succeeds(*NMT_CASE.train(tmp_path / "run", **options))
    rows = read_history(tmp_path / "run")
    # With three steps per epoch, the loss of the third epoch is the first that counts.
    assert [row.get("warm_start") for row in rows] == [1.0, 1.0, None, None]
    assert len({row["learning_rate"] for row in rows}) == 1
    assert read_weights(tmp_path / "run/weights.npz")[2]["epoch"] == 4


@pytest.mark.slow
def test_generate_returns_the_translations(run, tmp_path, eagerly):
    (tmp_path / "lines").write_text("".join(f"{source}\n" for source, _ in (*PAIRS[:2], ("", ""))))
    options = GenerateNmt(run.folder.path, input=str(tmp_path / "lines"), inference="soft", num_beams=1)
    translator = Translator(run, "soft", 1)
    texts = translator.generate([source for source, _ in PAIRS[:2]]).numpy()
    assert list(APPLICATION.generate(run, options)) == [*(text.decode() for text in texts), ""]


def test_the_endpoints(run):
    module, names = APPLICATION.endpoints(run)
    assert module.inference.value.kind == "exact" and names == ("generate", "n_best", "score")
