"""Options that programs on images share. Nothing here imports Keras."""

import dataclasses
import pathlib
from typing import Annotated, ClassVar, Literal

from applications.common import options as common
from applications.common.bayesian_options import PublishedOptions
from applications.common.errors import InputError

# The networks of keras.applications.
NETWORKS = (
    *(f"ConvNeXt{size}" for size in ("Base", "Large", "Small", "Tiny", "XLarge")),
    *("DenseNet121", "DenseNet169", "DenseNet201"),
    *(f"EfficientNetB{size}" for size in range(8)),
    *(f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "L", "M", "S")),
    *("InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Large", "MobileNetV3Small"),
    *("NASNetLarge", "NASNetMobile", "ResNet50", "ResNet101", "ResNet152", "ResNet50V2", "ResNet101V2", "ResNet152V2"),
    *("VGG16", "VGG19", "Xception"),
)
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
    """From images to features of their regions"""

    network: str = "pixels"
    """pixels: none, the colours of a grid of cells. words: a small network that learns here to detect words about the
    training images. A name of keras.applications, such as MobileNetV2: with weights."""
    weights: common.File | None = None
    """Weights of a network of keras.applications without its top, .weights.h5 or .h5."""
    regions: Literal["grid", "windows"] = "grid"
    """grid: the cells of the network's last map. windows: overlapping windows of half the image's side, and the whole
    image, each seen by the network on its own."""
    grid: common.Positive | None = None
    """Cells or windows a side; none for 6 cells, 3 windows."""
    image_size: common.Positive | None = None
    """Side of the network's images in pixels, to which images of any shape are resized; none for 48 of pixels, 96 of
    words, 224 of the others."""
    feature_units: common.Positive = 128
    """Width of the last map of the network words."""

    @property
    def cells(self):
        """Cells or windows a side."""
        return self.grid or {"grid": 6, "windows": 3}[self.regions]

    @property
    def side(self):
        """Side of the network's images, in pixels."""
        return self.image_size or {"pixels": 48, "words": 96, None: 96}.get(self.network, 224)

    @property
    def num_regions(self):
        """Regions of an image."""
        return self.cells**2 + (self.regions == "windows")

    def check(self):
        if self.network not in (None, "pixels", "words", *NETWORKS):
            known = ", ".join(["pixels", "words", *NETWORKS])
            raise InputError(f"--network: expected one of {known}. Received: {self.network}")
        if self.network in NETWORKS and self.weights is None:
            raise InputError(f"--weights: {self.network} needs a file of weights; none are downloaded. Received: none")
        if self.network not in NETWORKS and self.weights is not None:
            raise InputError(f"--weights: the network {self.network or 'words'} reads none. Received: {self.weights}")
        if self.weights is not None and pathlib.Path(self.weights).suffix != ".h5":
            raise InputError(f"--weights: expected a .weights.h5 or .h5 file. Received: {self.weights}")
        if self.network == "pixels" and self.regions != "grid":
            raise InputError(f"--regions: the network pixels has a grid. Received: {self.regions}")
        if self.network == "pixels" and self.side % self.cells:
            raise InputError(
                f"--image-size: expected a multiple of --grid, {self.cells}, for the network pixels. "
                f"Received: {self.side}"
            )
        if self.side < 2 * self.cells and self.regions == "grid" and self.network in (None, "words"):
            raise InputError(f"--image-size: expected twice --grid, {self.cells}, at least. Received: {self.side}")


# They make a run's features: a run that starts from another has the same.
EXTRACTOR_OPTIONS = tuple(field.name for field in dataclasses.fields(ExtractorOptions))


@dataclasses.dataclass
class RegionOptions(ExtractorOptions):
    """Image regions; features of a file, or made here of images"""

    network: str | None = None
    """pixels, words or a name of keras.applications, as for the command features; none: words for images, and exact
    features, without a network, for rendered scenes."""
    features: Existing | None = None
    """Region features: an .h5 file laid out as bottom-up attention's, or a folder of the command `features`; the
    network is not used then. `python -m tools.convert_regions` makes the file of .npz, .npy and .tsv."""
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
        if self.features is None and self.num_regions > self.max_regions:
            raise InputError(
                f"--max-regions: expected {self.num_regions} at least, the regions of an image. "
                f"Received: {self.max_regions}"
            )

    def check_beside(self, name, file):
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
        drawn = self.of_model(published)
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
    words: common.File | None = None
    """Words about the images, for the network words: an image, a tab and words a line, plain or .gz."""
    extractor: ExtractorOptions = common.group(ExtractorOptions)
    # The option of a program with a file of its own that has words about the images.
    said_in: ClassVar[str | None] = None

    @property
    def word_file(self):
        """The file with words about the images."""
        return self.words or (self.said_in and getattr(self, self.said_in))

    def check(self):
        if self.words is not None and self.said_in and getattr(self, self.said_in) is not None:
            raise InputError(f"--words: --{self.said_in} has the words; leave out one of the two.")
        if self.extractor.network == "words" and self.word_file is None:
            raise InputError("--words: the network words learns what is said about the images. Received: none")
        if self.extractor.network != "words" and self.word_file is not None:
            raise InputError(
                f"--words: the network {self.extractor.network} learns no words; choose --network words. "
                f"Received: {self.word_file}"
            )
        if pathlib.Path(self.out, REGIONS).exists():
            raise InputError(
                f"--out: {self.out} has features already; choose another folder. Received: {REGIONS} in it"
            )
        if pathlib.Path(self.out).is_file():
            raise InputError(f"--out: expected a folder. Received: the file {self.out}")
