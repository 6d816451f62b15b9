"""Run folders: what a training run writes, so that it survives a crash and can be resumed and read."""

import contextlib
import csv
import dataclasses
import enum
import importlib.metadata
import io
import json
import math
import os
import pathlib
import platform
import subprocess
import zipfile

import keras
import numpy as np
import yaml

from applications.common.errors import InputError

_TEMPORARY = ".tmp-"


class RunFolder:
    """Folder of one training run, known by the `config.yaml` in it.

    Args:
        path: folder of an existing run. `RunFolder.open` starts or resumes one, `RunFolder.load` reads one.
        config: dict of plain values, the options of the run.

    Example:

    >>> import tempfile
    >>> folder = RunFolder.open(tempfile.mkdtemp() + "/run", {"hidden_units": 8})
    >>> RunFolder.load(folder.path).config
    {'hidden_units': 8}
    """

    def __init__(self, path, config):
        self.path = pathlib.Path(path)
        self.config = config

    @classmethod
    def open(cls, path, config, resume=False, may_differ=()):
        """Starts a run in a new or empty folder, or resumes the run in it.

        Args:
            path: folder.
            config: dict of options, nested or not.
            resume: bool. Whether the folder must already hold this run.
            may_differ: names of top-level options that a resumed run may change, for instance ("epochs",). The new
                values are written.

        Returns:
            `RunFolder`.

        Raises:
            InputError: if the folder holds a run with other options, or holds a run and `resume` is False, or holds
                none and `resume` is True, or holds something else, or cannot be written.
        """
        path, config = pathlib.Path(path), _plain("config", config)
        stored = _read_config(path)
        if stored is None:
            if resume:
                raise InputError(f"There is no run to resume in {path}: it has no config.yaml.")
            _make_folder(path)
        else:
            differing = _differences(stored, config, may_differ)
            if differing:
                raise InputError(
                    f"{path} holds a run with other options. Choose another folder, or repeat its options: "
                    + "; ".join(f"{name}: {old} in the folder, {new} asked for" for name, old, new in differing)
                )
            if not resume:
                raise InputError(f"{path} holds a run already. Resume it, or choose another folder.")
            for leftover in path.glob(f"{_TEMPORARY}*"):
                leftover.unlink()
        if stored != config:
            try:
                write_text_atomically(path / "config.yaml", _dump(config))
            except OSError as error:
                raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
        return cls(path, config)

    @classmethod
    def load(cls, path):
        """Reads the run in a folder.

        Args:
            path: folder of a run.

        Returns:
            `RunFolder`.

        Raises:
            InputError: if the folder holds no run.
        """
        config = _read_config(pathlib.Path(path))
        if config is None:
            raise InputError(f"{path} is not the folder of a run: it has no config.yaml.")
        return cls(path, config)

    def file(self, name):
        """Path of a file in the folder; its own folder is created."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class Checkpoint(keras.callbacks.Callback):
    """Saves the whole training state after each epoch, in one file and one atomic step.

    The state is: the model's variables, with the states of its `SeedGenerator`s, which `.keras` and `.weights.h5` files
    leave out; the optimizer's variables, a loss scale included; the epoch; and the history. At any moment the file
    holds one complete state or does not exist: a killed process or a full disk leaves the previous one.

    A resumed `fit` repeats the uninterrupted one bit for bit if its data depend on nothing but the epoch, and if no
    layer draws from Keras's or TensorFlow's global generator. Other callbacks' states, such as the patience of
    `EarlyStopping`, are not saved. Callbacks that add values to the log come before this one.

    Args:
        path: file to write, ending in ".npz".
        monitor: str or None. Logged value whose best epoch is kept in `best_path`.
        mode: "min" or "max": what is better. Defaults to "min".
        best_path: file for the weights of the best epoch, ending in ".weights.h5". Defaults to "best.weights.h5" beside
            `path`.

    Raises:
        ValueError: if an argument is not one of those, or `monitor` is not logged.

    Example:

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> checkpoint = Checkpoint(tempfile.mkdtemp() + "/checkpoint.npz")
    >>> initial_epoch, rows = checkpoint.restore(model)
    >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, initial_epoch=initial_epoch, verbose=0,
    ...               callbacks=[checkpoint])
    >>> checkpoint.restore(model)[0]
    3
    """

    def __init__(self, path, monitor=None, mode="min", best_path=None):
        super().__init__()
        self.path = pathlib.Path(path)
        self.monitor = monitor
        self.mode = mode
        self.best_path = pathlib.Path(best_path) if best_path else self.path.with_name("best.weights.h5")
        self.best_value = None
        self.best_epoch = None
        self.rows = []
        if mode not in ("min", "max"):
            raise ValueError(f'`mode` must be "min" or "max". Received: mode={mode!r}')
        for name, file, ending in (("path", self.path, ".npz"), ("best_path", self.best_path, ".weights.h5")):
            if not file.name.endswith(ending):
                raise ValueError(f"`{name}` must end in {ending!r}. Received: {name}={str(file)!r}")

    def restore(self, model):
        """Puts the saved state into a compiled, built model.

        Args:
            model: `keras.Model`, made by the code that made the saved one.

        Returns:
            int, the `initial_epoch` for `fit` (0 without a checkpoint), and the list of history rows so far.

        Raises:
            InputError: if the file is damaged or does not fit the model.
        """
        if not self.path.exists():
            return 0, []
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                record = json.loads(archive["record"].tobytes())
                arrays = [archive[f"variable_{index:05d}"] for index in range(len(record["variables"]))]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.path} is not a readable checkpoint: {error}") from error
        variables = _training_variables(model)
        mismatch = _mismatch(record["variables"], [_description(variable) for variable in variables])
        if mismatch:
            raise InputError(f"{self.path} does not fit the model: {mismatch}.")
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        self.rows = record["rows"]
        self.best_value, self.best_epoch = record["best_value"], record["best_epoch"]
        return record["epoch"], list(self.rows)

    def load_best(self, model):
        """Puts the weights of the best epoch into a model, compiled or not.

        Args:
            model: `keras.Model`, made by the code that made the saved one.

        Raises:
            InputError: if there is no such file, or it does not fit the model.
        """
        # Keras saves the optimizer too, and refuses to load it into one that has not been built.
        _built_optimizer(model)
        try:
            model.load_weights(self.best_path)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{self.best_path} cannot be loaded: {error}") from error

    def on_train_begin(self, logs=None):
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append(_row(epoch, logs))
        # The best weights go first: a crash in between repeats this epoch, and finds the same weights best.
        self._keep_best(epoch, logs or {})
        variables = _training_variables(self.model)
        record = {
            "epoch": epoch + 1,
            "rows": self.rows,
            "best_value": self.best_value,
            "best_epoch": self.best_epoch,
            "variables": [_description(variable) for variable in variables],
        }
        arrays = {f"variable_{index:05d}": _to_numpy(variable) for index, variable in enumerate(variables)}
        arrays["record"] = np.frombuffer(json.dumps(record).encode(), "uint8")
        with replacing(self.path) as temporary, open(temporary, "xb") as file:
            np.savez(file, **arrays)

    def _keep_best(self, epoch, logs):
        if self.monitor is None:
            return
        if self.monitor not in logs:
            raise ValueError(f"`monitor` must be one of {sorted(logs)}. Received: monitor={self.monitor!r}")
        value = float(logs[self.monitor])
        sign = 1.0 if self.mode == "min" else -1.0
        if math.isfinite(value) and (self.best_value is None or sign * value < sign * self.best_value):
            with replacing(self.best_path) as temporary:
                self.model.save_weights(temporary)
            self.best_value, self.best_epoch = value, epoch + 1


class HistoryWriter(keras.callbacks.Callback):
    """Writes everything that `fit` logs to a CSV file, one row an epoch; epochs count from 1.

    The file is replaced as a whole after each epoch, so a value that first appears late gets a column in every row.

    Args:
        path: file to write.
        rows: history rows of a resumed run, from `Checkpoint.restore`. Rows of the file that are not among them belong
            to no checkpoint and are dropped.
    """

    def __init__(self, path, rows=()):
        super().__init__()
        self.path = pathlib.Path(path)
        self.rows = list(rows)

    def on_train_begin(self, logs=None):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.rows or self.path.exists():
            self._write()

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append(_row(epoch, logs))
        self._write()

    def _write(self):
        columns = list(dict.fromkeys(["epoch", *(name for row in self.rows for name in row)]))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text_atomically(self.path, text.getvalue())


class StopOnNaN(keras.callbacks.Callback):
    """Stops the training with an error at the first batch whose loss is NaN or infinite.

    Raises:
        FloatingPointError: naming the epoch and the step, both counted from 1. The checkpoint of the last complete
            epoch is left as it is.
    """

    def __init__(self):
        super().__init__()
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            raise FloatingPointError(
                f"The loss became {loss} in epoch {self._epoch + 1}, step {batch + 1}. The last checkpoint is kept. "
                "Lower the learning rate, clip the gradient (clipnorm), or train in float32."
            )


def write_text_atomically(path, text):
    """Writes a UTF-8 file that is, at any moment, the old one or the new one.

    Args:
        path: file. Its folder must exist.
        text: str.

    Raises:
        OSError: if it cannot be written, for instance on a full disk; the old file is left.
    """
    with replacing(path) as temporary, open(temporary, "x", encoding="utf-8", newline="") as file:
        file.write(text)


def write_json(path, value):
    """Writes a value as JSON, atomically.

    Args:
        path: file. Its folder must exist.
        value: dicts, lists, strings, numbers, None; NumPy numbers and arrays, tuples, paths, enumerations and data
            classes become plain. NaN and infinities, which JSON has not, become null.

    Raises:
        OSError: if it cannot be written; the old file is left.
        ValueError: if something in `value` cannot be written as JSON.
    """
    plain = _plain("value", value, finite=True)
    write_text_atomically(path, json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def environment_record():
    """Versions that a result depends on.

    Returns:
        dict: "python", "keras", "tensorflow", "tensorflow_probability", "keras_vattn" and "numpy" to version strings
        (None for what is not installed), "commit" to the commit of the checkout that this file is in, or None, and
        "uncommitted_changes" to whether tracked files differ from it, or None.
    """
    names = ("keras", "tensorflow", "tensorflow_probability", "keras_vattn", "numpy")
    record = {"python": platform.python_version(), **{name: _version(name) for name in names}}
    root = pathlib.Path(__file__).resolve().parents[2]
    top = _git(root, "rev-parse", "--show-toplevel")
    # A file installed inside some other project's checkout has no commit of its own.
    inside = top is not None and pathlib.Path(top).resolve() == root
    record["commit"] = _git(root, "rev-parse", "--verify", "HEAD") if inside else None
    changes = _git(root, "status", "--porcelain", "--untracked-files=no") if record["commit"] else None
    record["uncommitted_changes"] = None if changes is None else bool(changes)
    return record


@contextlib.contextmanager
def replacing(path):
    """Gives a temporary path beside `path`, moved over it if the block succeeds, removed if not.

    Raises:
        OSError: if it cannot be written, for instance on a full disk; the old file is left, and the error names it.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}")
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _built_optimizer(model):
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    return optimizer


