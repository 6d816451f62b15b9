"""Options and tasks of fine-tuning pretrained transformers. The presets are in presets/."""

import dataclasses
from typing import Annotated, Literal

from pydantic import Field

from applications.common import options as common
from applications.common.bayesian_options import Forms
from applications.common.errors import InputError
from applications.common.program import Program


@dataclasses.dataclass(frozen=True)
class Task:
    """The kind of output that a task requires, and the format of the data files."""

    kind: Literal["classes", "score", "span"] = "classes"
    # Columns of the text, the second text (`None` without pairs), and the label or score.
    columns: tuple = ("sentence", None, "label")
    # Column indices in files without a header; otherwise `None`.
    places: tuple | None = None
    # Valid labels; `None` accepts the labels of the training examples.
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
        "needs a KerasHub preset (config.json, model.weights.h5 and the tokenizer's files) or a Hugging Face folder "
        "(config.json, tokenizer_config.json, model.safetensors and vocab.txt)",
        lambda path: any((path / name).is_file() for name in ("model.weights.h5", "model.safetensors")),
    ),
]


@dataclasses.dataclass
class TextOptions:
    """Texts (default: sentences from Python's standard library, labelled by topic)"""

    task: Literal[tuple(TASKS)] = "classes"
    """Format of the files: a task of GLUE, or SQuAD. For files of your own: classes or score, with the columns text,
    optionally pair, and label or score."""
    train: common.File | None = None
    """Training examples: .csv, tab-separated text, or SQuAD's .json; plain or .gz."""
    valid: common.File | None = None
    """Validation examples; by default, some of the training examples are held out."""
    test: common.File | None = None
    """Test examples; by default the report uses the validation examples."""
    text_column: str | None = None
    """Name of the text column."""
    pair_column: str | None = None
    """Name of the column with the second text of a pair."""
    label_column: str | None = None
    """Name of the label or score column."""
    valid_fraction: common.Fraction = 0.1
    """Fraction of the training examples to hold out if there are no validation examples."""
    max_length: common.Positive = 128
    """Maximum number of tokens per example, with special tokens. Longer texts are truncated or, for spans, split."""
    stride: common.Positive = 64
    """In span tasks, number of tokens between the starts of consecutive windows of a context."""

    def check(self):
        for name in ("valid", "test"):
            if getattr(self, name) is not None and self.train is None:
                raise InputError(f"--{name} requires --train; pass both.")
        if self.max_length < 8 or (TASKS[self.task].kind == "span" and self.stride >= self.max_length - 8):
            raise InputError("--max-length: must be at least 8, and in span tasks more than --stride + 8.")


@dataclasses.dataclass
class BackboneOptions:
    """Pretrained transformer (default: a tiny BERT that the program pretrains first)"""

    weights: WeightsFolder | None = None
    """Folder with BERT or ALBERT: a KerasHub preset, or BERT from Hugging Face."""
    backbone_dropout: common.Dropout = 0.0
    """Dropout rate inside the transformer."""
    classifier_dropout: common.Dropout = 0.1
    """Dropout rate before the head, which is trained from scratch."""
    pretraining_steps: common.Positive = 3500
    """Number of steps that pretrain the tiny BERT on masked words."""

    @property
    def drops(self):
        return max(self.backbone_dropout, self.classifier_dropout) > 0


@dataclasses.dataclass
class AlignmentOptions(Forms):
    """Stochastic attention (Fan et al. 2020, sections 4.5 and B.5.2), added by keras_vattn.to_bayesian"""

    weibull_k: common.PositiveFloat = 1.0
    """Shape of the Weibull weights; a larger shape means less variance."""
    drawn_share: common.Share = 1 / 3
    """Fraction of the attention layers that become stochastic, counted from the last; 1: all layers, as published."""
    prior_beta: common.PositiveFloat = 1e-2
    """Rate of the Gamma prior."""
    prior_hidden_units: common.Positive = 5
    """Width of the network that computes the prior from the keys."""
    prior_stddev: common.PositiveFloat | None = 0.02
    """Standard deviation of the initial weights of the prior network. none: 1 / sqrt(input width), as in the published
    code. If the prior starts far from the attention, the KL may also change the pretrained weights."""
    per_head_prior: bool = False
    """Give each head its own prior network; in the published code, all heads share one network."""
    kl_weight: common.NotNegativeFloat = 1.0
    """Factor on the KL, which is not annealed."""
    kl_reduction: Literal["sum", "query_mean", "mean"] = "mean"
    """mean: mean over queries, keys, heads and layers, as in the published code, but excluding padding. sum: sum over
    queries, keys, heads and layers. query_mean: the sum divided by the number of queries."""


@dataclasses.dataclass
class FinetuningFitOptions(common.FitOptions):
    """Training"""

    learning_rate: common.PositiveFloat | None = None
    """Learning rate at the end of the warm-up. none: 3e-5 with --weights, 5e-4 for the tiny transformer."""
    warmup_steps: common.NotNegative | None = None
    """Number of steps over which the learning rate grows from 0; none: a tenth of all steps."""


@dataclasses.dataclass
class ReportOptions:
    """Reports"""

    num_draws: common.NoneOrSeveral = 10
    """Number of samples for the uncertainty metrics, at least 2, or 0 to skip them; results depend on this number."""


@dataclasses.dataclass
class Options:
    """Fine-tune a pretrained transformer. By default, fine-tune a tiny BERT on sentences from docstrings."""

    model: Literal["deterministic", "no_kl", "wc"] = "no_kl"
    """deterministic: the original attention. no_kl: stochastic attention without a prior. wc: with a prior (BAM-WC)."""
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
    """Compute the metrics of a run on a split of its data, or on other examples."""

    data: common.File | None = None
    """Other examples, in the format of --train."""
    num_draws: common.NoneOrSeveral | None = None
    """Number of samples for the uncertainty metrics; the default is the value of the run."""


@dataclasses.dataclass
class PredictFinetuning(common.GenerateOptions):
    """Classify or score texts. An input line is a text, or two texts separated by a tab; in span tasks, a question and
    a context."""


@dataclasses.dataclass
class OtherTexts:
    """Out-of-distribution data: other texts, and texts with replaced words"""

    other: common.File | None = None
    """A file of other texts in the format of --train; labels are ignored."""
    corruption: Annotated[float, Field(ge=0, le=1)] | None = None
    """Fraction of the words in the test data that are replaced; the default is 0.3, and 0 replaces none."""


@dataclasses.dataclass
class UncertaintyFinetuning(OtherTexts, common.UncertaintyOptions):
    """Compare sampled, mean and temperature-scaled predictions on test data, corrupted test data and --other data."""


@dataclasses.dataclass
class CompareFinetuning(OtherTexts, common.CompareClassesOptions):
    """Train models with several seeds. Print their metrics and the differences from the baseline, with 95% intervals.
    The options of `train` are also accepted, and apply to every run."""

    out: str = "runs/finetuning_compare"
    models: tuple[str, ...] = ("deterministic", "no_kl")
    baseline: str = "deterministic"
    layout: tuple[Literal["fan", "uncertainty"], ...] = ()
    """Also print Table 5 of Fan et al. 2020, or evaluate the uncertainty of the models."""


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
