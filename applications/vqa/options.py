"""Options of visual question answering. The presets are in presets/."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.bayesian_options import PosteriorOptions
from applications.common.errors import InputError
from applications.common.program import Program
from applications.vision import options as vision
from applications.vision.options import EXTRACTOR_OPTIONS, FeaturesOptions, RegionOptions

UPDOWN = ("soft", "marginal", "hard_enum", "hard_sample", "relaxed", "variational_enum", "variational_sample")
MCAN = ("soft", "no_kl", "lf", "lc", "wf", "wc")
WITH_POSTERIOR = ("relaxed", "variational_enum", "variational_sample")


@dataclasses.dataclass
class QuestionOptions:
    """Questions (default: built-in questions about rendered scenes)"""

    train_questions: common.File | None = None
    """Training questions: VQA v2's JSON, or a CSV or TSV with the columns image, question and answer; plain or .gz."""
    train_annotations: common.File | None = None
    """VQA v2's annotations of the training questions, with ten answers per question."""
    valid_questions: common.File | None = None
    """Validation questions; by default, the questions about some training images are held out."""
    valid_annotations: common.File | None = None
    """Annotations of the validation questions."""
    test_questions: common.File | None = None
    """Test questions, read once at the end of training and by `evaluate`."""
    test_annotations: common.File | None = None
    """Annotations of the test questions."""
    valid_fraction: common.Fraction = 0.1
    """Fraction of the training images to hold out if there are no validation questions."""
    test_from_validation: common.Fraction | None = None
    """Fraction of the validation images whose questions become test questions; 0.5 is the split of Deng et al. 2018.
    The question ids are written to split.json. Built-in questions already have a test split."""
    min_answer_count: common.Positive = 1
    """The model predicts only answers that are the most common for at least this many training questions. 9 yields
    3,129 answers for VQA v2's training and validation questions together."""
    max_answers: common.Positive = 3129
    """Maximum number of answers that the model can predict."""
    max_question_length: common.Positive = 14
    """Maximum question length in words; longer questions are truncated."""
    embeddings: common.File | None = None
    """Pretrained word vectors of width word_width: GloVe or word2vec text, or .npz."""
    labels: Literal["drawn", "soft"] = "drawn"
    """drawn: train on one answer per question and epoch, sampled in proportion to the votes. soft: train on all answers
    with binary cross-entropy; the target of an answer with n votes is min(n / 3, 1)."""
    control: Literal["none", "question_only"] = "none"
    """question_only: replace all regions with zeros, so the model reads only the question."""
    num_scenes: common.Positive = 4000
    """Number of built-in scenes."""

    def check(self):
        for part in ("train", "valid", "test"):
            questions = getattr(self, f"{part}_questions")
            if getattr(self, f"{part}_annotations") is not None and questions is None:
                raise InputError(f"--{part}-annotations requires --{part}-questions; pass both.")
            if questions is not None and self.train_questions is None:
                raise InputError(f"--{part}-questions requires --train-questions; pass both.")
        if self.test_from_validation is not None and self.test_questions is not None:
            raise InputError("expected at most one of --test-from-validation and --test-questions.")


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    architecture: Literal["of_model", "updown", "mcan"] = "of_model"
    """updown: Anderson et al. 2018, as in Deng et al. 2018. mcan: Yu et al. 2019. of_model: the architecture that
    supports the model; both architectures support the model soft, with updown as default."""
    word_width: common.Positive = 64
    """Width of the word vectors."""
    units: common.Positive = 256
    """Width of the question vector, the score and the hidden layer in updown; total width of all heads in mcan."""
    answer_width: common.Positive = 32
    """Width of the answer embedding in the inference network of updown."""
    fused_units: common.Positive = 256
    """Width of the vector from which mcan predicts the answer."""
    num_layers: common.Positive = 2
    """Number of layers of mcan."""
    num_heads: common.Positive = 4
    """Number of attention heads of mcan."""
    dropout: common.Dropout | None = None
    """Dropout rate. none: 0.5 before the answers in updown, 0.1 everywhere in mcan."""


@dataclasses.dataclass
class AlignmentOptions(PosteriorOptions, vision.AlignmentOptions):
    """Attention; the default none means the paper's value"""


@dataclasses.dataclass
class ReportOptions:
    """Reports"""

    num_draws: common.NoneOrSeveral = 20
    """Number of samples for the uncertainty metrics, at least 2, or 0 to skip them; results depend on this number."""
    feature_noise: common.NotNegativeFloat = 5.0
    """Variance of Gaussian noise on region features for the "noisy" metrics (5 in Fan et al. 2020); 0 skips them."""
    noise_scale: bool = True
    """Multiply the noise by the standard deviation of the training features."""


