import numpy as np
import pytest
import tensorflow as tf
from application_cases import changed
from tiers import slow_after
from ved_cases import APPLICATION, PAIRS, SMALL, read_metrics

from applications.common.application import Run
from applications.common.training import load_run
from applications.text.metrics import distinct, unigram_entropy
from applications.text.readers import ParallelText
from applications.text.text import PAD
from applications.ved.data import Codec, encode
from applications.ved.decode import Generator
from applications.ved.model import build
from applications.ved.options import Options
from applications.ved.report import (
    controls,
    diversity,
    fault_of,
    judged,
    likelihood_of,
    quality,
    shown,
    summary,
)
from keras_vattn.losses import sequence_log_likelihood

REFERENCES = [["the cat sat on the mat", "a cat sat there"], ["dogs bark at night"]]


def test_diversity_averages_over_draws():
    draws = [["a cat sat there", "the mat"], ["dogs bark at night", "dogs bark at night"]]
    report = diversity(draws, REFERENCES, True)
    by_draw = [quality([row[index] for row in draws], REFERENCES, True)["bleu_2"] for index in range(2)]
    assert report["bleu_2"] == pytest.approx(np.mean(by_draw)) and by_draw[0] != by_draw[1]
    assert report["entropy"] == pytest.approx(unigram_entropy(draws)) == pytest.approx((np.log(6) + np.log(4)) / 2)
    assert report["dist_1"] == pytest.approx(distinct(draws, 1)) == pytest.approx((1.0 + 0.5) / 2)
    assert report["distinct_draws"] == 1.5
    assert report["distinct_references_among_draws"] == 1.0
    assert diversity([["a"], ["b"]], REFERENCES, True)["self_bleu"] is None


QUESTIONS = [
    ["what is peru called in french ?", "in french , what is the name of peru ?"],
    ["which day is the first day of the week in chad ?", "in chad , when is the first day of the week ?"],
]


@pytest.mark.parametrize(
    "question, reason",
    [
        ("in french , what is peru called ?", ""),
        ("what is chad called in french ?", "lacks peru, has chad"),
        ("what is peru called in chad french ?", "has chad"),
        ("what is called ?", "lacks french and in and peru"),
    ],
)
def test_a_question_needs_the_names_of_its_references_and_no_other(question, reason):
    assert fault_of(question, QUESTIONS[0]) == reason


def test_summary_counts_right_questions():
    greedy = [QUESTIONS[0][0], "in chad , when is the last day of the week ?"]
    draws = [[QUESTIONS[0][1], QUESTIONS[0][1], "what is chad ?"], [QUESTIONS[1][0], QUESTIONS[1][1], greedy[1]]]
    assert judged(greedy, None, QUESTIONS) == {"map": 1}
    counts = judged(greedy, draws, QUESTIONS)
    assert counts == {"map": 1, "draws": 4, "num_draws": 6, "different": 1.5}
    controls = {"z": {"nats": 2.345}, "source": {"nats": 9.0}}
    assert summary({"num_sources": 2, "judged": counts, "controls": controls}) == [
        "1 of 2 questions decoded without sampling are correct.",
        "4 of 6 sampled questions are correct; a statement has 1.5 distinct correct samples on average.",
        "With another sentence's z, log p drops by 2.35 nats per sentence.",
    ]
    assert summary({"num_sources": 2, "map": {"bleu_4": 3.14}, "controls": {}}) == [
        "BLEU-4 of 3.1 without sampling, on 2 sources."
    ]


def test_samples_of_the_built_in_statements_are_judged():
    outputs = {"sources": ["a", "b"], "references": QUESTIONS, "draws": None, "is_built_in": True}
    outputs["greedy"] = [QUESTIONS[0][0], "in chad , when is the last day of the week ?"]
    run = Run(None, changed(Options(), model="ved"), {}, None, None)
    assert [sample[-1] for sample in shown(run, None, outputs).samples] == [
        ("judged", "right"),
        ("judged", "wrong: MAP lacks first, has last"),
    ]
    assert shown(run, None, outputs | {"is_built_in": False}).samples[1][-1] == ("MAP", outputs["greedy"][1])


@pytest.fixture(scope="module")
def loaded(trained):
    run = load_run(APPLICATION, trained)
    run.data = {
        name: APPLICATION.encode(run.options, run.codec, part) for name, part in APPLICATION.read(run.options).items()
    }
    return run


