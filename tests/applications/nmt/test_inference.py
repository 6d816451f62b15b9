"""Tests the parsing of inference names."""

import pytest

from applications.common.errors import InputError
from applications.nmt.inference import Inference


@pytest.mark.parametrize(
    "name, kind, count, perplexity",
    [
        ("exact", "exact", None, "exact"),
        ("soft", "soft", None, "plug-in"),
        ("kmax:5", "kmax", 5, "K-max 5"),
        ("sample:12", "sample", 12, "predictive(12)"),
    ],
)
def test_inferences(name, kind, count, perplexity):
    inference = Inference.parse(name)
    assert inference == Inference(kind, count)
    assert inference.perplexity == perplexity
    objective = inference.objective()
    assert (objective.top_k if kind == "kmax" else objective.num_samples if kind == "sample" else None) == count


@pytest.mark.parametrize("name", ["", "exactly", "kmax", "kmax:0", "kmax:-1", "sample:1.5", "soft:3", "exact "])
def test_invalid_names(name):
    with pytest.raises(InputError, match=r"^--inference: expected exact, kmax:K, soft or sample:n\. Received: "):
        Inference.parse(name)


def test_continuous_alignments_are_not_summed_over():
    for name in ("exact", "kmax:3"):
        with pytest.raises(InputError, match=r"^--inference: the alignments of this model are continuous; .*" + name):
            Inference.parse(name, continuous=True)
    assert Inference.parse("sample:3", continuous=True).kind == "sample"
