"""Variance of gradient estimates: geometric means over seeds, with 95% intervals.

    python tests/benchmarks/gradient_variance.py --out FILE.json
    python tests/benchmarks/gradient_variance.py --tables baselines --seeds 5 --num-draws 4000

`baselines`: the gradient of elbo/sample by the logits of q for each baseline, on a small alignment task, at the start
and after 50 steps of training with the enumerated bound. The variance is summed over the logits of a word and averaged
over words; the squared length of the true gradient, enumerated, stands beside it, and so does the distance of the mean
estimate from it in standard errors.

`divergences`: the gradient of the KL of two stacked Bayesian attentions by the queries of the first, with the analytic
KL, which only the draws of the first layer make random (Fan et al. 2020, lemma 1), and with the sampled one.
"""

import argparse
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import scipy.stats
import tensorflow as tf
from keras import ops

import keras_vattn
from keras_vattn import LatentObjective

BATCH, STEPS, SOURCE, WIDTH, VOCABULARY = 16, 6, 12, 16, 40
TRAINING_STEPS = 50
BASELINES = {"none": None, "moving_average": "moving_average", "soft": "soft"}


class AlignmentTask:
    """A model of words copied from the source: the query says roughly where from, the posterior sees the word.

    Args:
        seed: Of data and initial weights.
    """

    def __init__(self, seed):
        keras.utils.set_random_seed(seed)
        generator = np.random.default_rng(seed)
        words = generator.integers(0, VOCABULARY, size=(BATCH, SOURCE))
        positions = generator.integers(0, SOURCE, size=(BATCH, STEPS))
        where = generator.normal(size=(SOURCE, WIDTH))
        self.words, self.targets = tf.constant(words), tf.constant(np.take_along_axis(words, positions, axis=1))
        self.where = tf.constant(where[None], tf.float32)
        self.query = tf.constant(where[positions] + generator.normal(size=(BATCH, STEPS, WIDTH)), tf.float32)
        self.embedding = keras.layers.Embedding(VOCABULARY, WIDTH)
        self.score, self.posterior_score = keras_vattn.Bilinear(), keras_vattn.Bilinear()
        self.value, self.hidden = keras.layers.Dense(WIDTH), keras.layers.Dense(WIDTH)
        self.output = keras_vattn.TokenLogLikelihood(VOCABULARY)
        self.bound("elbo/enumerate", *self.logits())
        layers = (self.embedding, self.score, self.posterior_score, self.value, self.hidden, self.output)
        self.variables = [weight for layer in layers for weight in layer.trainable_weights]

    def logits(self):
        """Logits of p and q, (B, T, S)."""
        memory = self.embedding(self.words) + self.where
        return self.score(self.query, memory), self.posterior_score(self.embedding(self.targets), memory)

    def bound(self, objective, logits, posterior_logits, copies=1, attention=None, value_layer=None):
        """The bound (copies * B, T) in training, and the attention, whose KL it has added."""
        attention = attention or keras_vattn.CategoricalAttention(objective=objective, seed=0)
        value_layer = value_layer or keras_vattn.LatentLogLikelihood(objective)
        tile = lambda x: tf.tile(x, [copies, *[1] * (len(x.shape) - 1)])  # noqa: E731
        value = tile(self.value(self.embedding(self.words)))
        latent = attention(tile(self.query), value, logits=logits, posterior_logits=posterior_logits, training=True)
        hidden = ops.tanh(tile(self.hidden(self.query))[:, :, None] + latent["candidates"])
        log_likelihood = self.output(hidden, tile(self.targets))
        return value_layer(log_likelihood, latent["log_prior"], latent["log_posterior"], training=True), attention

    def train(self, num_steps):
        """Maximise the enumerated bound."""
        optimizer = keras.optimizers.Adam(0.01)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                bound, attention = self.bound("elbo/enumerate", *self.logits(), attention=self.enumerated)
                loss = -tf.reduce_sum(bound) / BATCH + attention.losses[0]
            optimizer.apply(tape.gradient(loss, [x.value for x in self.variables]), self.variables)
            return loss

        self.enumerated = keras_vattn.CategoricalAttention(objective="elbo/enumerate")
        self.bound("elbo/enumerate", *self.logits(), attention=self.enumerated)
        optimizer.build(self.variables)
        return [float(step()) for _ in range(num_steps)][-1]

    def posterior_gradients(self, objective, copies, num_calls=1, warm_up=0):
        """Gradients of the bound by the logits of q, (num_calls * copies, B, T, S), one for every draw."""
        attention = keras_vattn.CategoricalAttention(objective=objective, seed=1)
        value_layer = keras_vattn.LatentLogLikelihood(objective)
        logits, posterior_logits = (tf.tile(x, [copies, 1, 1]) for x in self.logits())

        @tf.function
        def call():
            with tf.GradientTape() as tape:
                tape.watch(posterior_logits)
                bound, _ = self.bound(objective, logits, posterior_logits, copies, attention, value_layer)
                total = tf.reduce_sum(bound)
            return tape.gradient(total, posterior_logits)

        self.bound(objective, logits, posterior_logits, copies, attention, value_layer)
        for _ in range(warm_up):
            call()
        gradients = np.concatenate([call().numpy() for _ in range(num_calls)])
        return gradients.reshape(-1, BATCH, STEPS, SOURCE)


