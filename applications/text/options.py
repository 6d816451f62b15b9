"""Defines the options that all programs for sentence pairs share."""

import dataclasses
from typing import Annotated

from pydantic import Field

from applications.common import options as common
from applications.common.errors import InputError

PARTS = ("train", "valid", "test")
SIDES = ("source", "target", "table")
# With one seed for all splits, models with different seeds are compared on the same data.
DATA_SEED = 0
VocabularySize = Annotated[int, Field(gt=4)]  # A vocabulary has four special tokens.


@dataclasses.dataclass
class PairOptions:
    """Sentence pairs (default: the built-in pairs)"""

    train_source: common.File | None = None
    """File of training sources, one per line, plain or .gz; requires --train-target."""
    train_target: common.File | None = None
    """File of training targets, one per line."""
    train_table: common.File | None = None
    """Table of training pairs, used instead of two files: CSV or TSV with named columns, plain or .gz."""
    valid_source: common.File | None = None
    """File of validation sources. If no validation pairs are given, some training pairs are held out."""
    valid_target: common.File | None = None
    """File of validation targets."""
    valid_table: common.File | None = None
    """Table of validation pairs, used instead of two files."""
    test_source: common.File | None = None
    """File of test sources. Test pairs are used only for the report after training, and by `evaluate`."""
    test_target: common.File | None = None
    """File of test targets."""
    test_table: common.File | None = None
    """Table of test pairs, used instead of two files."""
    source_column: str = "source"
    """Name of the source column in tables."""
    target_column: str = "target"
    """Name of the target column in tables."""
    group_column: str | None = None
    """Column of a table with group labels, such as an article's title; held-out validation pairs are whole groups."""
    valid_fraction: common.Fraction = 0.1
    """Fraction of the training pairs to hold out for validation if no validation pairs are given."""
    max_train_pairs: common.Positive | None = None
    """Use at most this many training pairs, chosen at random."""
    max_valid_pairs: common.Positive | None = None
    """Use at most this many validation pairs."""
    skip_invalid: bool = False
    """Skip and count pairs that are empty or invalid UTF-8, in `train` and `evaluate`; by default they are errors."""
    lowercase: bool = True
    """Convert all text to lower case."""

    def check(self):
        for part in PARTS:
            named = _named_files(self, f"{part}_")
            if named and not self.has_training_pairs:
                raise InputError(f"--{part}-{named[0]} needs training data; set --train-source or --train-table.")

    @property
    def has_training_pairs(self):
        """Whether the options name training pairs. If not, the built-in pairs are used."""
        return self.train_source is not None or self.train_table is not None


@dataclasses.dataclass
class EvaluatePairsOptions(common.EvaluateOptions):
    """Compute the metrics of a run on a split of its data, or on other pairs of sentences."""

    source: common.File | None = None
    """File of the sources of other pairs to evaluate on, one per line, plain or .gz; requires --target."""
    target: common.File | None = None
    """File of the targets of other pairs to evaluate on, one per line; requires --source."""
    table: common.File | None = None
    """Table of other pairs to evaluate on, with the same columns as the training table."""

    def check(self):
        _named_files(self)

    @property
    def names_other(self):
        """Whether the options name other pairs to evaluate on, instead of the run's data."""
        return self.source is not None or self.table is not None


@dataclasses.dataclass
class DecodeOptions:
    """Decoding of validation inputs during training"""

    decode_every: common.NotNegative = 1
    """Number of epochs from one decoding of validation inputs to the next; 0: never decode them."""
    num_decoded: common.Positive = 100
    """Number of validation inputs to decode."""

    def decodes_after(self, epoch):
        """Return whether validation inputs are decoded after an epoch; the first epoch is 0."""
        return bool(self.decode_every) and (epoch + 1) % self.decode_every == 0


@dataclasses.dataclass
class UncertaintyOptions:
    """Uncertainty of generated sentences"""

    uncertainty: bool = False
    """Also report how uncertain the model is about its sentences: likelihood, entropy and mutual information."""
    num_draws: common.NoneOrSeveral | None = None
    """Number of samples from which the uncertainty is computed; 10 by default, 0 for none. The attention is sampled; if
    the attention is deterministic, dropout is sampled."""

    def check(self):
        if self.num_draws is not None and not self.uncertainty:
            raise InputError("--num-draws requires --uncertainty.")


def _named_files(options, prefix=""):
    """Return the kinds of files that the options name for a split. Raise `InputError` if they conflict."""
    named = [side for side in SIDES if getattr(options, f"{prefix}{side}") is not None]
    flag = "--" + prefix.replace("_", "-")
    if "table" in named and len(named) > 1:
        raise InputError(f"{flag}table and {flag}source cannot be used together.")
    if named in (["source"], ["target"]):
        raise InputError(f"{flag}source and {flag}target belong together; one of them is missing.")
    return named
