"""How sure a model is of its translations: what it has written, read again under draws."""

import numpy as np
import pytest
import tensorflow as tf
from application_cases import Compared, changed, prepared_anywhere, tables_of
from applications.nmt.serve import Translator, translate, translate_surely
from nmt_cases import APPLICATION
from program_case import written
from program_cases import NMT_CASE
from uncertainty_cases import require_draws_of_whole_sentences

from applications.common.errors import InputError
from applications.common.option_values import check
from applications.common.serving import save_module
from applications.common.shown import random_rows
from applications.nmt.options import CompareNmt, EvaluateNmt, GenerateNmt
from applications.text.batching import padded, teacher_forced


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    known = {}

    def made(model):
        if model not in known:
            data = written(NMT_CASE.data, tmp_path_factory.mktemp(model))
            options = changed(
                NMT_CASE.program.default,
                **{**NMT_CASE.options, **data, "model": model, "max_length": 6, "dropout": 0.3, "weibull_k": 1.0},
            )
            known[model] = prepared_anywhere(APPLICATION, options)
        return known[model]

    return made


@pytest.mark.slow
def test_the_likelihood_at_the_mean_is_that_of_the_search(made, eagerly):
    """Of beam search and of greedy decoding."""
    run = made("wc")
    source = tf.constant(padded(run.data["valid"].sources[:3]))
    for num_beams in (1, 3):
        translator = Translator(run, num_beams=num_beams)
        searched, found = translator.beam(source), translator.at_mean(source)
        np.testing.assert_allclose(found["log_likelihood"], searched["log_probabilities"], rtol=1e-4)
        np.testing.assert_array_equal(found["num_words"], searched["lengths"])


def test_a_draw_is_the_noise_of_whole_sentences(made, eagerly):
    """The log-likelihood under each is what the training model gives under the same noise."""
    run = made("wc")
    source = tf.constant(padded(run.data["valid"].sources[:3]))
    translator = Translator(run)
    found = translator.under_draws(source, 2, 5)
    target = translator.beam(source)["ids"]
    require_draws_of_whole_sentences(found, run.models.training, {"source": source}, target, 5)
    again, other = translator.under_draws(source, 2, 5), translator.under_draws(source, 2, 6)
    np.testing.assert_array_equal(again["log_likelihoods"], found["log_likelihoods"])
    assert np.abs(other["log_likelihoods"] - found["log_likelihoods"]).min() > 0.0


def test_a_model_that_does_not_draw_its_attention_draws_its_dropout(made, eagerly, monkeypatch, tmp_path):
    run, lines = made("soft"), tmp_path / "lines.txt"
    lines.write_text("a\n", encoding="utf-8")
    translator = Translator(run)
    assert translator.noise.value.dropping and not translator.noise.value.is_stochastic
    names = [layer.name for layer in translator.noise.value.dropping]
    assert {"source_dropout", "target_dropout", "emission_dropout"} <= set(names)
    first = translate_surely(translator, run.data["valid"].sources[:2], 3)[0]
    assert first["log_likelihood_sd"] > 1e-3 and first["mutual_information"] > 1e-4
    monkeypatch.setattr(run.options.network, "dropout", 0.0)
    assert Translator(run).noise.value is None
    with pytest.raises(InputError, match=r"nothing is drawn in this model, and no dropout\. Received: 3"):
        list(APPLICATION.generate(run, GenerateNmt("", uncertainty=True, num_draws=3, input=str(lines))))
    sentence = translate_surely(Translator(run), run.data["valid"].sources[:1])[0]
    assert "mutual_information" not in sentence and sentence["entropy"] > 0.0


