"""Computes the numbers of docs/first_hour_layer.md: means over ten seeds, with new data and weights for each seed.

python docs/experiments/first_hour.py [LEARNING_RATE EPOCHS]
"""

import pathlib
import re
import sys

import keras
import numpy as np
from scipy import stats

import keras_vattn

PAGE = pathlib.Path(__file__).parents[1] / "first_hour_layer.md"
LAYERS = {
    "plain": lambda: keras.layers.MultiHeadAttention(1, 32),
    "drawn": lambda: keras_vattn.MultiHeadAttention(1, 32, alignment="lognormal"),
}


def figures(model, weights, is_drawn, scenes, seed):
    """Return the metrics of a trained model on 4,000 new scenes. If `is_drawn`, sample 20 predictions."""
    metrics = keras_vattn.metrics
    x, y, kind = scenes(4000, seed)
    at_the_mean = model.predict(x, verbose=0)[None]
    draws = np.array(keras_vattn.posterior_predictive(model, x, num_samples=20, seed=1)) if is_drawn else at_the_mean
    x_valid, y_valid, _ = scenes(1000, seed + 1000)
    temperature = metrics.fit_temperature(np.log(model.predict(x_valid, verbose=0))[None], y_valid)
    tempered = np.array(keras.ops.softmax(np.log(at_the_mean) / temperature))
    weights = weights.predict(x, verbose=0)[:, 0, 0]
    scores = {
        "entropy": metrics.predictive_entropy(draws),
        "entropy of the weights": -np.sum(weights * np.log(weights + 1e-9), axis=-1),
        "mutual information": metrics.mutual_information(draws),
    }
    is_which = kind == 3
    return {
        "accuracy": np.mean(at_the_mean[0].argmax(-1) == y),
        "NLL (nats)": metrics.negative_log_likelihood(draws, y),
        "NLL, one prediction": metrics.negative_log_likelihood(at_the_mean, y),
        "NLL, one prediction with a temperature": metrics.negative_log_likelihood(tempered, y),
        "ECE": metrics.expected_calibration_error(draws, y),
        **{
            f"AUROC, {name}": metrics.out_of_distribution_detection(score[~is_which], score[is_which])["auroc"]
            for name, score in scores.items()
        },
    }


def interval(values):
    half_width = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{np.mean(values):.3f} [{np.mean(values) - half_width:.3f}, {np.mean(values) + half_width:.3f}]"


def main(learning_rate="0.005", epochs="12"):
    data, train = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)[:2]
    train = train.partition("keras.utils.set_random_seed")[0].replace("verbose=2", "verbose=0")
    train = train.replace("Adam(0.005)", f"Adam({learning_rate})").replace("epochs=12", f"epochs={epochs}")
    rows = {name: [] for name in LAYERS}
    for seed in range(1, 11):
        page = {"__name__": "page"}
        exec(data, page)
        page["x"], page["y"], _ = page["scenes"](2000, 2 * seed + 1)
        exec(train, page)
        for name, layer in LAYERS.items():
            keras.utils.set_random_seed(seed)
            rows[name].append(figures(*page["train"](layer()), name == "drawn", page["scenes"], 2 * seed + 2))
    print("| metric | plain | drawn | difference |\n|---|---|---|---|")
    for figure in rows["plain"][0]:
        plain, drawn = (np.array([row[figure] for row in rows[name]]) for name in LAYERS)
        print(f"| {figure} | {np.mean(plain):.3f} | {np.mean(drawn):.3f} | {interval(drawn - plain)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
