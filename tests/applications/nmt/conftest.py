"""One trained run for the tests of the translation program."""

import pytest
from nmt_cases import arguments_of, call, small_options


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of two epochs of a row with an inference network."""
    folder = tmp_path_factory.mktemp("nmt")
    options = small_options(folder, row="variational_enum", epochs=2)
    status, out, err = call(*arguments_of(options))
    assert status == 0, err
    return options, out
