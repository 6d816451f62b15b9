"""Tests the published values that tables show next to ours."""

import pathlib

import pytest
import yaml

from applications.captioning.model import MODELS as CAPTIONING
from applications.common import papers
from applications.finetuning.model import MODELS as FINETUNING
from applications.graphs.model import MODELS as GRAPHS
from applications.nmt.model import MODELS as NMT
from applications.ved.model import MODELS as VED
from applications.vqa.model import MODELS as VQA
from applications.vrae.model import MODELS as VRAE

TABLES = yaml.safe_load(pathlib.Path(papers.__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
KNOWN = {**CAPTIONING, **FINETUNING, **GRAPHS, **NMT, **VED, **VQA, **VRAE}


def test_published_values_have_the_printed_digits():
    assert papers.published_figure("deng_1", "variational_enum", "BLEU") == "33.10"
    assert papers.published_figure("bahuleyan_2_map", "ved_dattn@ved:epochs=3", "BLEU-4") == "4.16"
    # The paper has no model with this start, so the value of the model without a start is used.
    assert papers.published_figure("bahuleyan_2_map", "ved_dattn@ded", "BLEU-4") == "5.02"
    assert (
        papers.published_figure("bahuleyan_2_map", "ved_wc", "BLEU-4")
        == papers.published_figure("fan_4", "wc", "PPL")
        == "-"
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_line_is_a_model_with_a_value_for_every_heading(name):
    lines = {key: line for key, line in TABLES[name].items() if key not in ("of", "heads")}
    assert {model for key in lines for model in key.partition(":")[0].split("@")} <= KNOWN.keys()
    assert {len(line) for line in lines.values()} == {len(TABLES[name]["heads"])}
