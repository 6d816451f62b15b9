"""One trained run for the tests of the translation program, and encoders, fitted once a file."""

import pytest
from nmt_cases import arguments_of, call, small_options
from subword_cases import CORPUS, SEGMENTED

from applications.nmt import subwords


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of two epochs of a row with an inference network."""
    folder = tmp_path_factory.mktemp("nmt")
    options = small_options(folder, row="variational_enum", epochs=2)
    status, out, err = call(*arguments_of(options))
    assert status == 0, err
    return options, out


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
