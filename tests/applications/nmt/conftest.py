"""One trained run for the tests of the translation program, and encoders, fitted once a file."""

import pytest
from nmt_cases import small_options
from subword_cases import CORPUS, SEGMENTED

from applications.common.training import train
from applications.nmt import subwords
from applications.nmt.application import APPLICATION


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Options of a run of two epochs, of a model with an inference network."""
    options = small_options(tmp_path_factory.mktemp("nmt"), model="variational_enum", epochs=2, export=False)
    train(APPLICATION, options)
    return options


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
