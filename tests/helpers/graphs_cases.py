"""Graphs and runs of the classification of nodes for its tests."""

from application_cases import changed, prepared_anywhere
from program_case import written
from program_cases import GRAPHS_CASE

from applications.graphs.options import PROGRAM

APPLICATION = PROGRAM.application()


def options_of(folder, **values):
    """Options of `train` with the graph of the program's case, written into a folder, all of it in a step."""
    options = {**GRAPHS_CASE.options, **written(GRAPHS_CASE.data, folder), "neighbors": (), **values}
    return changed(APPLICATION.program.default, **options)


def run_of(folder, **values):
    """A run whose model is not trained, with weights that make every part matter."""
    return prepared_anywhere(APPLICATION, options_of(folder, **values))
