"""The training step of every layer and objective, traced: forward, loss, gradient, optimizer."""

import dataclasses
from functools import partial
from unittest import mock

import keras
import latent_cases
import tensorflow as tf
from battery_checks import training_argument, value_and_gradients, weight_gradients
from battery_latent import CANDIDATES, TokenLogLikelihoodCase
from battery_table import CASES, HALF_POLICIES, covering, traits

from keras_vattn import GumbelSoftmax, NegativeBound, Perplexity, SequenceCrossentropy, TokenLogLikelihood
from keras_vattn.fast import FusedAdam

# More than there are axes, widths or keys: what has so many entries grows with the batch.
BATCH, STEPS = 101, 11
# `test_gpu_kernels.py` has these, and `gpu_kernels.py` prints every one.
ONE_OF_EACH_PATH = (
    "attention-bilinear-gaussian-mean-dropout",
    "dirichlet-fixed",
    "gumbel-straight-through-annealed",
    "word-dropout",
    "decoder-gru-additive-mean-previous-expected-stack",
    "decoder-max-out-lstm-one-hot-previous-sampled",
    "multi-head-weibull-per-head-gate-dropout",
    "multi-head-query-chunks",
    "graph-gumbel-straight-through",
    "categorical-elbo-two-draws",
    "token-log-likelihood-chunks-ignore-class",
    "token-log-likelihood-mixture",
    "latent-log-likelihood-moving-average",
    "words",
)
# Draws with a baseline that is a state, a relaxation, candidates that are chosen, two bounds of several draws.
OBJECTIVES = ("elbo-moving-average", "elbo-gumbel", "top_k", "importance-weighted", "wake-sleep")


class MixtureCase(TokenLogLikelihoodCase):
    """TokenLogLikelihood of a prediction, which has a gradient too."""

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        inputs = super().arrays(batch, steps, seed)["inputs"]
        return {"inputs": inputs, "log_weights": tf.nn.log_softmax(tf.ones((batch, steps, CANDIDATES)))}


def of_layer(case):
    layer, optimizer = case.built(), FusedAdam(global_clipnorm=1.0)
    if layer.trainable_weights:
        optimizer.build(layer.trainable_weights)
    training = training_argument(case, True).get("training")

    @tf.function
    def step(arrays, masks):
        _, value, gradients = value_and_gradients(case, layer, arrays, masks, training)
        if layer.trainable_weights:
            optimizer.apply(weight_gradients(layer, gradients))
        return value, gradients

    return step.get_concrete_function(case.arrays(BATCH, STEPS), case.masks(BATCH, STEPS))


def of_model(model, loss, inputs, targets, metrics=()):
    model.compile(FusedAdam(global_clipnorm=1.0), loss, weighted_metrics=metrics, jit_compile=False)
    return tf.function(model.train_step).get_concrete_function((inputs, targets))


def of_objective(objective):
    inputs = latent_cases.tensors(latent_cases.arrays(BATCH, STEPS))
    return of_model(latent_cases.model(objective), NegativeBound(ignore_class=0), inputs, inputs["targets"])


def of_words(**options):
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.Masking(), keras.layers.Dense(9, dtype="float32")])
    inputs, targets = tf.ones((BATCH, STEPS, 4)), tf.ones((BATCH, STEPS), tf.int32)
    return of_model(model, SequenceCrossentropy(ignore_class=0, **options), inputs, targets, [Perplexity()])


def _rows():
    chosen = covering(CASES, traits) | set(ONE_OF_EACH_PATH)
    yield from (case for case in CASES if case.name in chosen)
    yield MixtureCase("token-log-likelihood-mixture", partial(TokenLogLikelihood, 9), {"inputs": 6, "log_weights": 5})
    graph = next(case for case in CASES if case.name == "graph-weibull-contextual")
    make = partial(graph.make, alignment=GumbelSoftmax(0.5, straight_through=True))
    yield dataclasses.replace(graph, name="graph-gumbel-straight-through", make=make)


TRAINING_STEPS = {
    **{case.name: partial(of_layer, case) for case in _rows()},
    **{f"objective-{name}": partial(of_objective, latent_cases.OBJECTIVES[name]) for name in OBJECTIVES},
    "words": partial(of_words, label_smoothing=0.1),
    "words-of-probabilities": partial(of_words, from_logits=False),
}
# Each of them in float32 or in half precision by turns; rows of one class stand beside each other.
RUNS = [(name, ("float32", HALF_POLICIES[i // 2 % 2])[i % 2]) for i, name in enumerate(TRAINING_STEPS)]


def traced(name, policy):
    """Return a training step under a dtype policy, a concrete function as a process with a GPU traces it."""
    keras.config.set_dtype_policy(policy)
    with mock.patch.object(tf.config, "list_physical_devices", return_value=["a GPU"]):
        return TRAINING_STEPS[name]()
