"""Options of the fine-tuning of pretrained transformers, and its tasks. The presets are in presets/."""

import dataclasses
from typing import Annotated, Literal

from pydantic import Field

from applications.common import options as common
from applications.common.bayesian_options import Forms
from applications.common.errors import InputError
from applications.common.program import Program


@dataclasses.dataclass(frozen=True)
class Task:
    """The layout of a task's files."""

    kind: Literal["classes", "score", "span"] = "classes"
    # Names of the columns of the text, of the second text of a pair or `None`, and of the label.
    columns: tuple = ("sentence", None, "label")
    # Indices of these columns in a file without a header; `None` where files have one.
    places: tuple | None = None
    # `None` for the labels of the training examples.
    labels: tuple | None = None


_BINARY = ("0", "1")
TASKS = {
    "cola": Task(places=(3, None, 1), labels=_BINARY),
    "sst2": Task(labels=_BINARY),
    "sts": Task("score", ("sentence1", "sentence2", "score"), (0, 1, 2)),
    "mnli": Task(columns=("sentence1", "sentence2", "gold_label")),
    "qnli": Task(columns=("question", "sentence", "label")),
    "qqp": Task(columns=("question1", "question2", "is_duplicate"), labels=_BINARY),
    "rte": Task(columns=("sentence1", "sentence2", "label")),
    "mrpc": Task(columns=("#1 String", "#2 String", "Quality"), labels=_BINARY),
    "squad1": Task("span"),
    "squad2": Task("span"),
    "classes": Task(columns=("text", "pair", "label")),
    "score": Task("score", ("text", "pair", "score")),
}


WeightsFolder = Annotated[
    common.Folder,
    common.OnDisk(
        "needs a preset of KerasHub (config.json, model.weights.h5 and the tokenizer's files) or a folder from Hugging "
        "Face (config.json, tokenizer_config.json, model.safetensors and vocab.txt)",
        lambda path: any((path / name).is_file() for name in ("model.weights.h5", "model.safetensors")),
    ),
]


@dataclasses.dataclass
class TextOptions:
    """Texts; without files, sentences of three parts of Python's library, which are the classes"""

    task: Literal[tuple(TASKS)] = "classes"
    """Layout of the files: a task of GLUE, or SQuAD; classes or score for files of your own, with the columns text,
    perhaps pair, and label or score."""
    train: common.File | None = None
    """Training examples: .csv, or .tsv or any other with tabs; .json of SQuAD; plain or .gz."""
    valid: common.File | None = None
    """Validation examples; without them a share of the training examples is held out."""
    test: common.File | None = None
    """Test examples; without them the report is on validation."""
    text_column: str | None = None
    """Name of the column of the text."""
    pair_column: str | None = None
    """Name of the column of the second text of a pair."""
    label_column: str | None = None
    """Name of the column of the label or score."""
    valid_fraction: common.Fraction = 0.1
    """Share of the training examples that is held out where there are no validation examples."""
    max_length: common.Positive = 128
    """Tokens of an example, with the marks; a longer text is cut, or read in windows in tasks of spans."""
    stride: common.Positive = 64
    """Tokens from the start of a window to the start of the next, in tasks of spans."""

    def check(self):
        for name in ("valid", "test"):
            if getattr(self, name) is not None and self.train is None:
                raise InputError(f"--{name} is given without --train.")
        if self.max_length < 8 or (TASKS[self.task].kind == "span" and self.stride >= self.max_length - 8):
            raise InputError("--max-length: must be 8 at least, and in tasks of spans more than --stride by 8.")


@dataclasses.dataclass
class BackboneOptions:
    """Pretrained transformer; without a folder, a tiny one that is pretrained first"""

    weights: WeightsFolder | None = None
    """Folder with a BERT or ALBERT: a preset of KerasHub, or from Hugging Face."""
    backbone_dropout: common.Dropout = 0.0
    """Rate of dropout inside the transformer."""
    classifier_dropout: common.Dropout = 0.1
    """Rate of dropout before the head, which is trained from scratch."""
    pretraining_steps: common.Positive = 3500
    """Steps of masked words that pretrain the tiny transformer."""

    @property
    def drops(self):
        return max(self.backbone_dropout, self.classifier_dropout) > 0


