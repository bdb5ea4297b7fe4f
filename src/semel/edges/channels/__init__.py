"""edges/channels."""
