from faults.fault import Fault

PAGE = "applications/common/page.py"
CHARTS = "applications/common/page_charts.py"
SHOWN = "applications/common/shown.py"
CLICKED = "plots/interactive_alignment.py"
OF_PAGES = ("tests/applications/common/test_page.py",)
OF_CHARTS = ("tests/plots/test_interactive_alignment.py",)

FAULTS = [
    Fault("pages: what is shown is markup", PAGE, "autoescape=True", "autoescape=False", OF_PAGES, "is_text"),
    Fault(
        "pages: a larger page is written all the same",
        PAGE,
        "if len(text.encode()) <= MOST_BYTES:",
        "if True:",
        OF_PAGES,
        "as_small",
    ),
    Fault(
        "pages: the policy has the digest of another script",
        PAGE,
        "hashlib.sha256(script.encode())",
        "hashlib.sha256(script.strip().encode())",
        OF_PAGES,
        "is_text",
    ),
    Fault(
        "pages: a curve of values that are none",
        CHARTS,
        "if np.isfinite(value)]",
        "]",
        OF_PAGES,
        "test_curves",
    ),
    Fault(
        "pages: regions are as padding lies",
        CHARTS,
        '        weights = np.asarray(weights, "float64")[:, areas > 0]\n',
        '        weights = np.asarray(weights, "float64")[:, : (areas > 0).sum()][:, ::-1]\n',
        OF_PAGES,
        "are_chosen",
    ),
    Fault(
        "pages: boxes that overlap lie in a fog",
        CHARTS,
        "bool(abs(areas.sum() - 1.0) < 0.01)",
        "True",
        OF_PAGES,
        "are_chosen",
    ),
    Fault(
        "pages: a sample that models share is shown once for each",
        SHOWN,
        "lines.setdefault(repr(line), (line, []))",
        "lines.setdefault(repr((name, line)), (line, []))",
        OF_PAGES,
        "beside_each_other",
    ),
    Fault(
        "pages: sentences that differ are drawn as one",
        SHOWN,
        "repr((own.title, own.source, own.target, own.boxes if own.image else None))",
        "repr((own.title, own.source))",
        OF_PAGES,
        "beside_each_other",
    ),
    Fault(
        "charts: the standard deviations of the first head are those of all",
        CLICKED,
        'np.asarray(spread, "float64")[place][token]',
        'np.asarray(spread, "float64")[(0,) * len(place)][-1]',
        OF_CHARTS,
        "its_deviation",
    ),
    Fault(
        "charts: layers and heads are mixed up",
        CLICKED,
        'zip(("head", "layer"), place[::-1])',
        'zip(("head", "layer"), place)',
        OF_CHARTS,
        "are_chosen",
    ),
    Fault(
        "charts: equal words are one column",
        "plots/chart.py",
        'f"{place:03d} {word}"',
        'f"000 {word}"',
        OF_CHARTS,
        "its_deviation",
    ),
    Fault(
        "charts: a word ends the script around it",
        "plots/chart.py",
        '.replace("<", "<\\N{WORD JOINER}")',
        "",
        OF_CHARTS,
        "end_the_script",
    ),
]