@dataclasses.dataclass
class AlignmentOptions(Forms):
    """Drawn weights (Fan et al. 2020, section 4.5 and appendix B.5.2); k and share as in to_bayesian"""

    weibull_k: common.PositiveFloat = 1.0
    """Shape of the Weibull weights; the larger, the less they vary."""
    drawn_share: common.Share = 1 / 3
    """Share of the attentions that draw, the last ones; 1 for all, as published."""
    prior_beta: common.PositiveFloat = 1e-2
    """Rate of the Gamma prior."""
    prior_hidden_units: common.Positive = 5
    """Width of the network that reads the prior off the keys."""
    prior_stddev: common.PositiveFloat | None = 0.02
    """Standard deviation of the initial weights of that network; none for one over the root of its input's width, as in
    the published code. A prior that begins far from the attention may move pretrained weights, too."""
    per_head_prior: bool = False
    """Give each head a network of its own; the published one is for all heads."""
    kl_weight: common.NotNegativeFloat = 1.0
    """Factor on the KL, which is not annealed."""
    kl_reduction: Literal["sum", "query_mean", "mean"] = "mean"
    """mean: over queries, keys, heads and layers, as in the published code, but without padding. sum: over all of
    these. query_mean: the sum, divided by the queries."""


@dataclasses.dataclass
class FinetuningFitOptions(common.FitOptions):
    """Training"""

    learning_rate: common.PositiveFloat | None = None
    """Rate of the first step, or after the warm-up; none for 3e-5 with --weights, and 5e-4 for the tiny transformer."""
    warmup_steps: common.NotNegative | None = None
    """Steps over which the learning rate grows from 0; none for a tenth of all."""


@dataclasses.dataclass
class ReportOptions:
    """Reports"""

    num_draws: common.NoneOrSeveral = 10
    """Draws behind the uncertainty metrics, 2 at least; 0 for none of them. Only figures of equal numbers compare."""


@dataclasses.dataclass
class Options:
    """Fine-tune a pretrained transformer; without files, a tiny one on sentences of Python's library."""

    model: Literal["deterministic", "no_kl", "wc"] = "no_kl"
    """deterministic, or with drawn attention: no_kl, without a prior; wc with the one of Fan et al. 2020, Table 5."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/finetuning")
    texts: TextOptions = common.group(TextOptions)
    backbone: BackboneOptions = common.group(BackboneOptions)
    alignment: AlignmentOptions = common.group(AlignmentOptions)
    fit: FinetuningFitOptions = common.group(
        FinetuningFitOptions,
        batch_size=16,
        epochs=6,
        optimizer="adamw",
        weight_decay=0.01,
        schedule="linear",
        clip_norm=1.0,
        keep="last",
    )
    reports: ReportOptions = common.group(ReportOptions)


@dataclasses.dataclass
class EvaluateFinetuning(common.EvaluateOptions):
    """Report on a part of the data of a run, or on other examples."""

    data: common.File | None = None
    """Other examples, in the layout of --train."""
    num_draws: common.NoneOrSeveral | None = None
    """Draws behind the uncertainty metrics instead of the run's."""


@dataclasses.dataclass
class PredictFinetuning(common.GenerateOptions):
    """Classify lines, or score them: a text, or two with a tab between them; in tasks of spans a question and a
    context."""


@dataclasses.dataclass
class OtherTexts:
    """Other texts and corrupted ones: a model should be less sure of both."""

    other: common.File | None = None
    """A file of other texts in the layout of --train; their labels mean nothing."""
    corruption: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the words of test data that others replace; 0.3 where it is left out, 0 for none."""


@dataclasses.dataclass
class UncertaintyFinetuning(OtherTexts, common.UncertaintyOptions):
    """Compare draws of a run with its mean and a fitted temperature, on test, other and corrupted data."""


@dataclasses.dataclass
class CompareFinetuning(OtherTexts, common.CompareClassesOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/finetuning_compare"
    models: tuple[str, ...] = ("deterministic", "no_kl")
    baseline: str = "deterministic"
    layout: tuple[Literal["fan", "uncertainty"], ...] = ()
    """Also the paper's table, and what the uncertainty of the models is worth."""


PROGRAM = Program(
    "applications.finetuning",
    {
        "train": Options,
        "evaluate": EvaluateFinetuning,
        "predict": PredictFinetuning,
        "compare": CompareFinetuning,
        "export": common.ExportOptions,
        "uncertainty": UncertaintyFinetuning,
    },
    may_change=("num_draws",),
    codec_options=("task", "weights", "max_length", "stride", "pretraining_steps"),
)
