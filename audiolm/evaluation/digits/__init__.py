"""Spoken digits: which digit is said, and by whom."""