def _training_variables(model):
    optimizer = _built_optimizer(model)
    if optimizer is None:
        raise ValueError("Compile the model before its training state is saved or restored.")
    # `variables` has the states of the layers' seed generators, `weights` has not.
    return [*model.variables, *optimizer.variables]


def _description(variable):
    return [variable.name, list(variable.shape), str(variable.dtype)]


def _to_numpy(variable):
    array = keras.ops.convert_to_numpy(variable)
    # NumPy files hold no bfloat16 or float8; float32 holds all of their values.
    return array if array.dtype.kind in "biuf" else array.astype("float32")


def _mismatch(saved, expected):
    if len(saved) != len(expected):
        return f"it has {len(saved)} variables, the model and its optimizer have {len(expected)}"
    # Keras numbers its automatic names through the process: only shapes and types have to agree.
    for (name, *old), (new_name, *new) in zip(saved, expected, strict=True):
        if old != new:
            return f"it has {name} of shape {old[0]} and type {old[1]}, the model {new_name} of {new[0]} and {new[1]}"
    return None


def _row(epoch, logs):
    return {"epoch": epoch + 1, **{name: float(value) for name, value in (logs or {}).items()}}


def _read_config(path):
    """The options of the run in a folder, or None if there is no run."""
    try:
        config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path / 'config.yaml'} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path / 'config.yaml'} does not hold the options of a run.")
    return config


