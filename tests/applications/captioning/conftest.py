import pytest
from captioning_cases import run_of


@pytest.fixture(scope="module")
def run_of_model(tmp_path_factory):
    """Return a function that builds the untrained run of a model with given options, cached per module."""
    runs = {}

    def run_of_model(model="soft", **values):
        key = (model, *sorted(values.items()))
        if key not in runs:
            runs[key] = run_of(tmp_path_factory.mktemp(model), model=model, **values)
        return runs[key]

    return run_of_model
