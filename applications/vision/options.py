"""Options that programs on images share. Nothing here imports Keras."""

import dataclasses
import pathlib
from typing import Annotated, Literal

from applications.common import options as common
from applications.common.bayesian_options import PublishedOptions
from applications.common.errors import InputError

# In the folder that the command `features` writes.
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
    """From images to features of their regions, the cells of a grid"""

    network: Literal["pixels", "words"] = "pixels"
    """pixels: none, the colours of a cell. words: a small network that learns here to detect words about the training
    images."""
    grid: common.Positive | None = None
    """Cells a side; none for 6."""
    image_size: common.Positive | None = None
    """Side in pixels to which images of any shape are resized; none for 48 of pixels, 96 of words."""

    @property
    def cells(self):
        """Cells a side."""
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
            raise InputError(f"--image-size: expected twice --grid, {self.cells}, at least. Received: {self.side}")


# They make a run's features: a run that starts from another has the same.
EXTRACTOR_OPTIONS = tuple(field.name for field in dataclasses.fields(ExtractorOptions))


@dataclasses.dataclass
class RegionOptions(ExtractorOptions):
    """Image regions; features of a file, or made here of images"""

    network: Literal["pixels", "words"] | None = None
    """pixels or words, as for the command features; none: words for images, and exact features, without a network, for
    rendered scenes."""
    features: Existing | None = None
    """Region features: an .h5 file of `python -m tools.convert_regions`, or a folder of the command `features`; the
    network is not used then."""
    images: ImageSource | None = None
    """Folder of images, or an .npz with one array (N, H, W, 3): without --features, features are made of them;
    attention is drawn over them."""
    max_regions: common.Positive = 36
    """Regions of an image that are read, the first ones."""
    use_boxes: bool = False
    """Append the corners of its box, between 0 and 1, to the features of a region."""

    @property
    def resolved(self):
        """The network that makes the features, `None` for exact features of rendered scenes."""
        return {"network": self.network or (None if self.images is None else "words")}

    def check(self):
        super().check()
        if self.features is None and self.cells**2 > self.max_regions:
            raise InputError(
                f"--max-regions: expected {self.cells**2} at least, the regions of an image. "
                f"Received: {self.max_regions}"
            )

    def check_training_file(self, name, file):
        """Raise `InputError` unless the training file of the option `name` and images are named together."""
        if (file is not None) != (self.features is not None or self.images is not None):
            raise InputError(f"--{name} and --features or --images belong together; one of them is missing.")


@dataclasses.dataclass
class AlignmentOptions(PublishedOptions):
    """Attention; none for the value that the paper has for the model"""

    baseline: Literal["soft", "moving_average", "none"] = "soft"
    """What is subtracted from the reward of a drawn region. soft: the log-likelihood under the expected regions, which
    captioning needs a second decoder for."""
    kl_reduction: Literal["sum", "query_mean", "mean"] = "sum"
    """sum: the ELBO of an example. mean: divided by all pairs of a query and a key, as in the code of Fan et al. 2020.
    query_mean: divided by the queries."""

    def arguments(self, distribution, published, prior="contextual"):
        """Return the arguments of an attention layer for "weibull" or "lognormal" weights and their KL, with the values
        that are published for the model; the prior is "contextual", "fixed" or `None`."""
        drawn = self.with_published(published)
        arguments = {"alignment": drawn.alignment(distribution), "kl_weight": drawn.kl_weight}
        arguments["kl_reduction"] = self.kl_reduction
        if prior is not None:
            arguments["prior"] = drawn.prior(distribution, prior, published.get("prior_alpha", 1.0))
            arguments["kl_annealing"] = drawn.annealing()
        return arguments


@dataclasses.dataclass
class FeaturesOptions:
    """Turn images into region features, a file and what made it, to train on with --features."""

    images: ImageSource
    """Folder of images, or an .npz with one array (N, H, W, 3)."""
    out: str = "features"
    """Folder that is written."""
    extractor: ExtractorOptions = common.group(ExtractorOptions)

    def check_words(self, name, file):
        """Raise `InputError` unless the network words and the option `name`, its file of words, are named together."""
        if (self.extractor.network == "words") != (file is not None):
            received = "none" if file is None else file
            raise InputError(f"--{name}: the network words, and no other, learns from it. Received: {received}")

    def check(self):
        if pathlib.Path(self.out, REGIONS).exists() or pathlib.Path(self.out).is_file():
            raise InputError(f"--out: expected a new folder. Received: {self.out}, which exists")
