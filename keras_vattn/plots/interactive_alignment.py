import itertools

import numpy as np

from keras_vattn.plots.chart import INK, WITHOUT_NUMBER, number_tokens, require_altair, selector, styled
from keras_vattn.plots.figure import COLORS

# In pixels: the size of a cell, and the maximum width of a row of panels.
_CELL = 24
_ROW = 960
# A field with more than one value gets a drop-down list.
_CHOICES = ("example", "layer", "head")


def interactive_alignment(weights, source_tokens, target_tokens, spread=None, title=None):
    """Plot attention weights as an interactive chart: one row per target token, one column per source token.

    Notebooks display the chart. Larger weights are darker. Hover over a cell to see the numbers. Drop-down lists select
    a layer or a head. For a static figure, use `keras_vattn.plots.alignment_heat_map`.

    Args:
        weights: Array in [0, 1] of shape (T, S), (heads, T, S) or (layers, heads, T, S). A dictionary from names, such
            as "p" and "q", to arrays shows the arrays side by side.
        source_tokens: List of S strings.
        target_tokens: List of T strings.
        spread: Standard deviations of the weights over samples, with the shape of `weights`, or `None`. The area of an
            orange circle shows the deviation, up to 0.5. A dictionary may omit names. Defaults to `None`.
        title: Title of the chart, or `None`. Defaults to `None`.

    Returns:
        An `altair.FacetChart`. `chart.save("alignment.html", inline=True)` writes a file that works offline.

    Raises:
        ValueError: If the shapes do not match, or a weight lies outside [0, 1].
        ImportError: If Altair is not installed.

    Example:

    >>> import numpy as np
    >>> chart = keras_vattn.plots.interactive_alignment(
    ...     {"p": np.full((2, 2), 0.5), "q": np.eye(2)}, ["guten", "Tag"], ["good", "day"]
    ... )
    >>> chart.to_dict()["facet"]["field"]
    'panel'

    Reference:
        Bahdanau et al. 2015, figure 3.
    """
    require_altair()
    weights = _by_name("weights", weights, len(target_tokens), len(source_tokens), 1.0)
    spread = {} if spread is None else _by_name("spread", spread, len(target_tokens), len(source_tokens), np.inf)
    for name, deviation in spread.items():
        if name not in weights or deviation.shape != weights[name].shape:
            raise ValueError(
                "Expected a spread with the names and shapes of the weights. Received: spread of "
                f"{_shapes(spread)}, weights of {_shapes(weights)}"
            )
    pair = {"title": "", "source": source_tokens, "target": target_tokens, "weights": weights, "spread": spread}
    chart, datasets = alignment_chart([pair])
    return styled(chart if title is None else chart.properties(title=title)).properties(datasets=datasets)


