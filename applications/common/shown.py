"""Stores the examples that report.html displays: text samples and attention weights."""

import dataclasses

import numpy as np

SHOWN = "shown.json"
_MOST_SAMPLES = 100


@dataclasses.dataclass
class Alignment:
    """Attention weights over a sentence, or over the neighbours of a node.

    Attributes:
        title: Title of the example in the drop-down list of plots.
        target: T output words, the rows of the plot.
        weights: Dictionary that maps the title of a panel to weights (T, S), (heads, T, S) or (layers, heads, T, S).
        spread: Dictionary that maps the title of a panel to the standard deviations of sampled weights.
        source: S input words, the columns of the plot.
    """

    title: str
    target: list
    weights: dict
    spread: dict = dataclasses.field(default_factory=dict)
    source: list = ()


@dataclasses.dataclass
class Shown:
    """Examples that a report displays, from one data split.

    Attributes:
        samples: List of samples. A sample is a list of lines (label, text). To show the uncertainty of each word, a
            text is a list of (word, nats). If the right answer is known, the last line is a `verdict`.
        alignments: List of `Alignment`.
    """

    samples: list = dataclasses.field(default_factory=list)
    alignments: list = dataclasses.field(default_factory=list)

    def record(self):
        """Return the content of shown.json: up to 100 random samples, and rounded alignments."""
        samples = [self.samples[row] for row in random_rows(len(self.samples), _MOST_SAMPLES)]
        alignments = [dataclasses.asdict(alignment) for alignment in self.alignments]
        return {"samples": samples, "alignments": _rounded(alignments)}

    @classmethod
    def of(cls, record):
        """Return the `Shown` in shown.json, without alignments that have no source (older versions)."""
        names = [field.name for field in dataclasses.fields(Alignment)]
        alignments = [Alignment(*map(each.get, names)) for each in record["alignments"] if each["source"] is not None]
        return cls([[tuple(line) for line in sample] for sample in record["samples"]], alignments)


def verdict(fault):
    """Return a (label, text) line. `fault` is the mistake of a sample, or "" if the sample is right."""
    return "judged", f"wrong: {fault}" if fault else "right"


def _rounded(value):
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return np.round(value.astype("float64"), 4).tolist()
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(float(value), 4) if isinstance(value, float | np.floating) else value


def random_rows(count, maximum):
    """Return up to `maximum` random indices below `count`, sorted. The seed is fixed."""
    return np.sort(np.random.default_rng(0).permutation(count)[:maximum])


def sample_lines(samples, maximum):
    """Return up to `maximum` random samples as lines for report.txt, and a blank line."""
    rows = random_rows(len(samples), maximum)
    return [*("; ".join(f"{label}: {text}" for label, text in samples[row]) for row in rows), ""]


def evenly(count, maximum):
    """Return up to `maximum` evenly spaced indices below `count`."""
    return np.unique(np.linspace(0, count - 1, min(maximum, count)).astype(int))


def joined(shown_by_model):
    """Merge the `Shown` of several models, given as a dictionary, into one `Shown`.
    Samples with the same first line (the source) are merged. Alignments of the same sentence share a plot."""
    samples, alignments = {}, {}
    for name, shown in shown_by_model.items():
        for place, sample in enumerate(shown.samples):
            # If a source has several samples, merge the n-th sample of each model.
            num_before = sum(other[0] == sample[0] for other in shown.samples[:place])
            lines = samples.setdefault(repr((sample[0], num_before)), {})
            for line in sample:
                lines.setdefault(repr(line), (line, {}))[1][name] = None
        for alignment in shown.alignments:
            key = repr((alignment.title, alignment.source, alignment.target))
            merged, names = alignments.setdefault(key, (dataclasses.replace(alignment, weights={}, spread={}), []))
            names.append(name)
            merged.weights |= {f"{name}: {panel}" if panel else name: x for panel, x in alignment.weights.items()}
            merged.spread |= {f"{name}: {panel}" if panel else name: x for panel, x in alignment.spread.items()}
    for merged, names in alignments.values():
        if len(names) < len(shown_by_model):
            merged.title += f" ({', '.join(names)})"

    def label_of(label, names):
        # Lines that are the same for all models, such as the source, omit the names of the models.
        return label if len(names) == len(shown_by_model) else f"{', '.join(names)}: {label}"

    samples = [[(label_of(label, names), text) for (label, text), names in x.values()] for x in samples.values()]
    return Shown(samples, [merged for merged, _ in alignments.values()])
