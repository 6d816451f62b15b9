"""Encoders, fitted once a file."""

import pytest
from subword_cases import CORPUS, SEGMENTED

from applications.nmt import subwords


@pytest.fixture(scope="module")
def subword_encoder():
    return subwords.SubwordEncoder.fit(CORPUS, 110)


@pytest.fixture(scope="module")
def word_encoder():
    return subwords.WordEncoder.fit(SEGMENTED, 20)


@pytest.fixture(params=["subword_encoder", "word_encoder"])
def encoder(request):
    return request.getfixturevalue(request.param)
