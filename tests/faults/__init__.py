"""The faults that `mutations.py` puts into the library and the programs: patches, and the tests that must notice."""

import importlib
import pkgutil

ROOMS = [
    importlib.import_module(f"faults.{each.name}") for each in pkgutil.iter_modules(__path__) if each.name != "fault"
]
FAULTS = [fault for room in ROOMS for fault in room.FAULTS]