def _make_folder(path):
    try:
        path.mkdir(parents=True, exist_ok=True)
        others = [entry.name for entry in path.iterdir() if not entry.name.startswith(_TEMPORARY)]
    except OSError as error:
        raise InputError(f"{path} cannot be made a run folder: {error.strerror or error}") from error
    if others:
        raise InputError(f"{path} is not empty and holds no run. Choose a new or empty folder.")


def _dump(config):
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=120)


def _differences(stored, config, may_differ):
    old, new = _flat(stored), _flat(yaml.safe_load(_dump(config)))
    missing = object()
    return [
        (name, *("nothing" if value is missing else repr(value) for value in values))
        for name in dict.fromkeys([*old, *new])
        if name.split(".")[0] not in may_differ
        for values in [(old.get(name, missing), new.get(name, missing))]
        # NaN differs from itself.
        if values[0] != values[1] and repr(values[0]) != repr(values[1])
    ]


def _flat(config, prefix=""):
    flat = {}
    for name, value in config.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _plain(name, value, finite=False):
    """`value` with nothing in it but dicts with string keys, lists, strings, numbers, booleans and None."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, dict):
        return {str(key): _plain(f"{name}.{key}", item, finite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{name}[{index}]", item, finite) for index, item in enumerate(value)]
    if isinstance(value, float) and finite and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"`{name}` must be made of plain values. Received: {name}={value!r}")


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder, *arguments):
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
