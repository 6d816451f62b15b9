"""Provides one trained run for the tests of this program."""

import pathlib

import pytest
from program_case import execution
from ved_cases import small_options

from applications.ved.train import train


@pytest.fixture(scope="session")
def trained(once_per_session, tmp_path_factory):
    """Return the folder of a finished run of ved_vattn_mean."""

    def make():
        options = small_options(tmp_path_factory.mktemp("ved"))
        options.run.export = False
        with execution(eager=True):
            train(options)
        return options.run.out

    return pathlib.Path(once_per_session("ved-small", make))
