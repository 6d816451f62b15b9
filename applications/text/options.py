"""Options that programs on pairs of sentences share."""

import dataclasses

from applications.common.errors import InputError
from applications.common.options import EvaluateOptions, File, Fraction, NotNegative, Positive, Seed

PARTS = ("train", "valid", "test")


@dataclasses.dataclass
class PairOptions:
    """Pairs of sentences; without them, the embedded ones"""

    train_source: File | None = None
    """Training sources, one a line, plain or .gz; beside train_target."""
    train_target: File | None = None
    """Training targets, one a line."""
    train_table: File | None = None
    """Training pairs, a CSV or TSV with named columns, plain or .gz, instead of two files."""
    valid_source: File | None = None
    """Validation sources; where there are no validation pairs they are cut from train."""
    valid_target: File | None = None
    """Validation targets."""
    valid_table: File | None = None
    """Validation pairs, a table."""
    test_source: File | None = None
    """Test sources, touched once at the end of training and by `evaluate`."""
    test_target: File | None = None
    """Test targets."""
    test_table: File | None = None
    """Test pairs, a table."""
    source_column: str = "source"
    """Column of the tables that has the sources."""
    target_column: str = "target"
    """Column of the tables that has the targets."""
    group_column: str | None = None
    """Column of a table that says which rows belong together (an article, a conversation) when validation is cut."""
    valid_fraction: Fraction = 0.1
    """Share of train that is held out where there are no validation pairs."""
    max_train_pairs: Positive | None = None
    """Use that many training pairs, chosen at random with data_seed."""
    max_valid_pairs: Positive | None = None
    """Use that many validation pairs."""
    data_seed: Seed = 0
    """Seed of the cuts, apart from the model's, so that seeds are compared on the same data."""
    skip_invalid: bool = False
    """Count pairs with an empty side, or bytes that are not UTF-8, instead of stopping."""
    lowercase: bool = True
    """Read and write lower case."""

    def check(self):
        for part in PARTS:
            files = {name: getattr(self, f"{part}_{name}") is not None for name in ("source", "target", "table")}
            check_files(files, f"{part}-")
            if any(files.values()) and not self.has_training_pairs:
                name = next(name for name, given in files.items() if given)
                raise InputError(f"--{part}-{name} is given without training data.")

    @property
    def has_training_pairs(self):
        """Whether training pairs are named, and not the embedded ones meant."""
        return self.train_source is not None or self.train_table is not None


@dataclasses.dataclass
class EvaluatePairsOptions(EvaluateOptions):
    """Report on a part of the data of a run, or on other pairs of sentences."""

    source: File | None = None
    """Report on other pairs: sources, one a line, plain or .gz; beside target."""
    target: File | None = None
    """Targets of these, one a line."""
    table: File | None = None
    """Other pairs, a table with the columns of the run's own."""
    skip_invalid: bool = False
    """Count invalid pairs of these files instead of stopping."""

    def check(self):
        check_files({name: getattr(self, name) is not None for name in ("source", "target", "table")}, "")


@dataclasses.dataclass
class DecodeOptions:
    """Decoding of validation while training"""

    decode_every: NotNegative = 1
    """Decode validation inputs every so many epochs; 0 for never."""
    num_decoded: Positive = 100
    """How many validation inputs are decoded then."""

    def decodes_after(self, epoch):
        """Return whether validation is decoded after this epoch, counted from 0."""
        return bool(self.decode_every) and (epoch + 1) % self.decode_every == 0


def check_files(given, prefix):
    """Raise `InputError` unless both sides are named, or a table, or nothing.

    Args:
        given: Dictionary from "source", "target" and "table" to whether it is named.
        prefix: Of these names, as the command line has them.
    """
    if given["table"] and (given["source"] or given["target"]):
        raise InputError(f"--{prefix}table and --{prefix}source exclude each other.")
    if given["source"] != given["target"]:
        raise InputError(f"--{prefix}source and --{prefix}target belong together; one of them is missing.")
