"""Tests the table of docs/exports.md: which formats return the outputs of a layer in Keras."""

import pathlib
import re

import pytest
from exports import rows_of_each_layer, table_row

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "exports.md").read_text("utf-8")


def test_each_layer_has_a_row():
    assert re.findall(r"(?m)^\| `(\w+)` \|", PAGE) == sorted(rows_of_each_layer())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # from TensorFlow's interpreter and tf2onnx
@pytest.mark.parametrize("name", ["Attention", "AttentionDecoder", "MultiHeadAttention"])
def test_the_outputs_of_a_layer(name):
    assert table_row(name, rows_of_each_layer()[name]) in PAGE.splitlines()
