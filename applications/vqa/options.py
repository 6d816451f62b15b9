"""Options of visual question answering. The presets are in presets/."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.bayesian_options import PosteriorOptions
from applications.common.errors import InputError
from applications.common.program import Program
from applications.vision import options as vision
from applications.vision.options import EXTRACTOR_OPTIONS, FeaturesOptions, RegionOptions

# The models of each network, Deng et al. 2018 and Fan et al. 2020.
UPDOWN = ("soft", "marginal", "hard_enum", "hard_sample", "relaxed", "variational_enum", "variational_sample")
MCAN = ("soft", "no_kl", "lf", "lc", "wf", "wc")
WITH_POSTERIOR = ("relaxed", "variational_enum", "variational_sample")


@dataclasses.dataclass
class QuestionOptions:
    """Questions; without files, built-in ones about rendered scenes"""

    train_questions: common.File | None = None
    """Training questions: VQA v2's JSON, or a CSV or TSV with the columns image, question and answer; plain or .gz."""
    train_annotations: common.File | None = None
    """Annotations of VQA v2's training questions, ten answers each."""
    valid_questions: common.File | None = None
    """Validation questions; without them a share of the training images is held out."""
    valid_annotations: common.File | None = None
    """Their annotations."""
    test_questions: common.File | None = None
    """Test questions, touched once at the end of training and by `evaluate`."""
    test_annotations: common.File | None = None
    """Their annotations."""
    valid_fraction: common.Fraction = 0.1
    """Share of the training images that is held out where there are no validation questions."""
    test_from_validation: common.Fraction | None = None
    """Share of the validation images whose questions become the test questions: 0.5 is the split of Deng et al. 2018,
    who need the answers. The ids of the questions are written to split.json. Embedded questions have a test part."""
    min_answer_count: common.Positive = 1
    """An answer is known if most people gave it to that many training questions; 9 gives the 3,129 answers of VQA v2's
    training and validation questions together."""
    max_answers: common.Positive = 3129
    """The most answers that are known."""
    max_question_length: common.Positive = 14
    """Words of a question that are read."""
    embeddings: common.File | None = None
    """Pretrained word vectors of the width word_width: GloVe or word2vec text, or .npz."""
    labels: Literal["drawn", "soft"] = "drawn"
    """drawn: one answer a question in each epoch, in proportion to the people who gave it. soft: all answers, with
    scores min(n / 3, 1) and binary cross-entropy."""
    control: Literal["none", "question_only"] = "none"
    """question_only: all regions are zeros."""
    num_scenes: common.Positive = 4000
    """Number of built-in scenes."""

    def check(self):
        for part in ("train", "valid", "test"):
            questions = getattr(self, f"{part}_questions")
            if getattr(self, f"{part}_annotations") is not None and questions is None:
                raise InputError(f"--{part}-annotations is given without --{part}-questions.")
            if questions is not None and self.train_questions is None:
                raise InputError(f"--{part}-questions is given without --train-questions.")
        if self.test_from_validation is not None and self.test_questions is not None:
            raise InputError("--test-from-validation: --test-questions has the test questions; leave out one.")


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    architecture: Literal["of_model", "updown", "mcan"] = "of_model"
    """updown: Anderson et al. 2018 as Deng et al. 2018 have it. mcan: Yu et al. 2019. of_model: the model's own, updown
    of soft."""
    word_width: common.Positive = 64
    """Width of the word vectors."""
    units: common.Positive = 256
    """Width of the question, the score and the hidden layer of updown; of the heads together in mcan."""
    answer_width: common.Positive = 32
    """Width of the answers that the inference network of updown sees."""
    fused_units: common.Positive = 256
    """Width of the state that mcan reads the answer off."""
    num_layers: common.Positive = 2
    """Layers of mcan."""
    num_heads: common.Positive = 4
    """Heads of mcan."""
    dropout: common.Dropout | None = None
    """Rate; none for 0.5 before the answers of updown, 0.1 everywhere in mcan."""


@dataclasses.dataclass
class AlignmentOptions(PosteriorOptions, vision.AlignmentOptions):
    """Attention; none for the value that the paper has for the model"""


