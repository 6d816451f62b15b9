"""The charts of report.html, specifications of Vega-Lite made by Altair: curves over epochs, alignments, regions."""

import dataclasses

import numpy as np

from applications.common.shown import IMAGE_SIDE, evenly
from applications.common.training_curves import value_of
from keras_vattn.plots.chart import INK, chooser, require_altair
from keras_vattn.plots.figure import COLORS
from keras_vattn.plots.interactive_alignment import alignment_chart
from keras_vattn.plots.text import text_width, visible

# Strokes and gaps of lines, for models beyond the number of colours.
DASHES = [1, 0], [6, 3], [2, 2]
# What lies over the regions that are not looked at.
_FOG = "#222"


def curve_charts(histories, labels, most_epochs=200):
    """Return the charts of the panels of `training_curves.panels_of`, by their titles.

    Args:
        histories: Dictionary from the name of a model to the histories of its seeds. Several seeds are thin lines
            around their mean.
        labels: Dictionary from columns of history.csv to their labels.
        most_epochs: Most epochs of a line; a longer line is thinned evenly.
    """
    panels = {label: _points(histories, column, most_epochs) for column, label in labels.items()}
    if not panels:
        return {}
    epochs = [point["epoch"] for points in panels.values() for point in points]
    ticks = sorted({round(tick) for tick in np.linspace(min(epochs), max(epochs), 7)})
    chart = _curve_chart(histories, ticks)
    return {label: chart | {"datasets": {"points": points}} for label, points in panels.items()}


def _points(histories, column, most_epochs):
    points = []
    for name, seeds in histories.items():
        for seed, rows in enumerate(seeds, start=1):
            values = [(int(row["epoch"]), value_of(row, column)) for row in rows]
            values = [(epoch, value) for epoch, value in values if value is not None]
            kept = evenly(len(values), most_epochs) if values else []
            # Six digits are all that a line shows.
            values = [(values[place][0], float(f"{values[place][1]:.6g}")) for place in kept]
            points += [{"model": name, "seed": seed, "epoch": epoch, "value": value} for epoch, value in values]
    return points


