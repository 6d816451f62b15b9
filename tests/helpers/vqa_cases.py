"""Options and runs of question answering for its tests: images of a coloured quarter, and questions about them."""

from application_cases import changed, prepared
from program_case import written
from program_cases import VQA_CASE

from applications.vqa.options import PROGRAM

APPLICATION = PROGRAM.application()


def options_of(folder, **values):
    """Options of `train` with the data of the program's case, written into a folder."""
    options = {**VQA_CASE.options, **written(VQA_CASE.data, folder), **values}
    return changed(PROGRAM.default, **options)


def run_of(folder, **values):
    """A run whose model is not trained."""
    return prepared(APPLICATION, options_of(folder, **values))
