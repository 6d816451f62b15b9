"""Reads the JSON files of a run. A damaged file or a missing key raises an `InputError`."""

import json

from applications.common.errors import InputError


class Record(dict):
    """The content of a JSON file. A missing key raises an `InputError` that names the file."""

    path = None

    def __missing__(self, name):
        raise InputError(f"{self.path} is damaged: it has no {name!r}. Restore the file, or repeat the run.")


def read_record(path, mend="Restore the file, or repeat the run.", or_none=False):
    """Read a JSON file. Return a `Record`, or `None` if `or_none` is true and the file contains null.
    If the file cannot be read, raise an `InputError` whose message ends with the text `mend`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}. {mend}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}. {mend}") from error
    if values is None and or_none:
        return None
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: expected a JSON object. Received: {str(values)[:40]}. {mend}")
    record = Record(values)
    record.path = path
    return record
