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
    """Captions; without files, built-in ones of rendered scenes"""

    train_captions: common.File | None = None
    """Training captions: COCO's JSON, or a split by Karpathy, which may hold all parts; plain or .gz."""
    valid_captions: common.File | None = None
    """Validation captions; without them a share of the training images is held out."""
    test_captions: common.File | None = None
    """Test captions, touched once at the end of training and by `evaluate`."""
    valid_fraction: common.Fraction = 0.1
    """Share of the training images that is held out where there are no validation captions."""
    min_word_count: common.Positive = 1
    """A word is known if it occurs that often in training."""
    max_length: common.Positive = 16
    """Longest caption in words, punctuation left out; longer ones are cut, and counted."""
    num_scenes: common.Positive = 8000
    """Number of built-in scenes."""
    scene_captions: Literal["lines", "relations"] = "lines"
    """lines: the shapes of the first two objects of a row, from the left, or of a column, from the top. relations: how
    any two or three objects lie to each other, with their colours."""

    def check(self):
        for part in ("valid", "test"):
            if getattr(self, f"{part}_captions") is not None and self.train_captions is None:
                raise InputError(f"--{part}-captions is given without --train-captions.")


@dataclasses.dataclass
class NetworkOptions:
    """Network"""

    word_width: common.Positive = 64
    """Width of the word vectors."""
    units: common.Positive = 128
    """Width of the regions, of the decoder, and of the states that words are read off."""
    attention_units: common.Positive = 64
    """Width of the score."""
    dropout: common.Dropout = 0.1
    """Rate of dropout on regions and word vectors, and before the words."""


@dataclasses.dataclass
class ReportOptions(DecodeOptions):
    """Reports"""

    num_beams: common.Positive = 1
    """Beams of the captions that are reported, generated and exported; 1 for greedy decoding."""
    num_draws: common.NotNegative = 10
    """Draws behind the uncertainty, of the attention or, in a model that does not draw it, of the dropout; 0 for none.
    """
    java: bool = True
    """Use Java, where it runs, for METEOR and the tokens of the other metrics."""


# Defaults for two CPU cores and a few minutes on the built-in captions; the alignment's values are the paper's.
@dataclasses.dataclass
class Options:
    """Train a model that captions images; without data options, on rendered scenes."""

    model: Literal["soft", "hard", "categorical", "lc", "wc", "gaussian"] = "soft"
    """One of the models of Fan et al. 2020, or the marginal likelihood of Deng et al. 2018."""
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
    """Report on a part of the data of a run, or on other captions of the same images or features."""

    captions: common.File | None = None
    """Other captions, in a layout of --train-captions; of a split by Karpathy the test part."""
    num_beams: common.Positive | None = None
    """Beams instead of the run's."""
    num_draws: common.NoneOrSeveral | None = None
    """Draws behind the uncertainty instead of the run's."""
    uncertainty: bool = False
    """Also the quality of the captions that the model is most certain of."""


@dataclasses.dataclass
class GenerateCaptioning(UncertaintyOptions, common.GenerateOptions):
    """Caption images: lines of ids, or of paths of image files where the run can make features of them."""

    num_draws: common.NoneOrSeveral | None = None
    """Draws behind the uncertainty instead of the run's, of the attention or, in a model that does not draw it, of the
    dropout; 0 for none."""


@dataclasses.dataclass
class CompareCaptioning(common.CompareOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/captioning_compare"
    models: tuple[str, ...] = ("soft", "hard", "categorical", "wc")
    baseline: str = "soft"
    layout: tuple[Literal["fan", "uncertainty"], ...] = ()
    """Also Table 3 of Fan et al. 2020, or the quality of the most certain captions."""


@dataclasses.dataclass
class FeaturesCaptioning(FeaturesOptions):
    """Turn images into region features, a file and what made it, to train on with --features."""

    captions: common.File | None = None
    """Training captions whose words the network words learns."""

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