@dataclasses.dataclass
class ReportOptions:
    """Reports"""

    num_draws: common.NoneOrSeveral = 20
    """Draws behind the uncertainty metrics, 2 at least; 0 for none of them. Only figures of equal numbers compare."""
    feature_noise: common.NotNegativeFloat = 5.0
    """Variance of Gaussian noise on the region features for the noisy columns, 5 in Fan et al. 2020; 0 for none."""
    noise_scale: bool = True
    """Multiply the noise by the standard deviation of the features in training."""


@dataclasses.dataclass
class Options:
    """Train a model that answers questions about images; without data options, about rendered scenes."""

    model: Literal[tuple(dict.fromkeys(UPDOWN + MCAN))] = "marginal"
    """One of the models of Deng et al. 2018 or Fan et al. 2020."""
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
        """The architecture of the network."""
        default = "updown" if self.model in UPDOWN else "mcan"
        return default if self.network.architecture == "of_model" else self.network.architecture

    @property
    def dropout(self):
        """The rate of dropout."""
        return {"updown": 0.5, "mcan": 0.1}[self.architecture] if self.network.dropout is None else self.network.dropout

    def check(self):
        network = self.network
        if self.model not in {"updown": UPDOWN, "mcan": MCAN}[self.architecture]:
            raise InputError(f"--architecture: {self.architecture} has no model {self.model}.")
        if self.architecture == "mcan" and network.units % network.num_heads:
            raise InputError(
                f"--units: expected a multiple of --num-heads, {network.num_heads}. Received: {network.units}"
            )
        if self.questions.labels == "soft" and self.architecture == "updown":
            raise InputError("--labels: the architecture mcan alone has soft labels.")
        if self.model in WITH_POSTERIOR:
            first = self.alignment.warm_start if self.model == "relaxed" else 0
            self.alignment.check_steps(first, self.fit.max_steps)
        self.regions.check_training_file("train-questions", self.questions.train_questions)


@dataclasses.dataclass
class EvaluateVqa(common.EvaluateOptions):
    """Report on a part of the data of a run, or on other questions about the same images or features."""

    questions: common.File | None = None
    """Other questions, in a layout of --train-questions."""
    annotations: common.File | None = None
    """Their annotations."""
    num_draws: common.NoneOrSeveral | None = None
    """Draws behind the uncertainty metrics instead of the run's."""
    feature_noise: common.NotNegativeFloat | None = None
    """Variance of the noise instead of the run's."""

    def check(self):
        if self.annotations is not None and self.questions is None:
            raise InputError("--annotations is given without --questions.")


@dataclasses.dataclass
class PredictVqa(common.GenerateOptions):
    """Answer questions about images: lines of an image's id, or of the path of its file where the run can make features
    of it, a tab and a question. An answer has the three most probable answers with their probabilities."""


@dataclasses.dataclass
class OtherQuestions:
    """Other questions and corrupted ones: a model should be less sure of both."""

    other: common.File | None = None
    """A CSV or TSV of other questions, as `evaluate --questions` reads it; their answers mean nothing."""
    corruption: common.NotNegativeFloat | None = None
    """Variance of the noise on the regions; 5 where it is left out, 0 for none."""


@dataclasses.dataclass
class UncertaintyVqa(OtherQuestions, common.UncertaintyOptions):
    """Compare draws of a run with its mean and a fitted temperature, on test, other and corrupted data."""


@dataclasses.dataclass
class CompareVqa(OtherQuestions, common.CompareClassesOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/vqa_compare"
    models: tuple[str, ...] = ("soft", "marginal", "variational_enum", "variational_sample")
    baseline: str = "soft"
    layout: tuple[Literal["deng", "fan", "uncertainty"], ...] = ()
    """Also the tables of Deng et al. 2018, of Fan et al. 2020; what the uncertainty of the models is worth."""


@dataclasses.dataclass
class FeaturesVqa(FeaturesOptions):
    """Turn images into region features, a file and what made it, to train on with --features."""

    questions: common.File | None = None
    """Training questions whose answers are the words of the network words."""
    annotations: common.File | None = None
    """Their annotations."""

    def check(self):
        super().check()
        self.check_words("questions", self.questions)
        if self.annotations is not None and self.questions is None:
            raise InputError("--annotations is given without --questions.")


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
