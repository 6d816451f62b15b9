"""A picture of the uncertainty of nodes."""

import numpy as np

from keras_vattn import metrics
from keras_vattn.plots.figure import COLORS, finish, new_figure, require_matplotlib


def uncertainty(hidden, outputs, path):
    """Draw the nodes of a part by their features, and the accuracy as the uncertain ones are left out.

    Args:
        hidden: Inputs of the second layer (M, H F), drawn in the plane of their two principal components.
        outputs: Outputs of `evaluation.evaluate`, with draws.
        path: The PNG.
    """
    require_matplotlib()
    import matplotlib

    part, draws = outputs["part"], outputs["draws"]
    mean, unknown = draws.mean(axis=0), metrics.predictive_entropy(draws)
    predicted, labels = mean.argmax(axis=1), part.labels
    palette = COLORS if mean.shape[1] <= len(COLORS) else matplotlib.colormaps["tab20"].colors
    figure = new_figure(10.0, 4.6, layout="constrained")
    plane, coverage = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    # Half precision has no decomposition. A row and a column of zeros: there may be one node or one feature.
    centred = np.pad((hidden - hidden.mean(axis=0)).astype(np.float32), ((0, 1), (0, 1)))
    x, y = np.linalg.svd(centred, full_matrices=False)[2][:2] @ centred[:-1].T
    for right, marker, size in ((True, "o", 12), (False, "X", 34)):
        rows = (predicted == labels) == right
        if not rows.any():
            continue
        colors = [palette[label % len(palette)] for label in predicted[rows]]
        shade = 0.15 + 0.85 * unknown[rows] / max(unknown.max(), 1e-6)
        plane.scatter(x[rows], y[rows], s=size, c=colors, alpha=shade, marker=marker, linewidths=0)
    plane.set_title("nodes: colour, the predicted class; strength, the entropy; X, wrong", fontsize=10)
    plane.set_xticks([])
    plane.set_yticks([])
    share = np.arange(1, len(labels) + 1) / len(labels)
    for name, order, color in (
        ("by the entropy", np.argsort(unknown, kind="stable"), COLORS[0]),
        ("at best", np.argsort(predicted != labels, kind="stable"), "0.7"),
    ):
        right = np.cumsum((predicted == labels)[order]) / np.arange(1, len(labels) + 1)
        coverage.plot(100.0 * share, 100.0 * right, color=color, label=name)
    coverage.set_xlabel("nodes that are classified, the certain ones first (%)")
    coverage.set_ylabel("accuracy of these (%)")
    coverage.grid(color="0.9", linewidth=0.6)
    coverage.spines[["top", "right"]].set_visible(False)
    coverage.legend(frameon=False)
    finish(figure, path, 150)
