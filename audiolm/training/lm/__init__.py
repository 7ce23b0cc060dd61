"""Training the language model: its LightningModule, its data, its summary and its samples."""
