"""What can be told of generated clips without listening to them."""

from audiolm.evaluation.detectors import Loop, Silence, longest_loop, longest_run, longest_silence

__all__ = ["Loop", "Silence", "longest_loop", "longest_run", "longest_silence"]
