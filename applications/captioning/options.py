"""Options of image captioning. The presets are in presets/."""

import dataclasses
from typing import Literal

from applications.common import options as common
from applications.common.errors import InputError
from applications.common.program import Program
from applications.text.options import DecodeOptions, UncertaintyOptions
from applications.vision.options import EXTRACTOR_OPTIONS, AlignmentOptions, FeaturesOptions, RegionOptions


@dataclasses.dataclass
class CaptionOptions:
    """Captions (default: built-in captions of rendered scenes)"""

    train_captions: common.File | None = None
    """Training captions: COCO's JSON, or Karpathy's JSON, which contains all splits; plain or .gz."""
    valid_captions: common.File | None = None
    """Validation captions; by default, the captions of some training images are held out."""
    test_captions: common.File | None = None
    """Test captions, read once at the end of training and by `evaluate`."""
    valid_fraction: common.Fraction = 0.1
    """Fraction of the training images to hold out if there are no validation captions."""
    min_word_count: common.Positive = 1
    """Minimum number of training occurrences of a word; rarer words are unknown."""
    max_length: common.Positive = 16
    """Maximum caption length in words, without punctuation; longer captions are truncated and counted."""
    num_scenes: common.Positive = 8000
    """Number of built-in scenes."""
    scene_captions: Literal["lines", "relations"] = "lines"
    """lines: captions name the shapes of the two leftmost objects in a row, or of the two topmost objects in a column.
    relations: captions name the colours, shapes and positions of up to three objects."""

    def check(self):
        for part in ("valid", "test"):
            if getattr(self, f"{part}_captions") is not None and self.train_captions is None:
                raise InputError(f"--{part}-captions requires --train-captions; pass both.")


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    word_width: common.Positive = 64
    """Width of the word vectors."""
    units: common.Positive = 128
    """Width of the embedded regions, the decoder and the states that predict words."""
    attention_units: common.Positive = 64
    """Width of the attention score."""
    dropout: common.Dropout = 0.1
    """Dropout rate of regions and word vectors, and before the output."""


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_beams: common.Positive = 1
    """Number of beams for reported, generated and exported captions; 1 for greedy decoding."""
    num_draws: common.NotNegative = 10
    """Samples for the uncertainty, or 0 to skip it: of the attention or, if it is deterministic, of the dropout."""
    java: bool = True
    """Use Java, if installed, for METEOR and for tokenisation."""


@dataclasses.dataclass
class Options:
    """Train a model that captions images. The default data are rendered scenes."""

    model: Literal["soft", "hard", "categorical", "lc", "wc", "gaussian"] = "soft"
    """A model of Fan et al. 2020, or the marginal likelihood of Deng et al. 2018."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/captioning")
    captions: CaptionOptions = common.group(CaptionOptions)
    regions: RegionOptions = common.group(RegionOptions, grid=4, image_size=48, use_boxes=True)
    network: NetworkOptions = common.group(NetworkOptions)
    alignment: AlignmentOptions = common.group(AlignmentOptions)
    fit: common.FitOptions = common.group(
        common.FitOptions, batch_size=32, epochs=7, learning_rate=5e-3, schedule="cosine"
    )
    reports: ReportOptions = common.group(ReportOptions)

    @property
    def resolved(self):
        return self.regions.resolved

    def check(self):
        self.regions.check_training_file("train-captions", self.captions.train_captions)


@dataclasses.dataclass
class EvaluateCaptioning(common.EvaluateOptions):
    """Compute the metrics of a run on a split of its data, or on other captions of the same images or features."""

    captions: common.File | None = None
    """Other captions, in the same formats as --train-captions; only the test split of a Karpathy file is used."""
    num_beams: common.Positive | None = None
    """Number of beams; the default is the value of the run."""
    num_draws: common.NoneOrSeveral | None = None
    """Number of samples for the uncertainty of captions; the default is the value of the run."""
    uncertainty: bool = False
    """Also report the uncertainty of the captions, and the quality of the most certain captions."""


@dataclasses.dataclass
class GenerateCaptioning(UncertaintyOptions, common.GenerateOptions):
    """Caption images. An input line is an image id or, if the run computes features from images, an image file."""

    num_draws: common.NoneOrSeveral | None = None
    """Samples for the uncertainty, or 0 to skip it: of the attention or, if it is deterministic, of the dropout. The
    default is the value of the run."""


@dataclasses.dataclass
class CompareCaptioning(common.CompareOptions):
    """Train models with several seeds. Print their metrics and the differences from the baseline, with 95% intervals.
    The options of `train` are also accepted, and apply to every run."""

    out: str = "runs/captioning_compare"
    models: tuple[str, ...] = ("soft", "hard", "categorical", "wc")
    baseline: str = "soft"
    layout: tuple[Literal["fan", "uncertainty"], ...] = ()
    """Also print Table 3 of Fan et al. 2020, or the quality of the most certain captions."""


@dataclasses.dataclass
class FeaturesCaptioning(FeaturesOptions):
    """Compute region features of images for `train --features`. The output folder also contains the extractor."""

    captions: common.File | None = None
    """Training captions. The feature extractor "words" learns to detect the words of the captions."""

    def check(self):
        super().check()
        self.check_words("captions", self.captions)


PROGRAM = Program(
    "applications.captioning",
    {
        "train": Options,
        "evaluate": EvaluateCaptioning,
        "generate": GenerateCaptioning,
        "compare": CompareCaptioning,
        "export": common.ExportOptions,
        "features": FeaturesCaptioning,
    },
    may_change=("num_beams", "num_draws", "decode_every", "num_decoded", "java"),
    codec_options=("max_length", "min_word_count", "use_boxes", "max_regions", *EXTRACTOR_OPTIONS),
)
