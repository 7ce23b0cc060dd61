"""Spoken sentences: the words that are understood."""
