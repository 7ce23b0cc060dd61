"""What every clip is checked for before it is encoded, and the report of it."""
