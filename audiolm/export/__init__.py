"""A trained model as a folder to share: weights, codec, samples, metrics and a model card."""
