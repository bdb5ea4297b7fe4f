"""The protocol: tables once, functions whole, views for reading. README.md is its map."""
