"""Tests reports against direct computations, and the tables of comparisons."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from application_cases import HERE, TRAINED, Compared, tables_of
from scipy.special import logsumexp
from tiers import slow_after
from vrae_cases import opinosis, run_of, sentences_of

import keras_vattn
from applications.common.shown import evenly
from applications.common.tables import figures_of
from applications.vrae import report as report_module
from applications.vrae.data import Sentences, encode
from applications.vrae.decode import Writer
from applications.vrae.options import PROGRAM, CompareVrae, EvaluateVrae
from applications.vrae.report import COLUMNS, attention, evaluate, fault_of, paper, summary, table_3

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Return a function that returns a cached run, its writer and its report on one batch of validation sentences."""
    cache = {}

    def reported(model, informed="latent"):
        if (model, informed) not in cache:
            tf.config.run_functions_eagerly(True)
            run = run_of(tmp_path_factory.mktemp(model), model=model, informed=informed, context_floor=0.0, max_bound=4)
            writer, evaluation = Writer(run), EvaluateVrae("", num_draws=6)
            cache[model, informed] = run, writer, evaluate(run, run.data["valid"], evaluation)[0]
        return cache[model, informed]

    return reported


@pytest.mark.parametrize("informed", slow_after(["latent", "both"]))
def test_three_perplexities(reported, informed):
    run, writer, report = reported("vrae_sa", informed)
    likelihood = report["likelihood"]
    source, _, target = batch = sentences_of(run)
    assert len(source) == len(run.data["valid"]) == report["num_sentences"]
    num_tokens, num_words = np.count_nonzero(target), np.count_nonzero(source)
    assert (likelihood["num_tokens"], likelihood["num_words"]) == (num_tokens, num_words)
    seed = keras_vattn.random.fold_in(keras_vattn.random.as_seed(0), 0)
    drawn = {name: x.numpy() for name, x in writer.draw_figures(*batch, seed).items()}
    kl_steps, kl_context = (drawn[name].sum(axis=1) for name in ("kl_steps", "kl_context"))
    elbo = drawn["log_likelihood"] - drawn["kl_code"] - kl_steps - kl_context
    assert likelihood["elbo"]["nats"] == pytest.approx(-elbo.mean(), rel=1e-5)
    assert likelihood["elbo"]["perplexity"] == pytest.approx(np.exp(-elbo.sum() / num_tokens), rel=1e-5)
    for name, value in (("kl_code", drawn["kl_code"]), ("kl_steps", kl_steps), ("kl_context", kl_context)):
        assert likelihood[name] == (pytest.approx(value.mean(), rel=1e-5) if value.any() else None)
    # The published value has no KL, samples z_t from its prior, and counts the end token only in the sum.
    published = writer.published_log_p(*batch, seed).numpy()
    assert likelihood["published"]["nats"] == pytest.approx(-published.mean(), rel=1e-5)
    assert likelihood["published"]["perplexity"] == pytest.approx(np.exp(-published.sum() / num_words), rel=1e-5)
    bound = likelihood["importance_weighted"]
    assert (bound["num_draws"], bound["num_sentences"]) == (6, 4)
    assert bound["nats"] < bound["elbo_nats"] - 1e-3


@pytest.mark.slow
def test_the_published_likelihood(reported):
    """The published value is the reconstruction, except in models with z_t, where z_t is sampled from its prior."""
    for model, same in (("vrae", True), ("vrae_sa", False)):
        likelihood = reported(model)[2]["likelihood"]
        assert (likelihood["published"]["nats"] == pytest.approx(likelihood["reconstruction"], rel=1e-5)) == same


def test_importance_weighted_bound(reported):
    run, writer, report = reported("vrae")
    part = run.data["valid"].rows(evenly(len(run.data["valid"]), 4))
    inputs, target = next(iter(part.training_batches(run.options)))
    weights = writer.log_weights(inputs["source"], inputs["target_input"], target, 6, 7919).numpy().astype("float64")
    value = logsumexp(weights, axis=0) - np.log(6)
    bound, num_tokens = report["likelihood"]["importance_weighted"], np.count_nonzero(target)
    assert bound["nats"] == pytest.approx(-value.mean(), rel=1e-5)
    assert bound["perplexity"] == pytest.approx(np.exp(-value.sum() / num_tokens), rel=1e-5)
    assert bound["elbo_perplexity"] == pytest.approx(np.exp(-weights.mean(axis=0).sum() / num_tokens), rel=1e-5)


