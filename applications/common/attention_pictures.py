"""Draws attention weights over words as heat maps."""

import numpy as np

import keras_vattn


def draw_alignments(alignments, path):
    """Return a matplotlib figure that shows the `Alignment`s of all models side by side.

    If an example has a prior and a posterior, one panel shows both (Deng et al. 2018, figures 3 and 4). Weights are
    means over heads. `alignments` maps model names to lists of `Alignment`s, one per example. An empty name is not
    shown. If `path` is given, the figure is saved there.
    """
    panels = []
    for examples in zip(*alignments.values(), strict=True):
        for name, example in zip(alignments, examples, strict=True):
            weights = {kind: _mean_of_heads(matrix) for kind, matrix in example.weights.items()}
            posterior = weights.pop("posterior") if {"prior", "posterior"} <= weights.keys() else None
            for kind, matrix in weights.items():
                is_both = kind == "prior" and posterior is not None
                title = ": ".join(filter(None, (name, "prior (red), posterior (blue)" if is_both else kind)))
                panels.append((matrix, example.source, example.target, title, posterior if is_both else None))
    matrices, sources, targets, titles, overlays = map(list, zip(*panels, strict=True))
    num_examples = len(next(iter(alignments.values())))
    return keras_vattn.plots.alignment_heat_map(
        matrices,
        sources,
        targets,
        titles,
        panels_per_row=len(panels) // num_examples if len(panels) > num_examples else None,
        path=path,
        other=overlays,
    )


def _mean_of_heads(weights):
    weights = np.asarray(weights)
    return weights.mean(axis=tuple(range(weights.ndim - 2)))
