"""Encoders, fitted once a file."""

import pytest
from subword_cases import CORPUS, SEGMENTED

from applications.nmt import subwords


@pytest.fixture(scope="module")
def subword_encoder():
    return subwords.SubwordEncoder.fit(CORPUS, 110)


@pytest.fixture(scope="module")
def segmented_encoder():
    return subwords.SegmentedEncoder.fit(SEGMENTED, 20)


@pytest.fixture(scope="module")
def character_encoder():
    return subwords.CharacterEncoder.fit(CORPUS, 100)


@pytest.fixture(params=["subword_encoder", "segmented_encoder", "character_encoder"])
def encoder(request):
    return request.getfixturevalue(request.param)
