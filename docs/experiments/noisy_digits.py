"""Draws the picture in README.md: histograms of the uncertainty about clean and about noisy digits.

    python docs/experiments/noisy_digits.py RUNS docs/images/noisy_digits.png

The left panel shows the entropy of a deterministic model, the right panel the mutual information of sampled predictions
of a stochastic model. RUNS is the folder that README's `compare` command writes. The picture uses its runs with seed 1.
"""

import pathlib
import sys

import numpy as np
from matplotlib.figure import Figure

from applications.common.application import Application
from applications.common.training import load_run
from applications.graphs.options import PROGRAM
from keras_vattn import metrics

NOISE = 5.0  # standard deviation of the noise, as in `compare`, relative to the standard deviation of a feature
NUM_DRAWS = 20


def draw(axes, application, folder, kind, score, title):
    run = load_run(application, folder)
    part = application.encode(run.options, run.codec, application.read(run.options)["test"])
    predictor = application.layouts["uncertainty"].predictor
    clean, noisy = (score(predictor(run, part, noise).predictions(NUM_DRAWS)[kind]) for noise in (0.0, NOISE))
    bins = np.geomspace(np.quantile(clean, 0.002), noisy.max(), 41)
    axes.set_xscale("log")
    axes.hist(clean, bins, alpha=0.6, label="as they are")
    axes.hist(noisy, bins, alpha=0.6, label="with noise")
    axes.set_title(f"{title}\nAUROC {metrics.out_of_distribution_detection(clean, noisy)['auroc']:.2f}", fontsize=10)
    axes.set_xlabel("nats")
    axes.spines[["top", "right"]].set_visible(False)


def main(runs, path):
    application, figure = Application.of(PROGRAM), Figure((7.5, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    entropy_score, mi_score = metrics.predictive_entropy, metrics.mutual_information
    draw(left, application, runs / "gat_seed_1", "mean", entropy_score, "deterministic attention: entropy")
    draw(right, application, runs / "wc_seed_1", "attention", mi_score, f"mutual information of {NUM_DRAWS} draws")
    left.set_xticks((0.2, 0.5, 1.0, 2.0), ("0.2", "0.5", "1", "2"))
    left.minorticks_off()
    left.set_ylabel("test digits")
    left.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
