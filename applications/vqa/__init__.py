"""Visual question answering with latent and Bayesian attention."""
