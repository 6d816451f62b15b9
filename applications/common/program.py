"""What is known of a program before TensorFlow is loaded: its commands, their options, its presets."""

import dataclasses
import importlib
import importlib.util
import pathlib

from applications.common.errors import InputError
from applications.common.options import check, read_values, typed, values_of, with_values
from applications.common.runs import RunFolder

# What a resumed run may change: it names no property of the model or its data.
MAY_CHANGE = ("out", "export", "epochs", "max_steps", "early_stopping", "checkpoint_steps", "memory_growth")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, `python -m NAME COMMAND`.

    Attributes:
        name: Package of the program, for instance "applications.ved". Its module `application` has the
            `APPLICATION`; YAML files in its folder presets/ are the presets of `train`.
        commands: Dictionary from "train", "evaluate", "generate" or "predict", "compare", "export" to the class of its
            options; those of `train` have `model` and the groups `run` (`RunOptions`) and `fit` (`FitOptions`).
        may_change: Options of `train` that a resumed run may change, beside those of every program.
        renamed: Dictionary from an option that there was to what is written in its place.
    """

    name: str
    commands: dict
    may_change: tuple = ()
    renamed: dict = dataclasses.field(default_factory=dict)

    @property
    def options(self):
        """The class of the options of `train`."""
        return self.commands["train"]

    @property
    def default(self):
        """The options of `train` where nothing is asked for."""
        return self.options()

    @property
    def changeable(self):
        """Names of all options that a resumed run may change."""
        return (*MAY_CHANGE, *self.may_change)

    @property
    def presets(self):
        """Dictionary from the names of the presets to their files; "small" are the defaults, and has none."""
        folder = pathlib.Path(next(iter(importlib.util.find_spec(self.name).submodule_search_locations)))
        return {"small": None} | {path.stem: path for path in sorted(folder.glob("presets/*.yaml"))}

    def application(self):
        """Import the program's `Application`, and TensorFlow with it."""
        return importlib.import_module(f"{self.name}.application").APPLICATION

    def preset_values(self, name):
        """Return the values of a preset, a flat dictionary; `InputError` lists the known ones."""
        presets = self.presets
        if name not in presets:
            raise InputError(f"--preset: expected one of {', '.join(presets)}. Received: {name}")
        return {} if presets[name] is None else read_values("--preset", presets[name], self.options)

    def options_of(self, folder):
        """Return the options of a run; `InputError` if its config.yaml does not hold them."""
        place = f"{folder.path / 'config.yaml'} does not hold the options of train"
        return with_values(self.default, typed(place, folder.config, self.options, self.renamed))

    def check_train(self, options):
        """Raise `InputError` for options of `train` that are wrong, or do not fit what is in the run's folder."""
        check(options)
        stored = None
        if not options.run.overwrite:
            stored = RunFolder.check(options.run.out, config_of(options), options.run.resume, self.changeable)
        done = 0 if stored is None else RunFolder(options.run.out, stored).num_epochs()
        if options.fit.epochs < done:
            raise InputError(f"--epochs: the run has {done} epochs already. Received: {options.fit.epochs}")


def config_of(options):
    """Return what config.yaml has of the options of `train`: all but what concerns a single call."""
    return {name: value for name, value in values_of(options).items() if name not in ("resume", "overwrite")}
