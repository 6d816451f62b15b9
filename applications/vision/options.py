"""Defines the options that `captioning` and `vqa` share. This module does not import Keras."""

import dataclasses
import pathlib
from typing import Annotated, Literal

from applications.common import options as common
from applications.common.bayesian_options import PublishedOptions
from applications.common.errors import InputError

REGIONS = "regions.h5"

Existing = Annotated[str, common.OnDisk("no such file or folder", lambda path: path.exists())]
ImageSource = Annotated[
    str,
    common.OnDisk(
        "must be a folder of images or an .npz file",
        lambda path: path.is_dir() or (path.is_file() and path.suffix == ".npz"),
    ),
]


@dataclasses.dataclass
class ExtractorOptions:
    """Features of image regions; each region is a cell of a grid"""

    network: Literal["pixels", "words"] = "pixels"
    """Features of a cell. pixels: its colours, without a network. words: the output of a small network that is first
    trained to detect words about the training images."""
    grid: common.Positive | None = None
    """Number of cells per side of the grid; none: 6."""
    image_size: common.Positive | None = None
    """Side of the resized images, in pixels; none: 48 with --network pixels, 96 with --network words."""

    @property
    def cells(self):
        return self.grid or 6

    @property
    def side(self):
        return self.image_size or (48 if self.network == "pixels" else 96)

    def check(self):
        if self.network == "pixels" and self.side % self.cells:
            expected = f"a multiple of --grid, {self.cells}, for the network pixels"
            raise InputError(f"--image-size: expected {expected}. Received: {self.side}")
        if self.side < 2 * self.cells:
            raise InputError(f"--image-size: expected at least 2 * --grid = {2 * self.cells}. Received: {self.side}")


# With --start-from, these options must have the values of the earlier run.
EXTRACTOR_OPTIONS = tuple(field.name for field in dataclasses.fields(ExtractorOptions))


@dataclasses.dataclass
class RegionOptions(ExtractorOptions):
    """Image regions; features are read from a file or computed from images"""

    network: Literal["pixels", "words"] | None = None
    """How to compute region features: pixels or words, as for the command `features`. none: words for --images; exact
    features, without a network, for the built-in scenes."""
    features: Existing | None = None
    """Region features to read: an .h5 file that `python -m tools.convert_regions` wrote, or a folder that the command
    `features` wrote."""
    images: ImageSource | None = None
    """Folder of images, or an .npz with one array (N, H, W, 3). Attention weights are drawn on these images. Features
    are computed from them unless --features is set."""
    max_regions: common.Positive = 36
    """Maximum number of regions per image; further regions are ignored."""
    use_boxes: bool = False
    """Append the corners of a region's box, between 0 and 1, to the features of the region."""

    @property
    def resolved(self):
        """Dictionary with the value of `network`, after its default is applied."""
        return {"network": self.network or (None if self.images is None else "words")}

    def check(self):
        super().check()
        if self.features is None and self.cells**2 > self.max_regions:
            raise InputError(
                f"--max-regions: expected at least {self.cells**2}, the number of grid cells. "
                f"Received: {self.max_regions}"
            )

    def check_training_file(self, name, file):
        """Raise `InputError` if only one of an image source and a training file (option `name`) is set."""
        if (file is not None) != (self.features is not None or self.images is not None):
            raise InputError(f"--{name} and an image source, --features or --images, belong together; one is missing.")


@dataclasses.dataclass
class AlignmentOptions(PublishedOptions):
    """Attention; the default none means the paper's value"""

    baseline: Literal["soft", "moving_average", "none"] = "soft"
    """Baseline that REINFORCE subtracts from the reward of a sampled region. soft: the log-likelihood under soft
    attention (in captioning, a second decoder computes it); moving_average: the average of earlier rewards."""
    kl_reduction: Literal["sum", "query_mean", "mean"] = "sum"
    """How to reduce the KLs of an example. sum: as in the ELBO; mean: mean over all pairs of a query and a key, as in
    the code of Fan et al. 2020; query_mean: mean over queries of the sum over keys."""

    def arguments(self, distribution, published, prior="contextual"):
        """Return keyword arguments for an attention layer with "weibull" or "lognormal" weights. Unset options have the
        paper's values in `published`. `prior` is "contextual", "fixed" or `None`."""
        drawn = self.with_published(published)
        arguments = {"alignment": drawn.alignment(distribution), "kl_weight": drawn.kl_weight}
        arguments["kl_reduction"] = self.kl_reduction
        if prior is not None:
            arguments["prior"] = drawn.prior(distribution, prior, published.get("prior_alpha", 1.0))
            arguments["kl_annealing"] = drawn.annealing()
        return arguments


@dataclasses.dataclass
class FeaturesOptions:
    """Compute region features of images for `train --features`. The output folder also contains the extractor."""

    images: ImageSource
    """Folder of images, or an .npz with one array (N, H, W, 3)."""
    out: str = "features"
    """Folder to write; it must not contain features yet."""
    extractor: ExtractorOptions = common.group(ExtractorOptions)

    def check_words(self, name, file):
        """Raise `InputError` if the option `name` is missing with --network words, or set with any other network."""
        if (self.extractor.network == "words") != (file is not None):
            received = "none" if file is None else file
            raise InputError(f"--{name}: required for --network words, not allowed otherwise. Received: {received}")

    def check(self):
        if pathlib.Path(self.out, REGIONS).exists() or pathlib.Path(self.out).is_file():
            raise InputError(f"--out: expected a new folder. Received: {self.out}, which exists")