@dataclasses.dataclass
class Options:
    """Train a model that answers questions about images. The default data are rendered scenes."""

    model: Literal[tuple(dict.fromkeys(UPDOWN + MCAN))] = "marginal"
    """A model of Deng et al. 2018 or Fan et al. 2020."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/vqa")
    questions: QuestionOptions = common.group(QuestionOptions)
    regions: RegionOptions = common.group(RegionOptions)
    network: NetworkOptions = common.group(NetworkOptions)
    alignment: AlignmentOptions = common.group(AlignmentOptions, prior_hidden_units=20, kl_reduction="mean")
    fit: common.FitOptions = common.group(
        common.FitOptions, batch_size=64, epochs=18, learning_rate=3e-3, schedule="cosine"
    )
    reports: ReportOptions = common.group(ReportOptions)

    @property
    def resolved(self):
        return self.regions.resolved

    @property
    def architecture(self):
        """The architecture, "updown" or "mcan", that the options select."""
        default = "updown" if self.model in UPDOWN else "mcan"
        return default if self.network.architecture == "of_model" else self.network.architecture

    @property
    def dropout(self):
        """The dropout rate, or the default of the architecture if the option is not set."""
        return {"updown": 0.5, "mcan": 0.1}[self.architecture] if self.network.dropout is None else self.network.dropout

    def check(self):
        network = self.network
        if self.model not in {"updown": UPDOWN, "mcan": MCAN}[self.architecture]:
            raise InputError(f"--architecture: {self.architecture} has no model {self.model}; choose another --model.")
        if self.architecture == "mcan" and network.units % network.num_heads:
            raise InputError(
                f"--units: expected a multiple of --num-heads, {network.num_heads}. Received: {network.units}"
            )
        if self.questions.labels == "soft" and self.architecture == "updown":
            raise InputError("--labels: only the architecture mcan supports soft labels.")
        if self.model in WITH_POSTERIOR:
            first = self.alignment.warm_start if self.model == "relaxed" else 0
            self.alignment.check_steps(first, self.fit.max_steps)
        self.regions.check_training_file("train-questions", self.questions.train_questions)


@dataclasses.dataclass
class EvaluateVqa(common.EvaluateOptions):
    """Compute the metrics of a run on a split of its data, or on other questions about the same images or features."""

    questions: common.File | None = None
    """Other questions, in the same formats as --train-questions."""
    annotations: common.File | None = None
    """VQA v2's annotations of the questions in --questions."""
    num_draws: common.NoneOrSeveral | None = None
    """Number of samples for the uncertainty metrics; the default is the value of the run."""
    feature_noise: common.NotNegativeFloat | None = None
    """Variance of the noise on region features; the default is the value of the run."""

    def check(self):
        if self.annotations is not None and self.questions is None:
            raise InputError("--annotations requires --questions; pass both.")


@dataclasses.dataclass
class PredictVqa(common.GenerateOptions):
    """Answer questions about images. An input line contains an image, a tab and a question. The image is an id or, if
    the run computes features from images, a file. The output lists the three most probable answers."""


@dataclasses.dataclass
class OtherQuestions:
    """Out-of-distribution data: other questions, and images with corrupted features"""

    other: common.File | None = None
    """A CSV or TSV of other questions, as for `evaluate --questions`; the answers are ignored."""
    corruption: common.NotNegativeFloat | None = None
    """Variance of the noise that corrupts the region features; the default is 5, and 0 adds no noise."""


@dataclasses.dataclass
class UncertaintyVqa(OtherQuestions, common.UncertaintyOptions):
    """Compare sampled, mean and temperature-scaled predictions on test data, corrupted test data and --other data."""


@dataclasses.dataclass
class CompareVqa(OtherQuestions, common.CompareClassesOptions):
    """Train models with several seeds. Print their metrics and the differences from the baseline, with 95% intervals.
    The options of `train` are also accepted, and apply to every run."""

    out: str = "runs/vqa_compare"
    models: tuple[str, ...] = ("soft", "marginal", "variational_enum", "variational_sample")
    baseline: str = "soft"
    layout: tuple[Literal["deng", "fan", "uncertainty"], ...] = ()
    """Also print the tables of Deng et al. 2018 or Fan et al. 2020, or evaluate the uncertainty of the models."""


@dataclasses.dataclass
class FeaturesVqa(FeaturesOptions):
    """Compute region features of images for `train --features`. The output folder also contains the extractor."""

    questions: common.File | None = None
    """Training questions. The feature extractor "words" learns to detect the words of their answers."""
    annotations: common.File | None = None
    """VQA v2's annotations of the questions in --questions."""

    def check(self):
        super().check()
        self.check_words("questions", self.questions)
        if self.annotations is not None and self.questions is None:
            raise InputError("--annotations requires --questions; pass both.")


PROGRAM = Program(
    "applications.vqa",
    {
        "train": Options,
        "evaluate": EvaluateVqa,
        "predict": PredictVqa,
        "compare": CompareVqa,
        "export": common.ExportOptions,
        "uncertainty": UncertaintyVqa,
        "features": FeaturesVqa,
    },
    may_change=("num_draws", "feature_noise", "noise_scale"),
    codec_options=(
        *("max_question_length", "min_answer_count", "max_answers", "use_boxes", "max_regions"),
        *EXTRACTOR_OPTIONS,
    ),
)
