"""
The only I/O to PostgreSQL: run calls, keep connections, apply the schema, run a server.

Nothing here decides anything about runs or events; that is SQL's. Nothing above this room
sends a statement of its own to a Semel function.
"""
