from faults.fault import Fault

RELEASE = ("tests/test_release.py",)
ALONE = {"tests": RELEASE, "keyword": "alone", "slow_because": "an environment of its own"}

FAULTS = [
    Fault("release: an extra lacks a package", "pyproject.toml", '    "tyro>=1.0.6",\n', "", **ALONE),
    Fault("release: the layers need TensorFlow Probability without tf-keras", "pyproject.toml", "[tf]", "", **ALONE),
    Fault(
        "release: the layers need matplotlib",
        "plots/figure.py",
        "import os\n",
        "import os\n\nimport matplotlib\n",
        **ALONE,
    ),
    Fault(
        "release: links of the long description lead nowhere",
        "hatch_build.py",
        "_RELATIVE_LINK.sub(absolute, readme)",
        "readme",
        RELEASE,
        "relative",
        slow_because="a wheel is built",
    ),
]
