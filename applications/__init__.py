"""Programs built with keras_vattn. To run one from a checkout: `python -m applications.NAME COMMAND`."""

import os

# Hide TensorFlow's start-up messages, which are longer than the programs' output. A value set by the user is kept.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
