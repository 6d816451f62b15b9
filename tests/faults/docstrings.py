from faults.fault import Fault

DOCSTRINGS = ("tests/test_docstrings.py",)

FAULTS = [
    Fault(
        "a score without its formula",
        "scores/bilinear.py",
        """    Formula:
        phi_(t,s) = "query"_t^T W "key"_s

""",
        "",
        DOCSTRINGS,
        "has_a_formula",
    ),
    Fault(
        "a formula with an open quote",
        "scores/bilinear.py",
        'W "key"_s',
        'W "key_s',
        DOCSTRINGS,
        "balanced",
    ),
    Fault(
        "a formula with an open parenthesis",
        "layers/gaussian_latent.py",
        'q(z | x) = "Normal"(mu, "diag"(sigma^2)), quad',
        'q(z | x) = "Normal"(mu, "diag"(sigma^2), quad',
        DOCSTRINGS,
        "balanced",
    ),
]
