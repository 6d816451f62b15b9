"""Describes a program's commands, options and presets, without importing TensorFlow."""

import dataclasses
import importlib
import importlib.util
import os
import pathlib
import typing

from applications.common.application import Application
from applications.common.errors import InputError
from applications.common.option_values import check, read_values, typed, values_of, with_values
from applications.common.options import check_workers
from applications.common.runs import CHECKPOINT, RunFolder
from applications.common.writers import aside_of, require_aside_unused, require_unlocked, require_writable

# These options may change when a run is resumed, because they affect neither the model nor its data.
MAY_CHANGE = ("out", "export", "epochs", "max_steps", "early_stopping", "checkpoint_steps", "tensorboard", "jit")
MAY_CHANGE += ("strategy",)
# Options of earlier versions. `None`: the option is ignored. Otherwise: the only value that is accepted.
DROPPED = dict.fromkeys(("checkpoint_seconds", "continue_training", "max_uncertain", "picture_every", "stop_after"))
DROPPED |= dict.fromkeys(("data_seed", "entropy_weight", "extractor_epochs", "extractor_seed", "score", "split_seed"))
DROPPED |= {"decoder_form": "code", "labelled": False, "prior_concentration": 1.0, "prior_scale": "rate"}
DROPPED |= {"feature_units": None, "regions": "grid", "split_punctuation": True, "top_k": None, "weights": None}


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, called as `python -m NAME COMMAND`.

    Attributes:
        name: Package of the program, for instance "applications.ved". Its module `train` defines a function
            `train(options)`. Its other modules define the functions of `Application`. Its folder presets/ contains
            presets of `train`.
        commands: Dictionary {command: class of its options}. The commands are "train", "evaluate", "generate" or
            "predict", "compare", and "export". The options of `train` include `model` and the groups `run`
            (`RunOptions`) and `fit` (`FitOptions`). A program may add a command NAME. The command calls the function
            NAME in the module NAME, with the options as the argument.
        may_change: Names of additional options of `train` that may change when a run is resumed.
        codec_options: Names of options that the codec depends on. With --start-from, both runs must have the same
            values. If the default of an option depends on the data, `options.resolved` contains the actual value.
        old_models: Dictionary {name of a model in earlier versions: options that replace this model}.
    """

    name: str
    commands: dict
    may_change: tuple = ()
    codec_options: tuple = ()
    old_models: dict = dataclasses.field(default_factory=dict)

    @property
    def options(self):
        """The options class of the command `train`."""
        return self.commands["train"]

    @property
    def default(self):
        """The default options of `train`."""
        return self.options()

    @property
    def models(self):
        """Names of the models that `train` accepts."""
        return typing.get_args(typing.get_type_hints(self.options)["model"])

    @property
    def changeable(self):
        """Names of all options that may change when a run is resumed."""
        return (*MAY_CHANGE, *self.may_change, *self._dropped)

    @property
    def _dropped(self):
        return DROPPED.keys() - values_of(self.default).keys()

    @property
    def presets(self):
        """Dictionary {preset: path of its file}. "small" has the default options and the path `None`."""
        package = importlib.util.find_spec(self.name)
        if package is None:
            raise TypeError(f"Program({self.name!r}): no such package. Pass the import path of the program's package.")
        folder = pathlib.Path(next(iter(package.submodule_search_locations)))
        return {"small": None} | {path.stem: path for path in sorted(folder.glob("presets/*.yaml"))}

    def application(self):
        """Import TensorFlow, and return the `Application` of the program."""
        return Application.of(self)

    def function(self, command):
        """Return the function of `train`, or of a command that only this program defines."""
        name = command.replace("-", "_")
        return getattr(importlib.import_module(f"{self.name}.{name}"), name)

    def preset_values(self, name):
        """Return the options that a preset sets, as a flat dictionary."""
        presets = self.presets
        if name not in presets:
            raise InputError(f"--preset: expected one of {', '.join(presets)}. Received: {name}")
        return {} if presets[name] is None else read_values("--preset", presets[name], self.options)

    def options_of(self, folder):
        """Read a run's options from its config.yaml. Files that the options name need not exist."""
        options = self._typed_options(folder)
        try:
            check(options, files=False)
        except InputError as error:
            raise InputError(f"{folder.path / 'config.yaml'}: {error}") from error
        return options

    def updated(self, config):
        """Add missing options to a config.yaml of an earlier version, and replace old model names."""
        return config_of(self.default) | config | self.old_models.get(config.get("model"), {})

    def _typed_options(self, folder):
        place, config = f"{folder.path / 'config.yaml'}", dict(folder.config)
        for name in config.keys() & self._dropped:
            value = config.pop(name)
            if DROPPED[name] not in (None, value):
                raise InputError(f"{place}: this version has no option {name}. Received: {value}")
        config |= self.old_models.get(config.get("model"), {})
        if config.keys() - config_of(self.default).keys():
            place += f" (is it a run of {self.name}?)"
        return with_values(self.default, typed(place, config, self.options))

    def check_train(self, options):
        """Raise `InputError` if options of `train` are invalid.
        Also raise it if the options contradict the run in the folder --out."""
        check(options)
        run, stored = options.run, None
        is_shared = options.fit.strategy == "multi_worker"
        if is_shared:
            check_workers(os.environ.get("TF_CONFIG"))
        else:
            # With several workers, another worker may have locked the folder already.
            require_unlocked(run.out)
        if run.overwrite:
            self._check_overwrite(run)
        else:
            stored = RunFolder.check(run.out, config_of(options), run.resume, self.changeable, self.updated)
        if not is_shared:
            require_writable("--out", run.out)
        folder = None if stored is None else RunFolder(run.out, stored)
        done = 0 if folder is None else folder.num_epochs()
        if options.fit.epochs < done:
            raise InputError(f"--epochs: must be at least {done} to resume this run. Received: {options.fit.epochs}")
        # A run with a saved state no longer reads the run that --start-from names.
        if run.start_from is not None and (folder is None or not (folder.path / CHECKPOINT).exists()):
            self._check_start(options)

    def _check_overwrite(self, run):
        """Raise `InputError` if the folder contains anything except a run of this program."""
        out = pathlib.Path(run.out)
        if out.is_symlink():
            raise InputError(f"--overwrite: {out} is a link; name its target instead.")
        if not out.exists() or (out.is_dir() and not any(out.iterdir())):
            return
        if "model" not in RunFolder.load(out).config:
            raise InputError(f"--overwrite: {out} does not contain a run of this program; choose another folder.")
        self._typed_options(RunFolder.load(out))
        require_aside_unused(out)

    def _check_start(self, options):
        """Raise `InputError` if the run of --start-from is unfinished, or has another codec or schedule."""
        start = RunFolder.load(options.run.start_from)
        old_options = self.options_of(start)
        old, new = (values_of(each) | getattr(each, "resolved", {}) for each in (old_options, options))
        scheduled = [name for name in values_of(options.fit) if name not in self.changeable]
        differing = [name for name in (*self.codec_options, *scheduled) if old[name] != new[name]]
        if differing:
            raise InputError(f"--start-from: {start.path} was trained with different values of {', '.join(differing)}.")
        if not start.is_finished(old["epochs"]) or not (start.path / CHECKPOINT).exists():
            raise InputError(
                f"--start-from: {start.path} has not finished training, or has no {CHECKPOINT}. Resume that run."
            )
        if options.fit.epochs <= start.num_epochs():
            raise InputError(
                f"--epochs: must exceed the {start.num_epochs()} epochs for which {start.path} was trained. "
                f"Received: {options.fit.epochs}"
            )
        out = pathlib.Path(options.run.out)
        deleted = [aside_of(out), out] if options.run.overwrite else [aside_of(out)]
        if any(start.path.resolve().is_relative_to(folder.resolve()) for folder in deleted):
            raise InputError(f"--start-from: --overwrite would delete {start.path}; rename that folder.")


def config_of(options):
    """Return the dictionary to store in config.yaml: the options except `resume` and `overwrite`."""
    return {name: value for name, value in values_of(options).items() if name not in ("resume", "overwrite")}
