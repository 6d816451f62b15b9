"""The ways to predict with a latent alignment. Nothing here imports TensorFlow."""

import dataclasses
import re

from applications.common.errors import InputError


@dataclasses.dataclass(frozen=True)
class Inference:
    """A way to predict with a latent alignment.

    Attributes:
        kind: "exact" sums over all alignments, "kmax" over the K most probable ones, renormalised, "soft" takes the
            expected context, "sample" averages over n draws from p.
        count: K or n, or `None`.
    """

    kind: str
    count: int | None

    @classmethod
    def parse(cls, name, continuous=False):
        """Return the inference of a name, exact, kmax:K, soft or sample:n; `InputError` for another name, or for a sum
        over `continuous` alignments."""
        match = re.fullmatch(r"(exact|soft)|(kmax|sample):([1-9]\d*)", name)
        if match is None:
            raise InputError(f"--inference: expected exact, kmax:K, soft or sample:n. Received: {name}")
        kind, count = match[1] or match[2], None if match[3] is None else int(match[3])
        if continuous and kind in ("exact", "kmax"):
            raise InputError(
                "--inference: the alignments of this model are continuous; they are taken at their mean (soft) or "
                f"drawn (sample:n). Received: {name}"
            )
        return cls(kind, count)

    @property
    def perplexity(self):
        """The kind of the perplexity that this inference has."""
        names = {"exact": "exact", "kmax": f"K-max {self.count}", "soft": "plug-in"}
        return names.get(self.kind, f"predictive({self.count})")

    def objective(self):
        """Return the `keras_vattn.LatentObjective` whose evaluation this is."""
        import keras_vattn

        if self.kind == "soft":
            return keras_vattn.LatentObjective("soft")
        if self.kind == "sample":
            return keras_vattn.LatentObjective("hard/sample", num_samples=self.count, inference="hard/sample")
        return keras_vattn.LatentObjective("marginal", top_k=self.count)