def interval(values):
    """Geometric mean of positive values over seeds, and the 95% interval of Student's t on their logarithms."""
    logs = np.log(np.asarray(values, np.float64))
    half = scipy.stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    low, mean, high = np.exp(logs.mean() + half * np.array([-1.0, 0.0, 1.0]))
    return {"mean": mean, "low": low, "high": high, "seeds": len(logs)}


def baselines(seeds, num_draws):
    """Rows of the table of baselines."""
    found = {}
    for seed in range(seeds):
        task = AlignmentTask(seed)
        for state in ("start", "trained"):
            if state == "trained":
                task.train(TRAINING_STEPS)
            truth = task.posterior_gradients(LatentObjective("elbo/enumerate"), 1)[0]
            for name, baseline in BASELINES.items():
                objective = LatentObjective("elbo/sample", baseline=baseline, baseline_decay=0.9)
                gradients = task.posterior_gradients(objective, 200, num_draws // 200, warm_up=20)
                variance = gradients.var(axis=0, ddof=1)
                error = np.sqrt(variance.mean() / len(gradients))
                entry = found.setdefault((state, name), {"variance": [], "signal": [], "distance": []})
                entry["variance"].append(variance.sum(-1).mean())
                entry["signal"].append(np.square(truth).sum(-1).mean())
                entry["distance"].append(np.sqrt(np.square(gradients.mean(0) - truth).mean()) / error)
    return [
        {
            "state": state,
            "baseline": name,
            "variance": interval(entry["variance"]),
            "variance over that of no baseline": interval(
                np.divide(entry["variance"], found[state, "none"]["variance"])
            ),
            "squared length of the true gradient": interval(entry["signal"]),
            "distance of the mean from it in standard errors": interval(entry["distance"]),
        }
        for (state, name), entry in found.items()
    ]


def divergences(seeds, num_draws):
    """Rows of the table of KL estimators: two stacked layers, the gradient of their KL by the first one's queries."""
    found = {}
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        query, value = (tf.constant(generator.normal(size=(1, x, WIDTH)) / 2, tf.float32) for x in (STEPS, SOURCE))
        copies = [tf.repeat(x, num_draws, axis=0) for x in (query, value)]
        for distribution in ("weibull", "lognormal"):
            initial = None
            for estimator in ("analytic", "sampled"):
                keras.utils.set_random_seed(seed)
                options = {"distribution": distribution, "kl_estimator": estimator}
                options |= {"k": 2.0} if distribution == "weibull" else {}
                layers = [keras_vattn.BayesianAttention(**options, seed=seed + index) for index in range(2)]
                layers[1](layers[0](query, value), value)
                if initial is None:
                    initial = [layer.get_weights() for layer in layers]
                for layer, weights in zip(layers, initial, strict=True):
                    layer.set_weights(weights)
                with tf.GradientTape() as tape:
                    tape.watch(copies[0])
                    layers[1](layers[0](*copies, training=True), copies[1], training=True)
                    total = sum(layer.losses[0] for layer in layers) * num_draws
                gradients = tape.gradient(total, copies[0]).numpy()  # one estimate a copy
                entry = found.setdefault((distribution, estimator), {"variance": [], "signal": []})
                entry["variance"].append(gradients.var(axis=0, ddof=1).sum(-1).mean())
                entry["signal"].append(np.square(gradients.mean(0)).sum(-1).mean())
    return [
        {
            "distribution": distribution,
            "KL": estimator,
            "variance": interval(entry["variance"]),
            "variance over that of the sampled KL": interval(
                np.divide(entry["variance"], found[distribution, "sampled"]["variance"])
            ),
            "squared length of the mean": interval(entry["signal"]),
        }
        for (distribution, estimator), entry in found.items()
    ]


TABLES = {"baselines": baselines, "divergences": divergences}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write the tables to")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-draws", type=int, default=2000, help="per seed and row, a multiple of 200")
    options = parser.parse_args()
    if options.seeds < 2 or options.num_draws % 200 or options.num_draws < 200:
        parser.error("needs at least 2 seeds and a multiple of 200 draws")
    tables = {}
    for name in options.tables:
        tables[name] = TABLES[name](options.seeds, options.num_draws)
        print(f"\n{name}, {options.seeds} seeds, {options.num_draws} draws each")
        for row in tables[name]:
            print("  " + ", ".join(str(value) for value in row.values() if isinstance(value, str)))
            for column, value in row.items():
                if not isinstance(value, str):
                    print(f"    {column:50} {value['mean']:10.4g} [{value['low']:.4g}, {value['high']:.4g}]")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"seeds": options.seeds, "draws": options.num_draws, **tables}, indent=2))


if __name__ == "__main__":
    main()
