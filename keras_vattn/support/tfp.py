"""Import the names of TensorFlow Probability that the library uses. Other modules must not import the package."""

import tensorflow_probability as tfp

Categorical = tfp.distributions.Categorical
Distribution = tfp.distributions.Distribution
Independent = tfp.distributions.Independent
Normal = tfp.distributions.Normal
OneHotCategorical = tfp.distributions.OneHotCategorical
VectorDeterministic = tfp.distributions.VectorDeterministic
FULLY_REPARAMETERIZED = tfp.distributions.FULLY_REPARAMETERIZED
RegisterKL = tfp.distributions.RegisterKL
kl_divergence = tfp.distributions.kl_divergence
ParameterProperties = tfp.util.ParameterProperties
sanitize_seed = tfp.random.sanitize_seed
split_seed = tfp.random.split_seed
