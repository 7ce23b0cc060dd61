"""Training a codec: its LightningModule, its data, its losses' parts and its codebooks."""
