"""Returns the options of the presets `paper`, and compiles models as the command `train` does."""

from applications.common.application import Run
from applications.common.option_values import with_values
from applications.common.training import optimizer_of


def paper_options(program, **values):
    """Return a program's options with its preset `paper`; `values` override the preset."""
    return with_values(program.default, program.preset_values("paper") | values)


def compiled(options, models, **objective):
    """Compile `models.training` as `options` describe, with a loss and metrics; return a `Run` without data."""
    run = Run(None, options, {}, None, models)
    optimizer = optimizer_of(options.fit, num_batches=1000, num_steps=1000)
    models.training.compile(optimizer, jit_compile=options.fit.jit_compile, **objective)
    return run
