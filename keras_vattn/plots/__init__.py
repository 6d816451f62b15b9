"""Pictures of alignments: matplotlib figures made without pyplot, so no state is left behind."""

from keras_vattn.plots.alignment_heat_map import alignment_heat_map
from keras_vattn.plots.image_attention import image_attention

__all__ = ["alignment_heat_map", "image_attention"]