def _curve_chart(histories, ticks):
    require_altair()
    import altair as alt

    names, several_seeds = list(histories), max(map(len, histories.values())) > 1

    # Black cannot be seen on a dark page.
    colors = [INK if color == "#000000" else color for color in COLORS]
    clicked = alt.selection_point(name="clicked", fields=["model"], bind="legend")
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=180, symbolType="stroke", symbolOpacity=1)
    legend = legend if len(names) > 1 else None

    def by_model(channel, values):
        return channel("model:N", scale=alt.Scale(domain=names, range=values), legend=legend)

    color = by_model(alt.Color, [colors[place % len(colors)] for place in range(len(names))])
    dash = by_model(alt.StrokeDash, [DASHES[place // len(colors) % len(DASHES)] for place in range(len(names))])
    x = alt.X(
        "epoch:Q",
        scale=alt.Scale(zero=False, nice=False),
        axis=alt.Axis(title="epoch", values=ticks, format="d", grid=False),
    )
    layers = []
    for value, shade, title in (("value", 0.35, "value"), ("mean(value)", 1.0, "mean" if several_seeds else "value")):
        if value == "value" and not several_seeds:
            continue
        y = alt.Y(f"{value}:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title=None, tickCount=5))
        line = alt.Chart().mark_line(strokeWidth=2 if shade == 1.0 else 1, point=alt.OverlayMarkDef(size=20 * shade))
        opacity = alt.when(clicked).then(alt.value(shade)).otherwise(alt.value(0.08))
        tooltip = [alt.Tooltip("model:N"), alt.Tooltip("epoch:Q"), alt.Tooltip(f"{value}:Q", title=title, format=".4g")]
        layers.append(line.encode(x, y, color, dash, opacity=opacity, tooltip=tooltip))
        if value == "value":
            layers[0] = layers[0].encode(detail="seed:N")
    layers[-1] = layers[-1].add_params(clicked)
    return (
        alt.layer(*layers, data=alt.NamedData("points"))
        .properties(width="container", height=180)
        .to_dict(validate=False)
    )


def alignment_spec(alignments):
    """Return the chart of alignments of sentences, one of which is chosen."""
    require_altair()
    chart, datasets = alignment_chart([dataclasses.asdict(alignment) for alignment in alignments])
    return chart.to_dict(validate=False) | {"datasets": datasets}


def region_spec(alignments):
    """Return the chart of alignments of images, one of which is chosen: the words, one of which is clicked, above the
    image, clear in the regions that the word looks at and in a fog elsewhere; boxes that overlap are frames instead."""
    require_altair()
    import altair as alt

    panels = list(dict.fromkeys(panel for alignment in alignments for panel in alignment.weights))
    across = min(3, max(len(alignment.weights) for alignment in alignments))
    line_width = (IMAGE_SIDE + 20) * across - 20
    numbers = ["weight", "spread"] if any(alignment.spread for alignment in alignments) else ["weight"]
    clicked = alt.selection_point(
        name="word", fields=["place"], value=[{"place": 0}], on="click", toggle=False, clear=False
    )
    of_picture = "datum.picture === picture"
    nats = [nats for alignment in alignments for nats in alignment.unsure or ()]
    words = _word_chart(line_width, nats, clicked).transform_filter(of_picture)
    maps = (
        _region_chart(max(alignment.size[1] for alignment in alignments), numbers)
        .facet(alt.Facet("panel:N", title=None, sort=panels), columns=across)
        .transform_filter(of_picture)
        .transform_filter(clicked)
        .transform_lookup("picture", alt.LookupData(alt.NamedData("images"), "picture", ["image", "width", "height"]))
    )
    chart = alt.vconcat(words, maps).add_params(chooser("picture", [alignment.title for alignment in alignments]))
    chart = chart.properties(autosize=alt.AutoSizeParams(type="pad", resize=True))
    images = [
        {"picture": alignment.title, "image": alignment.image, "width": alignment.size[0], "height": alignment.size[1]}
        for alignment in alignments
    ]
    return chart.to_dict(validate=False) | {
        "datasets": {
            "images": images,
            "words": [row for alignment in alignments for row in _words(alignment, line_width)],
            "looks": [row for alignment in alignments for row in _looks(alignment, numbers)],
        }
    }


def _word_chart(line_width, nats, clicked):
    """Return the chart of `_words`; the frame of a word is the stronger, the larger its share of the largest nats."""
    import altair as alt

    x = alt.X("x:Q", scale=alt.Scale(domain=[0, line_width], range=[0, line_width]), axis=None)
    words = alt.Chart().encode(x, alt.Y("line:O", axis=None))
    tooltip = [alt.Tooltip("word:N")]
    if nats:
        tooltip.append(alt.Tooltip("unsure:Q", format=".3g", title="unsure (nats)"))
    frame = {"fill": COLORS[4], "stroke": COLORS[1], "strokeWidth": 2, "cornerRadius": 4}
    boxes = words.mark_rect(**frame, cursor="pointer").encode(
        alt.X2("x2:Q"),
        alt.StrokeOpacity("unsure:Q", scale=alt.Scale(domain=[0, max([1e-9, *nats])], range=[0, 1]), legend=None),
        fillOpacity=alt.when(clicked).then(alt.value(0.6)).otherwise(alt.value(0.12)),
        tooltip=tooltip,
    )
    texts = words.mark_text(align="left", dx=6, fontSize=13, fill=INK, cursor="pointer").encode(text="word:N")
    layers = boxes.add_params(clicked), texts
    return alt.layer(*layers, data=alt.NamedData("words")).properties(width=line_width, height=alt.Step(28))


def _region_chart(height, numbers):
    """Return the chart of `_looks`: an image and its regions, with these numbers of a region under the pointer."""
    import altair as alt

    # Altair asks the first layer for a name.
    image = alt.Chart(name="image").mark_image(
        aspect=False, align="left", baseline="top", width=alt.expr("datum.width"), height=alt.expr("datum.height")
    )
    image = image.encode(url="image:N", x=alt.value(0), y=alt.value(0))
    titles = {"weight": "weight", "spread": "standard deviation"}
    regions = alt.Chart().transform_flatten(["x", "x2", "y", "y2", "share", *numbers])
    regions = regions.encode(
        alt.X("x:Q", scale=alt.Scale(domain=[0, IMAGE_SIDE], range=[0, IMAGE_SIDE]), axis=None),
        alt.Y("y:Q", scale=alt.Scale(domain=[0, height], range=[0, height]), axis=None),
        alt.X2("x2:Q"),
        alt.Y2("y2:Q"),
        tooltip=[alt.Tooltip(f"{name}:Q", format=".3f", title=titles[name]) for name in numbers],
    )
    share = lambda **options: {"shorthand": "share:Q", "scale": alt.Scale(**options), "legend": None}  # noqa: E731
    fog = regions.transform_filter("datum.tiled").mark_rect(fill=_FOG)
    fog = fog.encode(alt.Opacity(**share(type="sqrt", domain=[0, 1], range=[0.8, 0])))
    frames = regions.transform_filter("!datum.tiled").mark_rect(fill="transparent", stroke=COLORS[4])
    frames = frames.encode(
        alt.StrokeOpacity(**share(domain=[0, 1], range=[0, 1])), alt.StrokeWidth(**share(domain=[0, 1], range=[0, 5]))
    )
    chart = alt.layer(image, fog, frames, data=alt.NamedData("looks"))
    return chart.properties(width=IMAGE_SIDE, height=height)


def _words(alignment, line_width):
    """Return the words of an alignment, each with its place on lines of that many pixels."""
    rows, x, line = [], 0, 0
    unsure = len(alignment.target) * [0.0] if alignment.unsure is None else alignment.unsure
    for place, (token, nats) in enumerate(zip(alignment.target, unsure, strict=True)):
        word = visible(token, longest=line_width // 8 - 3, spaces=False)
        width = 8 * text_width(word) + 12
        if x + width > line_width and x:
            x, line = 0, line + 1
        row = {"picture": alignment.title, "place": place, "word": word, "unsure": nats}
        rows.append(row | {"line": line, "x": x, "x2": min(x + width, line_width)})
        x += width + 6
    return rows


def _looks(alignment, numbers):
    """Return a row for each word of each panel, with the regions and their weights as lists."""
    boxes, (width, height) = np.asarray(alignment.boxes, "float64"), alignment.size
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    corners = np.round(boxes * [width, height, width, height]).astype(int)[areas > 0]
    corners = dict(zip(("x", "y", "x2", "y2"), corners.T.tolist(), strict=True))
    tiled, rows = bool(abs(areas.sum() - 1.0) < 0.01), []
    for panel, weights in alignment.weights.items():
        weights = np.asarray(weights, "float64")[:, areas > 0]
        spread = alignment.spread.get(panel)
        spread = None if spread is None else np.round(np.asarray(spread, "float64")[:, areas > 0], 4)
        # As in `keras_vattn.plots.image_attention` the fog lifts wholly where the weight is largest of the panel.
        shares = np.round(weights / max(weights.max(initial=0.0), 1e-9), 3)
        for place in range(len(weights)):
            row = {"picture": alignment.title, "panel": panel, "place": place, "tiled": tiled, **corners}
            row |= {"share": shares[place].tolist(), "weight": np.round(weights[place], 4).tolist()}
            if "spread" in numbers:
                row["spread"] = len(weights[place]) * [None] if spread is None else spread[place].tolist()
            rows.append(row)
    return rows
