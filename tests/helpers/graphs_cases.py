"""Provides options and runs for the tests of node classification."""

from application_cases import changed, prepared_anywhere
from program_case import written
from program_cases import GRAPHS_CASE

from applications.graphs.options import PROGRAM

APPLICATION = PROGRAM.application()


def options_of(folder, **values):
    """Write the graph of the program's case to a folder, and return options of `train` with full-graph steps."""
    options = {**GRAPHS_CASE.options, **written(GRAPHS_CASE.data, folder), "neighbors": (), **values}
    return changed(APPLICATION.program.default, **options)


def run_of(folder, **values):
    """Return an untrained run with perturbed weights."""
    return prepared_anywhere(APPLICATION, options_of(folder, **values))