@pytest.mark.slow
def test_likelihood_is_computed_from_the_logits(loaded, eagerly):
    part, models = loaded.data["valid"], loaded.models
    total, tokens = 0.0, 0
    for inputs, target in part.batches(loaded.options.fit.batch_size, loaded.options.run.seed):
        total += float(tf.reduce_sum(sequence_log_likelihood(target, models.training(inputs), ignore_class=PAD)))
        tokens += int(np.count_nonzero(target))
    report = likelihood_of(loaded, part, Generator(loaded))
    assert report["num_tokens"] == tokens == sum(len(row) + 1 for row in part.targets)
    assert report["nats"] == pytest.approx(-total / len(part.targets), rel=1e-5)
    assert report["perplexity"] == pytest.approx(np.exp(-total / tokens), rel=1e-5)
    assert set(report["kl"]) == {"latent_kl", "attention_kl"} and min(report["kl"].values()) > 0
    assert report["kl_nats"] == pytest.approx(sum(report["kl"].values()))
    assert report["elbo_nats"] == pytest.approx(-report["reconstruction_nats"] - report["kl_nats"], rel=1e-6)
    assert np.log(report["elbo_perplexity"]) == pytest.approx(-report["elbo_nats"] * len(part.targets) / tokens)
    # Draws are reproducible, so the values equal those in the report of the run.
    reported = read_metrics(loaded.folder.path)["report"]["likelihood"]
    assert reported.pop("kl") == pytest.approx(report.pop("kl"), rel=1e-5)
    assert reported == pytest.approx(report, rel=1e-5)
    latent = models.encoder.get_layer("latent")
    hidden = np.random.default_rng(0).normal(size=(4, 16)).astype("float32")
    divergences = latent.posterior_distribution(hidden).kl_divergence(latent.prior_distribution(hidden))
    assert (divergences.numpy() > 0).all()


@pytest.mark.parametrize("model", slow_after(["ded", "ved", "ved_dattn", "ved_vattn_mean", "ved_wc"], 2))
def test_controls_swap_the_latent_the_memory_or_the_source(model, eagerly):
    """Recomputes each control step by step. The training model scores the source control directly."""
    options, generator = changed(Options(), **{**SMALL, "model": model, "batch_size": 5}), np.random.default_rng(5)
    codec = Codec.fit(options, ParallelText(*map(list, zip(*PAIRS))))
    models = build(options, codec)
    for variable in models.training.trainable_variables:
        variable.assign(generator.normal(0.0, 0.7, variable.shape))
    # The last batch is one pair, so no other source can replace the source. Three pairs have the same source.
    part = encode(options, codec, ParallelText(*map(list, zip(*[PAIRS[0], PAIRS[0], *PAIRS[:9]]))))
    measured = controls(Run(None, options, {}, codec, models), part)
    expected = {name: [] for name in measured}
    for inputs, target in part.batches(5, options.run.seed):
        source, target_input = inputs["source"].numpy(), inputs["target_input"].numpy()
        rolled = np.roll(source, len(target) // 2, axis=0)
        counted = (source != rolled).any(axis=1)
        log_likelihood, rolled_log_likelihood = (
            sequence_log_likelihood(
                target, models.training({"source": x, "target_input": target_input}), ignore_class=PAD
            )
            for x in (source, rolled)
        )
        expected["source"].extend((log_likelihood - rolled_log_likelihood).numpy()[counted])
        encoded, rolled_encoded = models.encoder(source), models.encoder(rolled)
        for name, mixed, words in (
            ("z", {**encoded, **{key: x for key, x in rolled_encoded.items() if key == "z"}}, source),
            ("attended", {**encoded, "memory": rolled_encoded["memory"]}, rolled),
        ):
            if name in measured:
                memory = models.prepare(tf.constant(words), mixed)
                state, logits = models.start(words, mixed, memory), []
                for ids in target_input.T:
                    outputs, state = models.decoder.step(models.step_inputs(tf.constant(ids), mixed), state, memory)
                    logits.append(models.logits(outputs))
                log_p = sequence_log_likelihood(target, tf.stack(logits, axis=1), ignore_class=PAD)
                expected[name].extend((log_likelihood - log_p).numpy()[counted])
    assert 0 < len(expected["source"]) < 10
    names = {"ded": [], "ved": ["z"]}.get(model, ["z", "attended"])
    assert set(measured) == {"source", *names}
    for name, nats in expected.items():
        assert measured[name]["nats"] == pytest.approx(np.mean(nats), abs=1e-4)
        assert measured[name]["standard_error"] == pytest.approx(np.std(nats, ddof=1) / np.sqrt(len(nats)), rel=1e-3)
    if model == "ved":
        # In the model ved, only z carries the source to the decoder.
        assert measured["z"]["nats"] == pytest.approx(measured["source"]["nats"], abs=1e-5)
