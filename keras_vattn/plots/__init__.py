"""Pictures of alignments and of training: matplotlib figures made without pyplot, so no state is left behind."""

from keras_vattn.plots.alignment_heat_map import alignment_heat_map
from keras_vattn.plots.image_attention import image_attention
from keras_vattn.plots.quality_diversity import quality_diversity
from keras_vattn.plots.training_curves import training_curves

__all__ = ["alignment_heat_map", "image_attention", "quality_diversity", "training_curves"]
