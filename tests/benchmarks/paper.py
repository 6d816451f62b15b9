"""The programs' models with the sizes of their papers, compiled as in `train`."""

from applications.common.application import Run
from applications.common.option_values import with_values
from applications.common.training import optimizer_of


def paper_options(program, **values):
    """Return the options of the preset `paper`, with changed values."""
    return with_values(program.default, program.preset_values("paper") | values)


def compiled(options, models, **objective):
    """Compile models with a loss and metrics; return a run without data."""
    run = Run(None, options, {}, None, models)
    optimizer = optimizer_of(options.fit, num_batches=1000, num_steps=1000)
    models.training.compile(optimizer, jit_compile=options.fit.jit_compile, **objective)
    return run
