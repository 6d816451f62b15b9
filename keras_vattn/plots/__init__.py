"""Plot alignments and predictions as matplotlib figures (without pyplot) or interactive Altair charts."""

from keras_vattn.plots.alignment_heat_map import alignment_heat_map
from keras_vattn.plots.image_attention import image_attention
from keras_vattn.plots.interactive_alignment import interactive_alignment
from keras_vattn.plots.reliability_diagram import reliability_diagram
from keras_vattn.plots.risk_coverage_curve import risk_coverage_curve

__all__ = [
    "alignment_heat_map",
    "image_attention",
    "interactive_alignment",
    "reliability_diagram",
    "risk_coverage_curve",
]
