"""Tests initial weights, the KL, reports of every kind of task, and the exported model."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from application_cases import prepared
from finetuning_cases import (
    APPLICATION,
    options_of,
    pairs_with_scores,
    run_of,
    squad,
    write_albert,
    write_hugging_face,
)
from tiers import slow_after

import keras_vattn
from applications.finetuning import data, model, pretraining
from applications.finetuning.model import MODELS
from applications.finetuning.options import PROGRAM, Options
from applications.finetuning.report import class_figures, evaluate, predictor, score_figures, with_other_words
from applications.finetuning.serve import Predictor, logits_of
from applications.finetuning.tokens import TextEncoder
from applications.finetuning.train import codec_of, objective, set_pretrained_weights

TOKENS = {
    "token_ids": np.array([[2, 5, 6, 3, 0, 0, 0, 0], [2, 11, 12, 8, 9, 3, 0, 0]], "int32"),
    "segment_ids": np.zeros((2, 8), "int32"),
    "padding_mask": np.array([[1] * 4 + [0] * 4, [1] * 6 + [0] * 2], "int32"),
}


@pytest.mark.slow
def test_models_of_one_seed_start_alike(tmp_path):
    """All models have the same pretrained weights and head, so without noise they return the same outputs."""
    path, outputs, heads = write_hugging_face(tmp_path / "bert"), [], []
    for name in MODELS:
        keras.utils.set_random_seed(len(outputs))
        options = options_of(tmp_path, model=name, weights=path, seed=3)
        data = APPLICATION.read(options)
        models = APPLICATION.build(options, codec_of(options, data["train"]))
        run = type("Run", (), {"options": options, "models": models})
        set_pretrained_weights(run)
        outputs.append(run.models.training(TOKENS).numpy())
        heads.append(run.models.training.get_layer("head").get_weights())
    for output, head in zip(outputs[1:], heads[1:], strict=True):
        np.testing.assert_allclose(output, outputs[0], rtol=1e-5, atol=1e-6)
        for weight, first_weight in zip(head, heads[0], strict=True):
            np.testing.assert_array_equal(weight, first_weight)


@pytest.mark.parametrize("architecture, share, drawn", [("bert", 1, 3), ("bert", 2 / 3, 2), ("albert", 1 / 3, 3)])
def test_the_divergence_is_a_mean_over_the_layers(tmp_path, architecture, share, drawn):
    """The unannealed KL is a mean over unpadded queries and keys, over heads, and over calls of the random layers."""
    sizes = {"num_layers": 3, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12, "max_sequence_length": 16}
    backbones = {
        "bert": lambda: keras_hub.models.BertBackbone(15, dropout=0.0, **sizes),
        "albert": lambda: keras_hub.models.AlbertBackbone(15, dropout=0.0, embedding_dim=4, **sizes),
    }
    values = {"weibull_k": 7.0, "drawn_share": share, "prior_beta": 0.5, "prior_hidden_units": 4}
    options = options_of(tmp_path, model="wc", **values)
    backbone = model.bayesian(options, backbones[architecture]())
    layers = keras_vattn.stochastic_layers(backbone)
    assert len(layers) == (drawn if architecture == "bert" else 1)
    for layer in layers:
        assert (layer.alignment.k, layer.prior.beta, layer.prior.hidden_units) == (7.0, 0.5, 4)
        assert layer.kl_annealing is None and layer.prior.num_heads is None
    backbone(TOKENS)
    total = float(sum(backbone.losses))
    # The expected KL divides the summed KLs by the unpadded entries: 16 + 36 in two heads of each random layer.
    plain = sum(float(x) for x in keras_vattn.divergences(backbone).values()) * 2
    np.testing.assert_allclose(total, plain / ((16 + 36) * 2 * drawn), rtol=1e-5)


@pytest.mark.slow
def test_defaults_match_to_bayesian():
    sizes = {"num_layers": 6, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12, "max_sequence_length": 16}
    backbones = [keras_hub.models.BertBackbone(15, **sizes, name="backbone") for _ in range(2)]
    layers, expected = (
        keras_vattn.stochastic_layers(x)
        for x in (model.bayesian(Options(), backbones[0]), keras_vattn.to_bayesian(backbones[1]))
    )
    assert [x.path for x in layers] == [x.path for x in expected] and len(layers) == 2
    assert [x.alignment.get_config() for x in layers] == [x.alignment.get_config() for x in expected]
    assert [x.alignment_prior for x in layers] == [x.alignment_prior for x in expected] == [None, None]


def test_presets_are_table_9():
    rows = {
        "cola": (1e-5, 16, 0, 5336, 320, 512, 10),
        "sts": (2e-5, 16, 0, 3598, 214, 512, 20),
        "sst2": (1e-5, 32, 0, 20935, 1256, 512, 1000),
        "mnli": (3e-5, 128, 0, 10000, 1000, 512, 5),
        "qnli": (1e-5, 32, 0, 33112, 1986, 512, 500),
        "qqp": (5e-5, 128, 0.1, 14000, 1000, 512, 1000),
        "rte": (3e-5, 32, 0.1, 800, 200, 512, 1000),
        "mrpc": (2e-5, 32, 0, 800, 200, 512, 100),
        "squad1": (5e-5, 48, 0, 3649, 365, 384, 10),
        "squad2": (3e-5, 48, 0, 8144, 814, 512, 2000),
    }
    names = ("learning_rate", "batch_size", "backbone_dropout", "max_steps", "warmup_steps", "max_length", "weibull_k")
    for preset, row in rows.items():
        values = PROGRAM.preset_values(preset)
        assert tuple(values[name] for name in names) == row, preset
        assert (values["task"], values["prior_beta"], values["prior_hidden_units"]) == (preset, 1e-2, 5)
        assert (values["classifier_dropout"], values["model"], values["drawn_share"]) == (0.1, "wc", 1)
    assert set(PROGRAM.presets) == {"small", *rows}


@pytest.mark.slow
def test_a_report_of_classes(tmp_path):
    run = run_of(tmp_path, model="wc", num_draws=4)
    part = run.data["test"]
    report, outputs = evaluate(run, part)
    assert report["task"]["accuracy"] == np.mean(
        [a == b for a, b in zip(outputs["answers"], part.part.labels, strict=True)]
    )
    assert "draws" in report and report["gradients"]["kl"] > 0
    # Predictions are computed in batches sorted by length and returned in the original order.
    texts = data.Texts(["the dog has", "a", "the dog", "a cat"], None, part.part.labels[:4])
    part = data.encode(run.options, run.codec, texts)
    assert part.ids.row_lengths().numpy().tolist() == [9, 3, 6, 6]
    predictions = predictor(run, part).predictions(0)
    np.testing.assert_allclose(predictions["mean"][0], tf.nn.softmax(np.concatenate(logits_of(run, part))), atol=1e-5)
    np.testing.assert_array_equal(predictions["labels"], part.targets)
    assert predictor(run, part).kinds == ["dropout", "attention", "both"]
    run.models.training = keras_vattn.to_deterministic(run.models.training)
    assert predictor(run, part).kinds == ["dropout"]


def test_other_words(tmp_path):
    """A fraction of the words is replaced with words from the same texts. Labels do not change."""
    texts = data.Texts(["a b c d e f g h"] * 50, None, list(range(50)))
    corrupted = with_other_words(texts, 0.3)
    same = [old == new for old, new in zip("abcdefgh" * 50, "".join(corrupted.firsts).replace(" ", ""), strict=True)]
    assert 0.65 < np.mean(same) < 0.82 and corrupted.labels == texts.labels
    assert with_other_words(texts, 0.0).firsts == texts.firsts
    assert with_other_words(data.Texts(["a b"], ["c d"], ["x"]), 1.0).seconds[0].count(" ") == 1


def test_figures_of_classes_and_scores():
    labels, predicted = np.array([1, 1, 0, 0, 0]), np.array([1, 0, 0, 0, 0])
    figures = class_figures(labels, predicted)
    assert figures["accuracy"] == 0.8 and figures["f1"] == pytest.approx(2 / 3)
    assert figures["matthews"] == pytest.approx((1 * 3 - 0) / np.sqrt(1 * 2 * 3 * 4))
    for labels, predicted in (([0, 1, 2], [0, 1, 1]), ([0, 1, 1], [0, 2, 1])):
        assert "f1" not in class_figures(np.array(labels), np.array(predicted))
    assert class_figures(np.zeros(3, int), np.zeros(3, int))["matthews"] == 0.0
    scores = score_figures(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.5, 2.0]))
    assert scores["pearson"] == pytest.approx(np.corrcoef([1, 2, 3], [1, 2.5, 2])[0, 1])
    assert scores["spearman"] == pytest.approx(0.5)
    assert score_figures(np.array([1.0, 2.0]), np.array([3.0, 3.0]))["pearson"] == 0.0


@pytest.mark.slow
def test_training_on_spans(tmp_path):
    """Answers never start or end in padding. A few training steps learn the only answer."""
    keras.utils.set_random_seed(1)
    run = prepared(APPLICATION, options_of(tmp_path, **squad(tmp_path), model="no_kl"))
    part = run.data["train"]
    inputs, targets = next(iter(part.batches(run.options)))
    logits = run.models.training(inputs).numpy()
    assert (logits[inputs["padding_mask"].numpy() == 0] < -9e3).all() and targets.shape[1] == 2
    run.models.training.compile(keras.optimizers.Adam(0.01), **objective(run.options))
    run.models.training.fit(part.batches(run.options), epochs=15, verbose=0, shuffle=False)
    report, outputs = evaluate(run, run.data["valid"])
    assert report["task"] == {"exact": 1.0, "f1": 1.0} and set(outputs["answers"]) == {"dog"}


# KerasHub does not close the file of a SentencePiece model.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file .*vocabulary.spm:ResourceWarning")
@pytest.mark.parametrize("kind", ["score", "albert"])
def test_exported_model(tmp_path, kind):
    pairs = kind == "score"
    run = run_of(tmp_path, **pairs_with_scores(tmp_path) if pairs else {"weights": write_albert(tmp_path / "albert")})
    predictor = Predictor(run)
    assert predictor.names == ("predict", "sample")
    names = ["texts", "pairs"][: 1 + pairs]
    for function, extra in ((predictor.predict, []), (predictor.sample, ["num_samples", "seed"])):
        assert function.get_concrete_function()._arg_keywords == names + extra
    texts = [tf.constant(["the dog has seen the ball", "my friend"])] * (1 + pairs)
    predicted, drawn = predictor.predict(*texts), predictor.sample(*texts, 6, 1)
    assert drawn["draws"].shape[0] == 6 and np.any(drawn["sd"].numpy() > 0)
    empty = predictor.predict(*[tf.constant([], tf.string)] * len(texts))
    assert len(empty["scores" if pairs else "labels"]) == 0
    np.testing.assert_array_equal(drawn["draws"], predictor.sample(*texts, 6, 1)["draws"])
    part = APPLICATION.encode(
        run.options,
        run.codec,
        type(run.data["train"].part)(
            ["the dog has seen the ball", "my friend"],
            ["the dog has seen the ball", "my friend"] if pairs else None,
            [0.0, 0.0] if pairs else [run.codec.labels[0]] * 2,
        ),
    )
    outputs = run.models.training(next(iter(part.batches(run.options)))[0]).numpy()
    if pairs:
        np.testing.assert_allclose(predicted["scores"], outputs, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_allclose(predicted["probabilities"], tf.nn.softmax(outputs), rtol=1e-4)
        assert [x.decode() for x in predicted["labels"].numpy()] == [
            run.codec.labels[i] for i in outputs.argmax(axis=1)
        ]


@pytest.mark.parametrize("stddev", slow_after([0.02, None]))
def test_initial_prior_weights(tmp_path, stddev):
    """The standard deviation is `prior_stddev` or, for `None`, the published 1 / sqrt(width of a head's keys)."""
    run = prepared(APPLICATION, options_of(tmp_path, prior_stddev=stddev, prior_hidden_units=400))
    kernel = keras_vattn.stochastic_layers(run.models.backbone)[0].alignment_prior.trainable_weights[0]
    assert kernel.shape == (24, 400)
    np.testing.assert_allclose(np.std(kernel), stddev or 24**-0.5, rtol=0.1)


def test_masked_words():
    """One in seven ordinary tokens is masked. The loss is a mean over masked tokens. The seed reproduces the masks."""
    encoder = TextEncoder(pretraining.tokenizer(), pretraining.LENGTH)
    mask, num_masked, num_tokens = encoder.tokenizer.mask_token_id, 0, 0
    batches = list(pretraining.masked_batches(encoder, 0).take(4))
    for inputs, words, weights in batches:
        is_masked = weights.numpy() > 0
        assert (words.numpy()[is_masked] >= len(pretraining.SPECIAL)).all()
        inputs_at_masks = np.take_along_axis(inputs["token_ids"].numpy(), inputs["mask_positions"].numpy(), axis=1)
        assert (
            0.7 < np.mean(inputs_at_masks[is_masked] == mask) < 0.9
            and 0.05 < np.mean(inputs_at_masks[is_masked] == words.numpy()[is_masked]) < 0.2
        )
        np.testing.assert_allclose(weights.numpy().mean(), 1.0, rtol=1e-5)
        num_masked, num_tokens = num_masked + is_masked.sum(), num_tokens + inputs["padding_mask"].numpy().sum()
    assert abs(num_masked / num_tokens - 0.15) < 0.03
    for (inputs, *_), (repeated, *_) in zip(batches, pretraining.masked_batches(encoder, 0), strict=False):
        np.testing.assert_array_equal(inputs["token_ids"], repeated["token_ids"])
    other, *_ = next(iter(pretraining.masked_batches(encoder, 4)))
    assert (other["token_ids"] != batches[0][0]["token_ids"]).numpy().any()
