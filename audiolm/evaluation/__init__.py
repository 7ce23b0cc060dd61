"""What can be said of a model, and of generated clips, without listening to them."""
