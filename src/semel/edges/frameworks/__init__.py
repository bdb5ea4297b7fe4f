"""edges/frameworks."""
