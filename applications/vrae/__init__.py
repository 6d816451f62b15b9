"""Variational recurrent autoencoders with stochastic self-attention."""
