"""Attention layers with a categorical alignment: the latent variable is a source position (Deng et al. 2018)."""

from keras_vattn.latent_alignment.categorical_attention import CategoricalAttention
from keras_vattn.latent_alignment.latent_log_likelihood import LatentLogLikelihood
from keras_vattn.latent_alignment.latent_objective import LatentObjective
from keras_vattn.latent_alignment.reward_to_go import RewardToGo
from keras_vattn.latent_alignment.token_log_likelihood import TokenLogLikelihood

__all__ = ["CategoricalAttention", "LatentLogLikelihood", "LatentObjective", "RewardToGo", "TokenLogLikelihood"]
