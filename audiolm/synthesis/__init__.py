"""From a checkpoint to sound: `Synthesizer`, and the `Sample`s that it makes."""
