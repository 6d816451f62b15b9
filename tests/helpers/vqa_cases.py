"""Provides options and runs for the tests of question answering, with images that have one coloured quarter."""

from application_cases import changed, prepared
from program_case import written
from program_cases import VQA_CASE

from applications.vqa.options import PROGRAM

APPLICATION = PROGRAM.application()


def options_of(folder, **values):
    """Write the data of the program's case to a folder, and return options of `train` for these data."""
    options = {**VQA_CASE.options, **written(VQA_CASE.data, folder), **values}
    return changed(PROGRAM.default, **options)


def run_of(folder, **values):
    """Return an untrained run."""
    return prepared(APPLICATION, options_of(folder, **values))
