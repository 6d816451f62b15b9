"""Options shared by programs on images. This module does not import Keras."""

import dataclasses
import pathlib
from typing import Annotated, Literal

from applications.common import options as common
from applications.common.bayesian_options import PublishedOptions
from applications.common.errors import InputError

# Name of the file in the folder that the command `features` writes.
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
    """Features of image regions, the cells of a grid"""

    network: Literal["pixels", "words"] = "pixels"
    """pixels: no network, the colours of a cell. words: a small network, first trained to detect words about the
    training images."""
    grid: common.Positive | None = None
    """Cells per side; none for 6."""
    image_size: common.Positive | None = None
    """Side of the resized images, in pixels; none for 48 with pixels and 96 with words."""

    @property
    def cells(self):
        """Cells per side."""
        return self.grid or 6

    @property
    def side(self):
        """Side of the resized images, in pixels."""
        return self.image_size or (48 if self.network == "pixels" else 96)

    def check(self):
        if self.network == "pixels" and self.side % self.cells:
            expected = f"a multiple of --grid, {self.cells}, for the network pixels"
            raise InputError(f"--image-size: expected {expected}. Received: {self.side}")
        if self.side < 2 * self.cells:
            raise InputError(f"--image-size: expected at least twice --grid, {self.cells}. Received: {self.side}")


# They determine the features, so a run must agree in them with the run that it starts from.
EXTRACTOR_OPTIONS = tuple(field.name for field in dataclasses.fields(ExtractorOptions))


@dataclasses.dataclass
class RegionOptions(ExtractorOptions):
    """Image regions; features in a file, or computed from images"""

    network: Literal["pixels", "words"] | None = None
    """pixels or words, as for the command features; none: words for images, and exact features without a network for
    rendered scenes."""
    features: Existing | None = None
    """Region features, instead of a network: an .h5 file of `python -m tools.convert_regions`, or a folder of the
    command `features`."""
    images: ImageSource | None = None
    """Folder of images, or an .npz with one array (N, H, W, 3). Features are computed from them, unless --features is
    set, and pictures of the attention show them."""
    max_regions: common.Positive = 36
    """Use the first this many regions of an image."""
    use_boxes: bool = False
    """Append the corners of the box, between 0 and 1, to the features of a region."""

    @property
    def resolved(self):
        """The network that computes the features, `None` for exact features of rendered scenes."""
        return {"network": self.network or (None if self.images is None else "words")}

    def check(self):
        super().check()
        if self.features is None and self.cells**2 > self.max_regions:
            raise InputError(
                f"--max-regions: expected at least {self.cells**2}, the regions of an image. "
                f"Received: {self.max_regions}"
            )

    def check_training_file(self, name, file):
        """Raise `InputError` unless the training file of the option `name` and images are named together."""
        if (file is not None) != (self.features is not None or self.images is not None):
            raise InputError(f"--{name} and --features or --images belong together; one of them is missing.")


@dataclasses.dataclass
class AlignmentOptions(PublishedOptions):
    """Attention; none for the paper's value for the model"""

    baseline: Literal["soft", "moving_average", "none"] = "soft"
    """Baseline of the reward for a sampled region. soft: the log-likelihood of the expected regions, which needs a
    second decoder in captioning."""
    kl_reduction: Literal["sum", "query_mean", "mean"] = "sum"
    """Reduction of the KL of an example. sum: as in the ELBO; mean: over all pairs of a query and a key, as in the code
    of Fan et al. 2020; query_mean: over queries."""

    def arguments(self, distribution, published, prior="contextual"):
        """Return the arguments of an attention layer for "weibull" or "lognormal" weights and their KL, with the values
        published for the model; the prior is "contextual", "fixed" or `None`."""
        drawn = self.with_published(published)
        arguments = {"alignment": drawn.alignment(distribution), "kl_weight": drawn.kl_weight}
        arguments["kl_reduction"] = self.kl_reduction
        if prior is not None:
            arguments["prior"] = drawn.prior(distribution, prior, published.get("prior_alpha", 1.0))
            arguments["kl_annealing"] = drawn.annealing()
        return arguments


@dataclasses.dataclass
class FeaturesOptions:
    """Compute region features of images, and write them with their extractor, for training with --features."""

    images: ImageSource
    """Folder of images, or an .npz with one array (N, H, W, 3)."""
    out: str = "features"
    """Output folder."""
    extractor: ExtractorOptions = common.group(ExtractorOptions)

    def check_words(self, name, file):
        """Raise `InputError` unless the network words and the option `name`, its file of words, are used together."""
        if (self.extractor.network == "words") != (file is not None):
            received = "none" if file is None else file
            raise InputError(f"--{name}: required for --network words, and only for it. Received: {received}")

    def check(self):
        if pathlib.Path(self.out, REGIONS).exists() or pathlib.Path(self.out).is_file():
            raise InputError(f"--out: expected a new folder. Received: {self.out}, which exists")
