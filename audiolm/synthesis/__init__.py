"""A checkpoint becomes sound."""
