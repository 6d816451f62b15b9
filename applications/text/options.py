"""Options that programs on pairs of sentences share."""

import dataclasses
from typing import Annotated

from pydantic import Field

from applications.common import options as common
from applications.common.errors import InputError

PARTS = ("train", "valid", "test")
SIDES = ("source", "target", "table")
# Seed of the cuts of data: models of all seeds are compared on the same data.
DATA_SEED = 0
# There are 4 special tokens.
VocabularySize = Annotated[int, Field(gt=4)]


@dataclasses.dataclass
class PairOptions:
    """Pairs of sentences; without them, the built-in ones"""

    train_source: common.File | None = None
    """Training sources, one a line, plain or .gz; beside train_target."""
    train_target: common.File | None = None
    """Training targets, one a line."""
    train_table: common.File | None = None
    """Training pairs, a CSV or TSV with named columns, plain or .gz, instead of two files."""
    valid_source: common.File | None = None
    """Validation sources; where there are no validation pairs they are cut from train."""
    valid_target: common.File | None = None
    """Validation targets."""
    valid_table: common.File | None = None
    """Validation pairs, a table."""
    test_source: common.File | None = None
    """Test sources, touched once at the end of training and by `evaluate`."""
    test_target: common.File | None = None
    """Test targets."""
    test_table: common.File | None = None
    """Test pairs, a table."""
    source_column: str = "source"
    """Column of the tables with the sources."""
    target_column: str = "target"
    """Column of the tables with the targets."""
    group_column: str | None = None
    """Column of a table that says which rows belong together (an article, a conversation) when validation is cut."""
    valid_fraction: common.Fraction = 0.1
    """Share of train that is held out where there are no validation pairs."""
    max_train_pairs: common.Positive | None = None
    """Use that many training pairs, chosen at random."""
    max_valid_pairs: common.Positive | None = None
    """Use that many validation pairs."""
    skip_invalid: bool = False
    """Count pairs with an empty side, or bytes that are not UTF-8, instead of stopping; `evaluate` does as the run."""
    lowercase: bool = True
    """Read and write lower case."""

    def check(self):
        for part in PARTS:
            named = _named_files(self, f"{part}_")
            if named and not self.has_training_pairs:
                raise InputError(f"--{part}-{named[0]} is given without training data.")

    @property
    def has_training_pairs(self):
        """Whether training pairs are named; if not, the built-in ones are used."""
        return self.train_source is not None or self.train_table is not None


@dataclasses.dataclass
class EvaluatePairsOptions(common.EvaluateOptions):
    """Report on a part of the data of a run, or on other pairs of sentences."""

    source: common.File | None = None
    """Report on other pairs: sources, one a line, plain or .gz; beside target."""
    target: common.File | None = None
    """Targets of the other pairs, one a line."""
    table: common.File | None = None
    """Other pairs, a table with the columns of the run's own."""

    def check(self):
        _named_files(self)

    @property
    def names_other(self):
        """Whether the report is on other pairs."""
        return self.source is not None or self.table is not None


@dataclasses.dataclass
class DecodeOptions:
    """Decoding of validation while training"""

    decode_every: common.NotNegative = 1
    """Decode validation inputs every so many epochs; 0 for never."""
    num_decoded: common.Positive = 100
    """Number of validation inputs that are decoded then."""

    def decodes_after(self, epoch):
        """Return whether validation is decoded after this epoch, counted from 0."""
        return bool(self.decode_every) and (epoch + 1) % self.decode_every == 0


@dataclasses.dataclass
class UncertaintyOptions:
    """Uncertainty of written sentences"""

    uncertainty: bool = False
    """Also how sure the model is of what it writes: likelihood, entropy and mutual information."""
    num_draws: common.NoneOrSeveral | None = None
    """Draws behind the uncertainty, of the attention or, in a model that does not draw it, of the dropout; 0 for none,
    and 10 where it is left out."""

    def check(self):
        if self.num_draws is not None and not self.uncertainty:
            raise InputError("--num-draws belongs to --uncertainty.")


def _named_files(options, prefix=""):
    """Return which of a part's files are named: two sides, a table, or nothing."""
    named = [side for side in SIDES if getattr(options, f"{prefix}{side}") is not None]
    flag = "--" + prefix.replace("_", "-")
    if "table" in named and len(named) > 1:
        raise InputError(f"{flag}table and {flag}source exclude each other.")
    if named in (["source"], ["target"]):
        raise InputError(f"{flag}source and {flag}target belong together; one of them is missing.")
    return named
