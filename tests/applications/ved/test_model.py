import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from application_cases import changed, codec_of_size
from ved_cases import SMALL

import keras_vattn
from applications.text.text import PAD, START
from applications.ved import model as ved_model
from applications.ved import train
from applications.ved.model import MODELS
from applications.ved.options import Options

WORDS = 17
OPTIONS = changed(Options(), **SMALL, word_dropout=0.25, free_bits=0.0)


# All models, and the options that change their layers. ved_position returns the objective of each word, not logits.
ENTRIES = [
    *((name, ()) for name in MODELS),
    ("ded_dattn", (("residual_stack", True),)),
    ("ved", (("initial_state", True),)),
    ("ved_position", (("objective", "hard"),)),
]
WITH_LOGITS = [entry for entry in ENTRIES if entry[0] != "ved_position"]


def build(model="ved_vattn_mean", values=()):
    keras.utils.set_random_seed(4)
    return ved_model.build(changed(OPTIONS, model=model, **dict(values)), codec_of_size(WORDS, WORDS))


# Tests that only call a model share one instance.
built = functools.cache(build)


def compile_eagerly(models, options):
    loss, perplexity = train.loss_and_perplexity(models.training.name == "ved_position")
    models.training.compile("adam", loss, metrics=[perplexity], run_eagerly=True)


def batch_of(model, batch):
    """Return a batch in the form that training passes to the model."""
    inputs, target = batch
    return ({**inputs, "target": target} if model == "ved_position" else inputs), target


@pytest.fixture
def batch():
    generator = np.random.default_rng(3)
    source, target = generator.integers(4, WORDS, (3, 4)), generator.integers(4, WORDS, (3, 4))
    source[1, 3:], target[2, 2:] = PAD, PAD
    inputs = {"source": source.astype("int32"), "target_input": np.insert(target[:, :-1], 0, START, 1).astype("int32")}
    return inputs, target.astype("int32")


def stepwise(models, inputs):
    """Decode step by step with teacher forcing; return logits, hidden states, contexts and weights of all steps."""
    source = tf.constant(inputs["source"])
    encoded = models.encoder(source)
    memory = models.prepare(source, encoded)
    state, steps = models.start(source, encoded, memory), []
    for ids in inputs["target_input"].T:
        outputs, state = models.decoder.step(models.step_inputs(tf.constant(ids), encoded), state, memory)
        steps.append({**outputs, "logits": models.step_logits(source, encoded)(outputs)})
    return {name: np.stack([step[name] for step in steps], axis=1) for name in steps[0]}


@pytest.mark.parametrize("model, values", ENTRIES)
def test_a_training_step_moves_every_weight(model, values, batch):
    kind, models = MODELS[model], build(model, values)
    compile_eagerly(models, OPTIONS)
    before = [variable.numpy() for variable in models.training.trainable_variables]
    assert np.isfinite(models.training.train_on_batch(*batch_of(model, batch))).all()
    after = [variable.numpy() for variable in models.training.trainable_variables]
    assert all((old != new).any() for old, new in zip(before, after))
    # A latent z adds one KL, and so does a stochastic attention.
    is_drawn = kind.attention in ("standard", "mean", "weibull", "lognormal", "dirichlet")
    assert len(models.training.losses) == kind.latent + is_drawn


def test_options_change_the_parts_of_a_model():
    models = built("ded_dattn", (("residual_stack", True),))
    assert (models.decoder.num_layers, models.decoder.residual, models.decoder.query) == (3, True, "previous")
    assert isinstance(models.decoder.attention.score, keras_vattn.Additive)
    # Deterministic models start from the encoder's state, variational ones from zeros.
    states = {
        entry: [name for name in built(*entry).encoder.output if name.startswith("state_")]
        for entry in (("ded", ()), ("ved", ()), ("ved", (("initial_state", True),)))
    }
    assert [len(names) for names in states.values()] == [2, 0, 2]
    assert built("ved_wc").decoder.attention.alignment_prior.reads_keys
    assert [built(f"ved_vattn_{name}").decoder.attention.context_prior for name in ("0", "mean")] == [
        "standard",
        "mean",
    ]


@pytest.mark.parametrize("model, values", WITH_LOGITS)
def test_decoding_step_by_step_is_teacher_forcing(model, values, batch):
    models = built(model, values)
    logits = models.training(batch[0]).numpy()
    valid = batch[0]["target_input"] != PAD
    np.testing.assert_allclose(stepwise(models, batch[0])["logits"][valid], logits[valid], atol=2e-6)


@pytest.mark.parametrize("model", ["ved", "ved_vattn_mean"])
def test_the_latent_sees_the_source_only(model, batch):
    models = built(model)
    assert [tensor.name for tensor in models.encoder.inputs] == ["source"]
    models.training(batch[0], training=False)
    latent = models.training.get_layer("encoder").get_layer("latent")
    divergence = float(latent.losses[0])
    inputs = {**batch[0], "target_input": np.roll(batch[0]["target_input"], 1, axis=0)[:, :3]}
    models.training(inputs, training=False)
    assert float(latent.losses[0]) == divergence > 0
    models.training({**batch[0], "source": batch[0]["source"][:, ::-1]}, training=False)
    assert float(latent.losses[0]) != divergence


