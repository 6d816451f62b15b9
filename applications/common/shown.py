"""The examples in report.html: samples to read, and interactive alignments."""

import dataclasses

import numpy as np

# The file in the folder of a run that stores them; `compare` reads it.
SHOWN = "shown.json"
_MOST_SAMPLES = 100


@dataclasses.dataclass
class Alignment:
    """Attention weights over a sentence, or over the neighbours of a node.

    Attributes:
        title: Title in the list of alignment plots.
        target: The T output words.
        weights: Dictionary from the names of panels to arrays (T, S), (heads, T, S) or (layers, heads, T, S).
        spread: Dictionary from the names of panels to standard deviations over draws.
        source: The S words of the source.
    """

    title: str
    target: list
    weights: dict
    spread: dict = dataclasses.field(default_factory=dict)
    source: list = ()


@dataclasses.dataclass
class Shown:
    """Examples from a split of the data.

    Attributes:
        samples: List of samples, each a list of (label, text). A text with uncertainties is a list of (word, nats). If
            a sample can be checked, its last line is a `verdict`.
        alignments: List of `Alignment`.
    """

    samples: list = dataclasses.field(default_factory=list)
    alignments: list = dataclasses.field(default_factory=list)

    def record(self):
        """Return the content of shown.json: plain values, rounded, with at most 100 random samples."""
        samples = [self.samples[row] for row in random_rows(len(self.samples), _MOST_SAMPLES)]
        alignments = [dataclasses.asdict(alignment) for alignment in self.alignments]
        return {"samples": samples, "alignments": _rounded(alignments)}

    @classmethod
    def of(cls, record):
        """Return the `Shown` of a `record`; alignments of images in older records, without a source, are skipped."""
        names = [field.name for field in dataclasses.fields(Alignment)]
        alignments = [Alignment(*map(each.get, names)) for each in record["alignments"] if each["source"] is not None]
        return cls([[tuple(line) for line in sample] for sample in record["samples"]], alignments)


def verdict(fault):
    """Return the last line of a sample that can be checked. `fault` describes the mistake; "" for a right sample."""
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
    """Return the indices of up to `maximum` random rows out of `count`, sorted; the seed is fixed."""
    return np.sort(np.random.default_rng(0).permutation(count)[:maximum])


def sample_lines(samples, maximum):
    """Return up to `maximum` random samples as lines of report.txt, followed by a blank line."""
    rows = random_rows(len(samples), maximum)
    return [*("; ".join(f"{label}: {text}" for label, text in samples[row]) for row in rows), ""]


def evenly(count, maximum):
    """Return the indices of up to `maximum` evenly spaced rows out of `count`."""
    return np.unique(np.linspace(0, count - 1, min(maximum, count)).astype(int))


def joined(shown_by_model):
    """Return one `Shown` for several models, given as a dictionary from names. A sample has the lines of all models,
    and alignments of the same words are shown side by side."""
    samples, alignments = {}, {}
    for name, shown in shown_by_model.items():
        for place, sample in enumerate(shown.samples):
            # Several samples with the same source are matched by position.
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
        # A line that all models share, such as the source, keeps its label.
        return label if len(names) == len(shown_by_model) else f"{', '.join(names)}: {label}"

    samples = [[(label_of(label, names), text) for (label, text), names in x.values()] for x in samples.values()]
    return Shown(samples, [merged for merged, _ in alignments.values()])