def test_lines_and_the_report(made, eagerly, tmp_path, capsys):
    """The texts are those of `generate` without the option, in their order."""
    run, part = made("wc"), made("wc").data["valid"]
    (tmp_path / "lines").write_text("".join(f"{source}\n" for source in part.pairs.sources[:4]))
    asked = {"input": str(tmp_path / "lines")}
    heads, *lines = APPLICATION.generate(run, GenerateNmt("", uncertainty=True, num_draws=2, **asked))
    rows = [dict(zip(heads.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert [row["text"] for row in rows] == list(APPLICATION.generate(run, GenerateNmt("", **asked)))
    for row in rows:
        counts = {len(row[name].split()) for name in ("words", "word_entropy", "word_mutual_information")}
        assert counts == {int(row["num_words"])}
    report, _ = APPLICATION.evaluate(run, part, EvaluateNmt("", uncertainty=True, num_draws=2))
    curves = report["uncertainty"]["quality"]
    assert report["uncertainty"]["drawn"] == "attention" and set(curves) == {"bleu", "chrf"}
    for metric, of_orders in curves.items():
        assert set(of_orders) == {"mutual_information", "entropy", "likelihood", "random"}
        for of_order in of_orders.values():
            assert of_order["curve"][-1] == pytest.approx(report["translation"][metric])
    assert "BLEU of the most certain sentences" in capsys.readouterr().out


def test_what_a_page_shows_of_drawn_weights(made, eagerly):
    """Their standard deviation beside their mean, the prior of all words, and the words that draws disagree on."""
    run, part = made("wc"), made("wc").data["valid"]
    translator, rows = Translator(run), random_rows(len(part.pairs), 9)
    sentences = translate_surely(translator, part.sources[:1], 2)
    outputs = {"sources": part.pairs.sources[:1], "references": ["a"], "hypotheses": {"soft": ["b"]}}
    outputs["is_built_in"] = False
    shown = APPLICATION.shown(run, part, outputs | {"sentences": sentences})
    sides = ([side[row] for row in rows] for side in (part.sources, part.targets))
    pairs = list(map(tf.constant, teacher_forced(*sides)))
    draws = np.array([translator.drawn_weights(*pairs, tf.constant([0, draw])) for draw in range(2)])
    for place, alignment in enumerate(shown.alignments):
        words, count = len(alignment.target), len(alignment.source)
        assert list(alignment.weights) == list(alignment.spread) == ["prior", "mean"]
        np.testing.assert_allclose(alignment.spread["mean"], draws.std(axis=0)[place, :words, :count], atol=1e-6)
        assert alignment.spread["mean"].max() > 1e-3
        for weights in alignment.weights.values():
            np.testing.assert_allclose(weights.sum(axis=1), np.ones(words), rtol=1e-5)
        assert np.ptp(alignment.weights["prior"], axis=0).max() == 0.0
    (label, marked) = shown.samples[0][2]
    assert label == "translation" and [word for word, _ in marked] == sentences[0]["words"]
    assert [nats for _, nats in marked] == pytest.approx(list(sentences[0]["word_mutual_information"]))


def test_the_layout_evaluates_every_run(tmp_path):
    quality = {name: {"area": 1.0, "curve": [1.0] * 10} for name in ("entropy", "likelihood", "random")}
    record = {"report": {"uncertainty": {"drawn": None, "quality": {"bleu": quality, "chrf": quality}}}}
    given = CompareNmt(
        out=str(tmp_path), models=("soft",), baseline="soft", seeds=1, layout=("uncertainty",), num_draws=4
    )
    comparison = Compared(APPLICATION, given, {}, {"soft": [record]})
    comparison.read = lambda run, name: {"split": "test"}
    text = "\n\n".join(APPLICATION.layouts["uncertainty"](comparison))
    assert comparison.asked == {"soft": ["--split", "test", "--uncertainty", "--num-draws", "4"]}
    assert [title.split()[0] for title in tables_of(text)] == ["BLEU", "chrF"]


def test_options(tmp_path):
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(InputError, match="--num-draws belongs to --uncertainty"):
        check(GenerateNmt(str(tmp_path), num_draws=4))
    with pytest.raises(InputError, match="--num-draws belongs to --layout uncertainty"):
        check(CompareNmt(num_draws=4))


@pytest.mark.slow
def test_the_exported_endpoint(made, tmp_path):
    """Its arguments have names; it writes what `generate` writes, and its draws are those of the seed."""
    run = made("wc")
    module, names = APPLICATION.endpoints(run)
    assert names[-1] == "uncertain" and "uncertain" not in APPLICATION.endpoints(made("soft"))[1]
    save_module(module, ("uncertain",), tmp_path / "served")
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    _, arguments = loaded.signatures["uncertain"].structured_input_signature
    assert set(arguments) == {"texts", "num_samples", "seed"}
    texts = tf.constant(run.data["valid"].pairs.sources[:3])
    found, again, other = (
        loaded.signatures["uncertain"](texts=texts, num_samples=tf.constant(3), seed=tf.constant(seed))
        for seed in (5, 5, 6)
    )
    sources = run.codec.source.encode_numpy(run.data["valid"].pairs.sources[:3], 6)[0]
    assert [text.decode() for text in found["texts"].numpy()] == translate(Translator(run), run.codec, sources)
    assert found["log_likelihoods"].shape == (3, 3)
    np.testing.assert_array_equal(found["log_likelihoods"], again["log_likelihoods"])
    assert np.abs(found["log_likelihoods"] - other["log_likelihoods"]).min() > 0.0
    for name in ("entropy", "mutual_information"):
        assert found[f"word_{name}"].shape == found["words"].shape and found[name].shape == (3,)


@pytest.mark.slow
def test_a_model_that_does_not_draw_is_exported(made, tmp_path):
    module, names = APPLICATION.endpoints(made("marginal"))
    written = save_module(module, names, tmp_path)
    assert written == sorted(tf.saved_model.load(str(tmp_path)).signatures) and set(names) < set(written)
