"""Provide the theme, token labels and drop-down lists that the interactive Altair charts share."""

from keras_vattn.plots.text import visible

INK = "currentColor"
_QUIET = {f"{part}Color": INK for part in ("label", "title", "tick", "domain", "grid")}
CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "text": {"fill": INK},
    "title": {"color": INK, "subtitleColor": INK, "anchor": "start", "fontSize": 13},
    "axis": {**_QUIET, "gridOpacity": 0.12, "domainOpacity": 0.4, "tickOpacity": 0.4, "titleFontWeight": "normal"},
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12},
    "legend": {"labelColor": INK, "titleColor": INK, "titleFontWeight": "normal", "symbolBaseFillColor": INK},
}


def require_altair():
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise ImportError('Interactive charts need Altair and vl-convert: pip install "keras_vattn[plots]"') from error


def styled(chart):
    """Return an Altair chart with the theme `CONFIG`."""
    # A canvas would keep its colours when the page switches from light to dark.
    return chart.properties(usermeta={"embedOptions": {"renderer": "svg"}}).configure(**CONFIG)


def number_tokens(tokens):
    """Return tokens with positions as prefixes. Altair would merge and sort tokens without a prefix."""
    # Without the word joiner, a token `</script>` would end the script of the page.
    words = [visible(token).replace("<", "<\N{WORD JOINER}") for token in tokens]
    return [f"{position:05d} {word}" for position, word in enumerate(words)]


# The Vega expression removes the position.
WITHOUT_NUMBER = "substring(datum.value, 6)"


def selector(name, values):
    """Return a chart parameter with a drop-down list of values."""
    import altair as alt

    return alt.param(name, value=values[0], bind=alt.binding_select(options=values, name=f"{name} "))
