"""Recordings: which clips a folder, a table or a public set holds, and what is wrong with them."""
