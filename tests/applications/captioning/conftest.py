import pytest
from captioning_cases import run_of


@pytest.fixture(scope="module")
def run_of_model(tmp_path_factory):
    """Returns the function that makes a run with these options, once for a module."""
    runs = {}

    def run_of_model(model="soft", **values):
        key = (model, *sorted(values.items()))
        if key not in runs:
            runs[key] = run_of(tmp_path_factory.mktemp(model), model=model, **values)
        return runs[key]

    return run_of_model
