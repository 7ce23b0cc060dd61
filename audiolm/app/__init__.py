"""A trained model in the browser: controls, samples to listen to, checkpoints and codecs compared.

Only `page` imports Gradio, which the extra `app` installs.
"""