@pytest.mark.slow
def test_controls(reported):
    """Controls replace z_enc with the z_enc of another sentence or with zeros."""
    run, writer, report = reported("vrae_sa")
    part = run.data["valid"].rows(evenly(len(run.data["valid"]), 4))
    inputs, target = next(iter(part.training_batches(run.options)))
    batch = inputs["source"], inputs["target_input"], target
    z = writer.posterior(inputs["source"])["mean"].numpy()
    for name, other_z in (("shuffled", z[[3, 0, 1, 2]]), ("zero", 0 * z)):
        log_p, other_log_p = (writer.figures_at(*batch, x)["log_likelihood"].numpy() for x in (z, other_z))
        assert report["controls"][name]["nats"] == pytest.approx((log_p - other_log_p).mean(), rel=1e-4)
        assert report["controls"][name]["standard_error"] == pytest.approx(
            (log_p - other_log_p).std(ddof=1) / 2, rel=1e-4
        )
    assert evaluate(run, run.data["valid"].rows([0]))[0]["controls"] is None


@pytest.mark.slow
def test_attention_movement(reported):
    """Movement and entropy ignore padding. A model whose attention has no effect reports neither value."""
    run, _, report = reported("vrae_sa")
    part = encode(run.options, run.codec, Sentences(["the dog", "my friend has bought a book", "the ball"]))
    measured = evaluate(run, part)[0]["map"]
    moves, entropies = [], []
    for alignment in attention(run, part):
        weights = alignment.weights[""]
        steps = [
            sum(abs(float(x - y)) for x, y in zip(row, next_row)) / 2 for row, next_row in itertools.pairwise(weights)
        ]
        moves.append(sum(steps) / len(steps))
        entropies.append(np.mean([-sum(x * np.log(x) for x in row) for row in weights.astype("float64")]))
    assert measured == pytest.approx({"moves": np.mean(moves), "entropy": np.mean(entropies)}, rel=1e-4)
    assert 1e-3 < report["map"]["moves"] < 1.0
    for model, informed in (("vrae", "latent"), ("vrae_sa", "none")):
        assert "map" not in reported(model, informed)[2]
    control = reported("vrae_sa", "none")[2]["likelihood"]
    assert control["kl_steps"] is control["kl_context"] is None


def test_sentences_of_the_grammar_are_judged(reported, monkeypatch):
    """The summary counts grammatical and correctly rebuilt sentences. Sentences from files are not judged."""
    run, _, report = reported("vrae")
    assert "grammar" not in report and summary(report)[0].startswith("The perplexity of 4 sentences is at most ")
    sources = ["a quiet doctor reads a book", "the sailors eat two pears", "two bakers wash the car at noon"]
    rebuilt = ["a quiet doctor reads a book", "the sailors eats two pears", "two bakers wash the cars at noon"]
    outputs = {"generated": [*sources, "a book"], "reconstructed": list(zip(sources, rebuilt)), "interpolated": []}
    monkeypatch.setattr(report_module, "samples_of", lambda run, part, writer: outputs)
    monkeypatch.setattr(run.options.text, "train_text", None)
    judged = evaluate(run, run.data["valid"])[0]
    counts = {"num_generated": 4, "num_grammatical": 3, "num_rebuilt": 3, "num_same": 1}
    assert judged["grammar"] == counts
    assert summary(judged)[:2] == [
        "3 of 4 generated sentences are grammatical.",
        "1 of 3 rebuilt sentences keep their meaning.",
    ]
    faults = [
        fault_of([("sentence", source), ("rebuilt", rebuilt_text)]) for source, rebuilt_text in outputs["reconstructed"]
    ]
    assert faults == ["", "not grammatical", "object"]
    assert [fault_of([("generated", text)]) for text in ("a book", sources[0])] == ["not grammatical", ""]
    between = [("between", text) for text in sources]
    assert fault_of(between) == "" and fault_of([*between, ("between", "a")]) == "not grammatical"


