"""The parts of a data set: training, validation and test pairs, and whether a run still has the ones it had."""

import dataclasses
import hashlib

from applications.common.errors import InputError
from applications.common.runs import write_text_atomically
from applications.text.readers import ParallelText

# Its presence says that the folder of a run can be resumed.
DIGEST = "data.sha256"


@dataclasses.dataclass
class Splits:
    """Training, validation and test pairs; `test` is `None` where there is none."""

    train: ParallelText
    valid: ParallelText
    test: ParallelText | None

    def split(self, name):
        """Return the pairs of "valid" or "test"; `InputError` if there are none."""
        pairs = {"valid": self.valid, "test": self.test}[check_split(name)]
        if pairs is None:
            raise InputError(f"--split: this run has no {name} pairs.")
        return pairs

    def fingerprint(self):
        """Return a digest of all pairs."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid, self.test):
            rows = [] if part is None else zip(part.sources, part.targets, strict=True)
            for source, target in rows:
                digest.update(f"{source}\t{target}\n".encode())
            digest.update(b"\n")
        return digest.hexdigest()

    def remember(self, folder):
        """Write into the folder of a run which data it is trained on."""
        write_text_atomically(folder.file(DIGEST), self.fingerprint() + "\n")

    def require_those_of(self, folder):
        """Raise `InputError` if the files, or the installed facts, have changed since a run was trained on them."""
        path = folder.path / DIGEST
        if path.exists() and path.read_text(encoding="utf-8").strip() != self.fingerprint():
            raise InputError(f"{folder.path}: the data are not those of this run; its splits would be others.")


def check_split(name):
    """Return the name of a split that can be reported on; `InputError` otherwise."""
    if name not in ("valid", "test"):
        raise InputError(f"--split: expected valid or test. Received: {name}")
    return name