def alignment_chart(pairs):
    """Return a chart with a drop-down list of sentence pairs, and the data sets to add to the chart.

    Call `styled` first, then add the data sets: every change to a chart copies the data.

    Args:
        pairs: List of dictionaries with the keys "title", unique for each pair; "source" and "target", lists of
            strings; "weights" and "spread", dictionaries from names to arrays as in `interactive_alignment`.
    """
    import altair as alt

    has_spread = any(pair["spread"] for pair in pairs)
    rows = [row for pair in pairs for row in _rows(pair, has_spread)]
    choices = {name: list(dict.fromkeys(row[name] for row in rows if name in row)) for name in _CHOICES}
    choices = {name: values for name, values in choices.items() if len(values) > 1}
    label = {"labelExpr": WITHOUT_NUMBER, "title": None, "domain": False, "ticks": False, "labelLimit": 200}
    x = alt.X("source:O", axis=alt.Axis(orient="bottom", labelAngle=-90, **label))
    y = alt.Y("target:O", axis=alt.Axis(**label))
    words = {"source word": "source", "target word": "target"}
    tooltip = [alt.Tooltip(f"{name}:N") for name in words]
    tooltip.append(alt.Tooltip("weight:Q", format=".3f"))
    legend_position = {"orient": "bottom", "direction": "horizontal"}
    shade = alt.Opacity(
        "weight:Q",
        scale=alt.Scale(domain=[0, 1], range=[0, 1], clamp=True),
        legend=alt.Legend(values=[0.2, 0.4, 0.6, 0.8, 1], symbolType="square", symbolStrokeWidth=0, **legend_position),
    )
    frame = alt.Chart().mark_rect(fill="transparent", stroke=INK, strokeOpacity=0.15).encode(x, y)
    layers = [frame, alt.Chart().mark_rect(fill=INK).encode(x, y, shade)]
    if has_spread:
        tooltip.append(alt.Tooltip("spread:Q", format=".3f", title="standard deviation"))
        area = alt.Size(
            "spread:Q",
            scale=alt.Scale(domain=[0, 0.5], range=[0, 0.6 * _CELL**2], clamp=True),
            legend=alt.Legend(title="standard deviation", values=[0.1, 0.3, 0.5], **legend_position),
        )
        rings = alt.Chart().mark_point(stroke=COLORS[1], strokeWidth=1.5, opacity=1).encode(x, y, area)
        layers.append(rings.transform_filter("datum.spread > 0.001"))
    layers = [layer.encode(tooltip=tooltip) for layer in layers]
    cells = alt.layer(*layers, data=alt.NamedData("cells")).properties(width=alt.Step(_CELL), height=alt.Step(_CELL))
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    # With one column, p and q would not be side by side.
    columns = max(2, int(_ROW // (_CELL * np.median([len(row["source"]) for row in rows]) + 20)))
    chart = cells.facet(alt.Facet("panel:N", title=None, sort=panels), columns=min(columns, len(panels)))
    for name, values in choices.items():
        # A panel without a value for `name` is always shown.
        chart = chart.transform_filter(f"!isValid(datum.{name}) || datum.{name} === {name}")
        chart = chart.add_params(selector(name, values))
    chart = chart.transform_flatten(["source", "weight", *(["spread"] if has_spread else [])])
    for name, key in words.items():
        chart = chart.transform_calculate(**{name: WITHOUT_NUMBER.replace("value", key)})
    # Without `resize`, the chart would keep the size of the first sentence.
    return chart.properties(autosize=alt.AutoSizeParams(type="pad", resize=True)), {"cells": rows}


def _rows(pair, has_spread):
    """Return one table row for every target token of every panel, layer and head."""
    source, target, rows = number_tokens(pair["source"]), number_tokens(pair["target"]), []
    for panel, weights in pair["weights"].items():
        weights = np.asarray(weights)
        spread = pair["spread"].get(panel)
        for leading_index in itertools.product(*map(range, weights.shape[:-2])):
            selection = {name: number + 1 for name, number in zip(("head", "layer"), leading_index[::-1])}
            for index, token in enumerate(target):
                row = {"example": pair["title"], "panel": panel, **selection, "target": token, "source": source}
                row["weight"] = np.round(weights[leading_index][index].astype("float64"), 4).tolist()
                if has_spread:
                    row["spread"] = len(source) * [None]
                if spread is not None:
                    row["spread"] = np.round(np.asarray(spread, "float64")[leading_index][index], 4).tolist()
                rows.append(row)
    return rows


def _by_name(argument, arrays, num_targets, num_sources, largest):
    """Return a dictionary that maps panel names to arrays. A single array gets the name ""."""
    arrays = arrays if isinstance(arrays, dict) else {"": arrays}
    arrays = {str(name): np.asarray(array, "float64") for name, array in arrays.items()}
    for array in arrays.values():
        if not 2 <= array.ndim <= 4 or array.shape[-2:] != (num_targets, num_sources) or not array.size:
            raise ValueError(
                f"`{argument}` must not be empty and must have shape ([[layers,] heads,] target, source) with (target, "
                f"source) = ({num_targets}, {num_sources}). Received: {argument} of {_shapes(arrays)}"
            )
        if not ((array >= 0) & (array <= largest + 1e-6)).all():
            raise ValueError(
                f"`{argument}` must be finite and at least 0{', and at most 1' if largest == 1 else ''}. "
                f"Received: {argument} from {array.min()} to {array.max()}"
            )
    if not arrays:
        raise ValueError(f"`{argument}` must have at least one panel. Received: {argument}={{}}")
    return arrays


def _shapes(arrays):
    return ", ".join(f"{name or 'one panel'} {array.shape}" for name, array in arrays.items())