def test_table_3(tmp_path):
    """Table 3 has means over topics and seeds beside published values. `summarize` gets the options of the table."""
    topics = opinosis(tmp_path)
    folders = dict(zip(("documents", "references"), map(str, topics[1::2])))
    options = dataclasses.replace(
        CompareVrae(), out=str(tmp_path / "runs"), models=("vrae_sa", "lstm"), seeds=2, layout=("table_3",), **folders
    )
    scores = lambda *values: [{"rouge1": dict(zip(("recall", "precision", "fmeasure"), [x, x, x]))} for x in values]  # noqa: E731
    common = {"num_topics": 2, "max_words": 25, "document": "sequence"}
    reports = {
        name: [common | {"model": name, "systems": {name: scores(x, y), "lead": scores(0.1, 0.2)}} for x, y in rows]
        for name, rows in {"vrae_sa": [(0.2, 0.4), (0.4, 0.6)], "lstm": [(0.5, 0.7), (0.5, 0.7)]}.items()
    }
    options = dataclasses.replace(options, document="sequence", max_words=25)
    compared = Compared(PROGRAM.application(), options, {name: [{}, {}] for name in reports}, reports)
    ((title, lines),) = tables_of(table_3(compared)[0]).items()
    assert title.startswith(
        "Table 3 of VRAE-SA, ROUGE-1, 2 topics, at most 25 words, document: sequence; paper: DUC 2007"
    )
    assert [line["model"] for line in lines] == ["VRAE-SA w/o aux", "LSTM", "lead"]
    assert lines[0]["F"].startswith("0.400 [") and lines[1]["recall"].startswith("0.600 [")
    assert lines[2]["precision"] == "0.150"
    assert [line["F, paper"] for line in lines] == ["0.427", "0.411", "-"]
    assert compared.evaluate_arguments["lstm"][:8] == [*map(str, topics), "--document", "sequence", "--max-words", "25"]
    # Other documents get another folder, so `summarize` does not overwrite summaries.
    (folder,) = {arguments[-1].rpartition("/")[2] for arguments in compared.evaluate_arguments.values()}
    (tmp_path / "topics" / "food.txt.data").write_text("Another sentence.\n")
    table_3(compared)
    assert compared.evaluate_arguments["lstm"][-1].rpartition("/")[2] != folder


def test_tables(reported):
    """Column titles say how a likelihood is computed. Published values are next to ours."""
    records = {model: [TRAINED | {"model": model, "report": reported(model)[2]}] for model in ("lstm", "vrae_sa")}
    shown = figures_of(COLUMNS, records["vrae_sa"][0])
    for title in ("NLL (authors' code)", "PPL (authors' code)", "PPL (ELBO)", "PPL (IW)", "KL(z_enc)", "KL of z_t"):
        assert f"| {title}" in shown
    comparison = type("Comparison", (), {"records": records})
    printed = tables_of("\n\n".join(paper(comparison)))
    titles = [f"Table 1 of VRAE-SA; paper: Penn Treebank; {HERE}", f"Table 2 of VRAE-SA; paper: Yelp 2013; {HERE}"]
    assert list(printed) == [*titles, "Bounds"]
    treebank, yelp, lines = printed.values()
    assert [[line["model"] for line in table] for table in printed.values()] == 3 * [["LSTM", "VRAE-SA w/o aux"]]
    assert [line["KL(z_enc), paper"] for line in (*treebank, *yelp)] == ["-", "5.80", "-", "4.07"]
    likelihood = records["vrae_sa"][0]["report"]["likelihood"]
    # A model without z_enc shows a dash instead of a KL of 0, and its bound is exact.
    assert treebank[0]["KL(z_enc)"] == "-" and not {"code", "controls"} & records["lstm"][0]["report"].keys()
    assert lines[0]["PPL (IW)"] == lines[0]["PPL (ELBO), sentences of IW"]
    # One table contains all bounds of the same sentences.
    weighted = likelihood["importance_weighted"]
    assert lines[1]["PPL (ELBO), sentences of IW"] == f"{weighted['elbo_perplexity']:.2f}"
    assert lines[1]["PPL (IW)"] == f"{weighted['perplexity']:.2f}"
    assert lines[1]["PPL (ELBO)"] == f"{likelihood['elbo']['perplexity']:.2f}"
    assert (
        treebank[1]["PPL (authors' code)"]
        == yelp[1]["PPL (authors' code)"]
        == f"{likelihood['published']['perplexity']:.2f}"
    )
