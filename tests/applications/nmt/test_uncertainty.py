"""Tests the uncertainty of translations, which is computed by scoring a translation again in several draws."""

import numpy as np
import pytest
import tensorflow as tf
from application_cases import Compared, changed, prepared_anywhere, tables_of
from nmt_cases import APPLICATION
from program_case import execution, written
from program_cases import NMT_CASE
from uncertainty_cases import require_draws_of_whole_sentences

from applications.common.errors import InputError
from applications.common.serving import save_module
from applications.nmt.decode import Translator, translate, translate_with_uncertainty
from applications.nmt.options import CompareNmt, EvaluateNmt, GenerateNmt
from applications.text.batching import padded


@pytest.fixture(scope="module")
def run_with(tmp_path_factory):
    runs = {}

    def run_with(model):
        if model not in runs:
            data = written(NMT_CASE.data, tmp_path_factory.mktemp(model))
            options = changed(
                NMT_CASE.program.default,
                **{**NMT_CASE.options, **data, "model": model, "max_length": 6, "dropout": 0.3, "weibull_k": 1.0},
            )
            runs[model] = prepared_anywhere(APPLICATION, options)
        return runs[model]

    return run_with


@pytest.mark.slow
def test_the_likelihood_at_the_mean_matches_the_search(run_with, eagerly):
    """The log-likelihood at the mean equals the log-probability of the search, for greedy decoding and beam search."""
    run = run_with("wc")
    source = tf.constant(padded(run.data["valid"].sources[:3]))
    for num_beams in (1, 3):
        translator = Translator(run, num_beams=num_beams, draws=False)
        searched, figures = translator.beam(source), translator.uncertainty(source, 1, 0)
        np.testing.assert_allclose(figures["log_likelihood"], searched["log_probabilities"], rtol=1e-4)
        np.testing.assert_array_equal(figures["num_words"], searched["lengths"])
        assert "mutual_information" not in figures


@pytest.mark.slow
def test_draws_share_noise_across_a_sentence(run_with, eagerly):
    """One draw scores a whole sentence: with the same noise, the training model returns the same log-likelihood."""
    run = run_with("wc")
    source = tf.constant(padded(run.data["valid"].sources[:3]))
    translator = Translator(run)
    figures = translator.uncertainty(source, 2, 5)
    target = translator.beam(source)["ids"]
    require_draws_of_whole_sentences(figures, run.models.training, {"source": source}, target, 5)


@pytest.mark.slow
def test_models_without_random_attention_use_dropout(run_with, eagerly, monkeypatch, tmp_path):
    run, lines = run_with("soft"), tmp_path / "lines.txt"
    lines.write_text("a\n", encoding="utf-8")
    translator = Translator(run)
    names = [layer.name for layer in translator.noise.value.dropouts]
    assert {"source_dropout", "target_dropout", "emission_dropout"} <= set(names)
    first = translate_with_uncertainty(translator, run.data["valid"].sources[:2], 3)[0]
    assert first["log_likelihood_sd"] > 1e-3 and first["mutual_information"] > 1e-4
    monkeypatch.setattr(run.options.network, "dropout", 0.0)
    with pytest.raises(InputError, match=r"must be 0 for a model with neither noise nor dropout\. Received: 3"):
        list(APPLICATION.generate(run, GenerateNmt("", uncertainty=True, num_draws=3, input=str(lines))))


@pytest.mark.slow
def test_lines_and_the_report(run_with, eagerly, tmp_path, capsys):
    """`generate` writes the same texts with and without `uncertainty`, in the order of the input."""
    run, part = run_with("wc"), run_with("wc").data["valid"]
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{source}\n" for source in part.pairs.sources[:4]))
    options = GenerateNmt("", uncertainty=True, num_draws=2, input=str(lines))
    heads, *rows_of_cells = (line.split("\t") for line in APPLICATION.generate(run, options))
    rows = [dict(zip(heads, line, strict=True)) for line in rows_of_cells]
    assert [row["text"] for row in rows] == list(APPLICATION.generate(run, GenerateNmt("", input=str(lines))))
    for row in rows:
        counts = {len(row[name].split()) for name in ("words", "word_entropy", "word_mutual_information")}
        assert counts == {int(row["num_words"])}
    report, outputs = APPLICATION.evaluate(run, part, EvaluateNmt("", uncertainty=True, num_draws=2))
    curves = report["uncertainty"]["quality"]
    assert report["uncertainty"]["drawn"] == "attention" and set(curves) == {"bleu", "chrf"}
    for metric, results in curves.items():
        assert set(results) == {"mutual_information", "entropy", "likelihood", "random"}
        for result in results.values():
            assert result["curve"][-1] == pytest.approx(report["translation"][metric])
    assert "BLEU of the 10% to 100% most certain sentences" in capsys.readouterr().out
    # The page highlights the words on which the draws disagree.
    (label, marked) = APPLICATION.shown(run, part, outputs).samples[0][2]
    sentence = outputs["sentences"][0]
    assert label == "translation" and [word for word, _ in marked] == sentence["words"]
    assert [nats for _, nats in marked] == pytest.approx(list(sentence["word_mutual_information"]))


def test_the_layout_evaluates_every_run(tmp_path):
    quality = {name: {"area": 1.0, "curve": [1.0] * 10} for name in ("entropy", "likelihood", "random")}
    record = {"report": {"uncertainty": {"drawn": None, "quality": {"bleu": quality, "chrf": quality}}}}
    options = CompareNmt(out=str(tmp_path), models=("soft",), baseline="soft", seeds=1, layout=("uncertainty",))
    comparison = Compared(APPLICATION, options, {}, {"soft": [record]})
    comparison.read = lambda run, name: {"split": "test"}
    text = "\n\n".join(APPLICATION.layouts["uncertainty"](comparison))
    assert comparison.evaluate_arguments == {"soft": ["--split", "test", "--uncertainty"]}
    assert [title.split()[0] for title in tables_of(text)] == ["BLEU", "chrF"]


@pytest.mark.slow
def test_the_exported_endpoint(run_with, tmp_path):
    """The endpoint has named arguments and returns the texts of `generate`. Equal seeds give equal draws."""
    run = run_with("wc")
    module, names = APPLICATION.endpoints(run)
    assert names[-1] == "uncertain" and "uncertain" not in APPLICATION.endpoints(run_with("soft"))[1]
    save_module(module, ("uncertain",), tmp_path / "served")
    uncertain = tf.saved_model.load(str(tmp_path / "served")).signatures["uncertain"]
    assert set(uncertain.structured_input_signature[1]) == {"texts", "num_samples", "seed"}
    texts = tf.constant(run.data["valid"].pairs.sources[:3])
    first, again, other = (
        uncertain(texts=texts, num_samples=tf.constant(3), seed=tf.constant(seed)) for seed in (5, 5, 6)
    )
    sources = run.codec.source.encode_numpy(run.data["valid"].pairs.sources[:3], 6)[0]
    with execution(eager=True):
        assert [text.decode() for text in first["texts"].numpy()] == translate(Translator(run), run.codec, sources)
    np.testing.assert_array_equal(first["log_likelihoods"], again["log_likelihoods"])
    assert np.abs(first["log_likelihoods"] - other["log_likelihoods"]).min() > 0.0
    for name in ("entropy", "mutual_information"):
        assert first[f"word_{name}"].shape == first["words"].shape and first[name].shape == (3,)
