"""The picture of README: can a model tell digits with noise by its entropy, and by what draws of its attention disagree on?

    python docs/experiments/noisy_digits.py RUNS docs/images/noisy_digits.png

RUNS is the folder of README's comparison. The picture is of its first seed.
"""

import pathlib
import sys

import numpy as np
from matplotlib.figure import Figure

from applications.common.application import Application
from applications.common.training import load_run
from applications.graphs.__main__ import PROGRAM
from keras_vattn import metrics

NOISE = 5.0  # standard deviations of a feature, as `compare` has it


def scores(run, corruption, score, kind):
    """Return a score of every test node of a run."""
    part = APPLICATION.encode(run.options, run.codec, APPLICATION.read(run.options)["test"])
    predictor = APPLICATION.layouts["uncertainty"].predictor(run, part, corruption)
    return score(predictor.predictions(20)[kind])


def draw(axes, run, score, kind, title):
    test, noisy = (scores(run, corruption, score, kind) for corruption in (0.0, NOISE))
    bins = np.linspace(0, max(test.max(), noisy.max()), 31)
    for values, label in ((test, "as they are"), (noisy, "with noise")):
        axes.hist(values, bins, alpha=0.6, label=label)
    told = metrics.out_of_distribution_detection(test, noisy)["auroc"]
    axes.set_title(f"{title}\nAUROC {told:.2f}", fontsize=10)
    axes.set_xlabel("nats")


APPLICATION = Application.of(PROGRAM)
folder, path = map(pathlib.Path, sys.argv[1:])
figure = Figure((7.5, 2.8), layout="constrained")
left, right = figure.subplots(1, 2, sharey=True)
draw(left, load_run(APPLICATION, folder / "gat_seed_1"), metrics.predictive_entropy, "mean", "entropy of one model")
wc = load_run(APPLICATION, folder / "wc_seed_1")
draw(right, wc, metrics.mutual_information, "attention", "mutual information of 20 draws of `wc`")
left.set_ylabel("test digits")
left.legend(frameon=False, fontsize=9)
figure.savefig(path, dpi=150)
