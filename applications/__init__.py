"""The programs built with keras_vattn. They run from a checkout: `python -m applications.NAME COMMAND`."""

import os

# TensorFlow's start-up messages would bury the programs' output. A value set by the user is not overwritten.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
