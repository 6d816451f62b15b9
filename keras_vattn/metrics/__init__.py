from keras_vattn.metrics.conformal import conformal_sets, conformal_threshold
from keras_vattn.metrics.latents import active_units, latent_mutual_information
from keras_vattn.metrics.out_of_distribution import energy, out_of_distribution_detection
from keras_vattn.metrics.pavpu import PavpuResult, pavpu
from keras_vattn.metrics.perplexity import Perplexity, predictive_log_likelihood
from keras_vattn.metrics.sequences import sequence_uncertainty
from keras_vattn.metrics.temperature import fit_temperature
from keras_vattn.metrics.uncertainty import (
    brier_score,
    expected_calibration_error,
    mutual_information,
    negative_log_likelihood,
    predictive_entropy,
    risk_coverage_area,
)

__all__ = [
    "PavpuResult",
    "Perplexity",
    "active_units",
    "brier_score",
    "conformal_sets",
    "conformal_threshold",
    "energy",
    "expected_calibration_error",
    "fit_temperature",
    "latent_mutual_information",
    "mutual_information",
    "negative_log_likelihood",
    "out_of_distribution_detection",
    "pavpu",
    "predictive_entropy",
    "predictive_log_likelihood",
    "risk_coverage_area",
    "sequence_uncertainty",
]
