"""The command line: Hydra's start, overrides, errors in one line, and what a config builds."""