@pytest.mark.parametrize("objective", ["hard", "marginal"])
def test_a_latent_position(objective, batch):
    """The word distribution of a step, which reports use, is a mixture over positions. Hard attention instead maximises
    the mean log-likelihood."""
    models, (inputs, target) = build("ved_position", (("objective", objective),)), batch
    generator = np.random.default_rng(2)
    for variable in models.training.trainable_variables:
        variable.assign(generator.normal(0.0, 0.7, variable.shape))
    encoded, steps = models.encoder(inputs["source"]), stepwise(models, inputs)
    names = ("hidden_projection", "context_projection", "out")
    hidden, context, out = (models.training.get_layer(name) for name in names)
    both = hidden(steps["hidden"])[:, :, None] + context(encoded["memory"])[:, None]
    kernel, bias = out.get_weights()
    log_p = tf.nn.log_softmax(both @ kernel + bias, axis=-1).numpy()
    p = steps["weights"]
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=1e-5)
    mixture = np.log(np.einsum("bts,btsv->btv", p, np.exp(log_p)))
    valid = target != PAD
    np.testing.assert_allclose(tf.nn.log_softmax(steps["logits"]).numpy()[valid], mixture[valid], atol=1e-5)
    target_log_p = np.take_along_axis(mixture, target[..., None], axis=-1)[..., 0]
    words = models.training({**inputs, "target": target}).numpy()
    position_log_p = np.take_along_axis(log_p, target[:, :, None, None], axis=-1)[..., 0]
    maximised = np.einsum("bts,bts->bt", p, position_log_p) if objective == "hard" else target_log_p
    np.testing.assert_allclose(words[valid], maximised[valid], atol=1e-5)
    assert np.abs(maximised - target_log_p)[valid].max() > (0.01 if objective == "hard" else -1)
    log_likelihood = models.log_likelihood(inputs["target_input"], target, encoded, inputs["source"])
    np.testing.assert_allclose(log_likelihood, np.sum(target_log_p * valid, axis=1), rtol=1e-5)
    assert models.logits.value.objective.in_training.objective == objective


@pytest.mark.parametrize("model, values", WITH_LOGITS)
def test_a_word_does_not_see_the_words_after_it(model, values, batch):
    models = built(model, values)
    inputs = batch[0]
    later = np.concatenate([inputs["target_input"][:, :2], inputs["target_input"][:, :1:-1]], 1)
    assert (later != inputs["target_input"]).any()
    both = {"source": np.tile(inputs["source"], (2, 1)), "target_input": np.append(inputs["target_input"], later, 0)}
    logits, other = np.split(models.training(both).numpy(), 2)
    np.testing.assert_array_equal(logits[:, :2], other[:, :2])
    assert (logits[:, 2:] != other[:, 2:]).any()


@pytest.mark.parametrize("model", ["ded_dattn", "ved_vattn_mean"])
def test_the_equations_of_a_step(model, batch):
    models = built(model)
    outputs = stepwise(models, batch[0])
    memory, mask = models.encoder(batch[0]["source"])["memory"], batch[0]["source"] != PAD
    context, weights = models.decoder.attention(
        outputs["hidden"], memory, value_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, outputs["weights"], atol=1e-6)  # the query of step j is h_j
    np.testing.assert_allclose(context, outputs["context"], atol=1e-6)
    kernel, bias = models.training.get_layer("out").get_weights()
    joined = np.concatenate(
        [models.training.get_layer(f"{name}_projection").get_weights()[0] for name in ("hidden", "context")]
    )  # W_att, (units + Dm, attention_size)
    assert joined.shape == (8 + 16, 6) and kernel.shape == (6, WORDS)
    logits = np.concatenate([outputs["hidden"], outputs["context"]], axis=-1) @ joined @ kernel + bias
    np.testing.assert_allclose(outputs["logits"], logits, atol=1e-6)


def test_padding_of_the_source_changes_nothing(batch):
    models = built("ved_vattn_mean")
    longer = {**batch[0], "source": np.pad(batch[0]["source"], [(0, 0), (0, 4)])}
    np.testing.assert_allclose(models.training(longer), models.training(batch[0]), atol=1e-6)
    # A sentence alone gives the same result as in a batch, even if its length equals the width of z.
    alone = {name: value[1:2] for name, value in batch[0].items()}
    assert alone["target_input"].shape == (1, OPTIONS.network.latent_units)
    np.testing.assert_allclose(models.training(alone)[0], models.training(batch[0])[1], atol=1e-6)


@pytest.mark.parametrize("embeddings", ["vectors.txt", None])
def test_pretrained_vectors_may_be_frozen_and_others_are_trained(batch, embeddings):
    matrices = [np.random.default_rng(index).normal(size=(WORDS, 8)).astype("float32") for index in range(2)]
    options = changed(OPTIONS, model="ded", embeddings=embeddings, train_embeddings=False)
    models = ved_model.build(options, codec_of_size(WORDS, WORDS))
    vectors = models.encoder.get_layer("source_embedding").embeddings, models.target_embedding.embeddings
    for trained, matrix in zip(vectors, matrices):
        trained.assign(matrix)
    compile_eagerly(models, options)
    models.training.train_on_batch(*batch)
    for trained, matrix in zip(vectors, matrices):
        assert np.array_equal(trained, matrix) == (embeddings is not None)
