"""Parse the names of inference modes. This module must not import TensorFlow, because options.py imports it."""

import dataclasses
import re

from applications.common.errors import InputError


@dataclasses.dataclass(frozen=True)
class Inference:
    """The method by which a model with a latent alignment computes the probability of a word.

    Attributes:
        kind: Name of the method:
            "exact": sum over all alignments.
            "kmax": sum over the K most probable alignments, with renormalised weights.
            "soft": use the expected context.
            "sample": average over n alignments sampled from the prior.
        count: K for "kmax", n for "sample", `None` otherwise.
    """

    kind: str
    count: int | None

    @classmethod
    def parse(cls, name, continuous=False):
        """Parse exact, kmax:K, soft or sample:n; raise `InputError` for other names.

        If the alignments are `continuous`, exact and kmax:K also raise `InputError`.
        """
        match = re.fullmatch(r"(exact|soft)|(kmax|sample):([1-9]\d*)", name)
        if match is None:
            raise InputError(f"--inference: expected exact, kmax:K, soft or sample:n. Received: {name}")
        kind, count = match[1] or match[2], None if match[3] is None else int(match[3])
        if continuous and kind in ("exact", "kmax"):
            raise InputError(
                "--inference: the alignments of this model are continuous; use their mean (soft) or "
                f"draws (sample:n). Received: {name}"
            )
        return cls(kind, count)

    @property
    def perplexity(self):
        """Label of the perplexity in reports, for instance "plug-in"."""
        names = {"exact": "exact", "kmax": f"K-max {self.count}", "soft": "plug-in"}
        return names.get(self.kind, f"predictive({self.count})")

    def objective(self):
        """Return the `keras_vattn.LatentObjective` that implements this inference."""
        import keras_vattn

        if self.kind == "soft":
            return keras_vattn.LatentObjective("soft")
        if self.kind == "sample":
            return keras_vattn.LatentObjective("hard/sample", num_samples=self.count, inference="hard/sample")
        return keras_vattn.LatentObjective("marginal", top_k=self.count)
