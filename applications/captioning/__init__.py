"""Image captioning with an attention decoder over regions; `python -m applications.captioning`."""
