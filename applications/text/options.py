"""Options shared by programs on pairs of sentences."""

import dataclasses
from typing import Annotated

from pydantic import Field

from applications.common import options as common
from applications.common.errors import InputError

PARTS = ("train", "valid", "test")
SIDES = ("source", "target", "table")
# Seed of splits of the data; it is fixed, so that models with different seeds are compared on the same data.
DATA_SEED = 0
# Larger than the number of special tokens.
VocabularySize = Annotated[int, Field(gt=4)]


@dataclasses.dataclass
class PairOptions:
    """Pairs of sentences; built-in pairs by default"""

    train_source: common.File | None = None
    """Training sources, one per line, plain or .gz; needs train_target."""
    train_target: common.File | None = None
    """Training targets, one per line."""
    train_table: common.File | None = None
    """Training pairs instead of two files: a CSV or TSV with named columns, plain or .gz."""
    valid_source: common.File | None = None
    """Validation sources; without validation pairs, a part of the training pairs is held out."""
    valid_target: common.File | None = None
    """Validation targets."""
    valid_table: common.File | None = None
    """Validation pairs, a table."""
    test_source: common.File | None = None
    """Test sources, used only at the end of training and by `evaluate`."""
    test_target: common.File | None = None
    """Test targets."""
    test_table: common.File | None = None
    """Test pairs, a table."""
    source_column: str = "source"
    """Name of the source column in tables."""
    target_column: str = "target"
    """Name of the target column in tables."""
    group_column: str | None = None
    """Column of a table with group labels (an article, a conversation); validation is split off by whole groups."""
    valid_fraction: common.Fraction = 0.1
    """Fraction of the training pairs to hold out if there are no validation pairs."""
    max_train_pairs: common.Positive | None = None
    """Use at most this many training pairs, chosen at random."""
    max_valid_pairs: common.Positive | None = None
    """Use at most this many validation pairs."""
    skip_invalid: bool = False
    """Skip and count pairs with an empty side or invalid UTF-8, instead of stopping; also applies to `evaluate`."""
    lowercase: bool = True
    """Convert all text to lower case."""

    def check(self):
        for part in PARTS:
            named = _named_files(self, f"{part}_")
            if named and not self.has_training_pairs:
                raise InputError(f"--{part}-{named[0]} needs training data; name --train-source or --train-table.")

    @property
    def has_training_pairs(self):
        """Whether training pairs are named; if not, the built-in pairs are used."""
        return self.train_source is not None or self.train_table is not None


@dataclasses.dataclass
class EvaluatePairsOptions(common.EvaluateOptions):
    """Report on a split of a run's data, or on other pairs of sentences."""

    source: common.File | None = None
    """Report on other pairs: sources, one per line, plain or .gz; needs target."""
    target: common.File | None = None
    """Targets of the other pairs, one per line."""
    table: common.File | None = None
    """Other pairs: a table with the same columns as the training table."""

    def check(self):
        _named_files(self)

    @property
    def names_other(self):
        """Whether to report on other pairs."""
        return self.source is not None or self.table is not None


@dataclasses.dataclass
class DecodeOptions:
    """Decoding of validation inputs during training"""

    decode_every: common.NotNegative = 1
    """Decode validation inputs after every this many epochs; 0 for never."""
    num_decoded: common.Positive = 100
    """Number of validation inputs to decode."""

    def decodes_after(self, epoch):
        """Return whether validation inputs are decoded after this epoch, counted from 0."""
        return bool(self.decode_every) and (epoch + 1) % self.decode_every == 0


@dataclasses.dataclass
class UncertaintyOptions:
    """Uncertainty of generated sentences"""

    uncertainty: bool = False
    """Also report the uncertainty of generated sentences: likelihood, entropy and mutual information."""
    num_draws: common.NoneOrSeveral | None = None
    """Number of draws for the uncertainty, of the attention or, if it is deterministic, of the dropout; 10 by default,
    0 for no draws."""

    def check(self):
        if self.num_draws is not None and not self.uncertainty:
            raise InputError("--num-draws belongs to --uncertainty.")


def _named_files(options, prefix=""):
    """Return the files that are named, among the source, target and table of a split: two sides, a table, or none."""
    named = [side for side in SIDES if getattr(options, f"{prefix}{side}") is not None]
    flag = "--" + prefix.replace("_", "-")
    if "table" in named and len(named) > 1:
        raise InputError(f"{flag}table and {flag}source exclude each other.")
    if named in (["source"], ["target"]):
        raise InputError(f"{flag}source and {flag}target belong together; one of them is missing.")
    return named
