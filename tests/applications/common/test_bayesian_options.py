"""The forms of drawn weights that paper and published code do not share, in every program that draws them."""

import importlib

import pytest
from nmt_cases import made

import keras_vattn
from applications.common.bayesian_options import BayesianOptions, PublishedOptions

FORMS = {"parameterization": "raw", "kl_estimator": "sampled"}


@pytest.mark.parametrize("program", ["captioning", "finetuning", "graphs", "nmt", "vqa"])
def test_the_forms_are_options(program, tmp_path):
    for name, forms in (("published", {}), ("printed", FORMS)):
        folder = tmp_path / name
        folder.mkdir()
        if program == "nmt":
            run = made("wc", **forms)
        else:
            run = importlib.import_module(f"{program}_cases").run_of(folder, model="wc", **forms)
        layers = [x for x in keras_vattn.stochastic_layers(run.models.training) if hasattr(x, "alignment")]
        found = {(x.alignment.parameterization, x.alignment.kl_estimator) for x in layers}
        assert found == {tuple(forms.values()) or ("normalized", "analytic")}


def test_the_forms_of_lognormal_weights():
    options = PublishedOptions(**FORMS).of_model({"lognormal_sigma": 0.1, "annealing_rate": 1.0})
    assert options == BayesianOptions(lognormal_sigma=0.1, prior_hidden_units=10, **FORMS)
    alignment = options.alignment("lognormal")
    assert (alignment.sigma, alignment.parameterization, alignment.kl_estimator) == (0.1, "raw", "sampled")
