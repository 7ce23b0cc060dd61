"""A codec on recordings that it was not trained on."""
