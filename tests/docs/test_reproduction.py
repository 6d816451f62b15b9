"""docs/reproduction.md is what its claims and the runs' results say."""

import numpy as np
import pytest
import scipy.stats
import yaml

from tools import reproduction

CLAIMS = yaml.safe_load((reproduction.ROOT / "docs" / "claims.yaml").read_text(encoding="utf-8"))


def test_the_page_is_made_of_the_results():
    assert (reproduction.ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8") == reproduction.page(CLAIMS)


def test_every_claim_can_be_decided_or_says_why_not():
    for group in CLAIMS["groups"]:
        path = "results" in group and reproduction.results_file(group["results"])
        runs = reproduction.read_results(path)["runs"] if path and path.exists() else None
        for claim in group["claims"]:
            place = f"{group['paper']}, {claim['place']}: {claim['claim']}"
            assert claim["theirs"], place
            assert claim["why"] or runs is None, f"{place} has no reason"
            if path:
                assert group["results"] in CLAIMS["results"] and claim["figure"] in CLAIMS["figures"], place
            if runs is not None:
                verdict, ours = reproduction.verdict_of(claim | CLAIMS["figures"][claim["figure"]], runs)
                assert verdict != "not tried" and ours and "nan" not in ours.lower(), place


@pytest.mark.parametrize(
    "values, others, by, verdict",
    [
        ([1.2, 1.3, 1.1], [1.0, 1.05, 0.95], 0.0, "holds"),
        ([1.0, 1.05, 0.95], [1.2, 1.3, 1.1], 0.0, "does not"),
        ([1.2, 1.0, 1.1], [1.0, 1.1, 1.1], 0.0, "not decided"),
        ([1.0, 1.05, 0.95], [1.2, 1.3, 1.1], -0.5, "holds"),
        ([1.2, 1.3], [1.0, 1.05], 0.0, "not decided"),
    ],
)
@pytest.mark.parametrize("logarithm", [False, True])
def test_a_verdict(values, others, by, verdict, logarithm):
    """By Student's interval of paired differences; under three seeds nothing is decided."""
    runs = {"a": [{"x": {"y": value}} for value in values], "b": [{"x": {"z": other}} for other in others]}
    claim = {"more": "a", "than": "b", "of": "x.y", "against": "x.z", "by": by, "logarithm": logarithm, "unit": "nats"}
    found, text = reproduction.verdict_of(claim, runs)
    difference = np.subtract(*(np.log(row) if logarithm else row for row in (values, others)))
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, difference.mean(), scipy.stats.sem(difference))
    assert found == verdict
    expected = f"{difference.mean():.3f} [{low:.3f}, {high:.3f}] nats"
    assert text == (f"log {expected}" if logarithm else expected)
    assert reproduction.verdict_of(claim, None) == ("not tried", "")
    alone = {"more": "a", "of": "x.y", "by": 0.5}
    assert reproduction.verdict_of(alone, runs)[0] == ("holds" if len(values) > 2 else "not decided")
