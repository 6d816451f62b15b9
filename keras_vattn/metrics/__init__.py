from keras_vattn.metrics.perplexity import Perplexity, predictive_log_likelihood

__all__ = ["Perplexity", "predictive_log_likelihood"]
