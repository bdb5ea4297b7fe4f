"""
tRPC over HTTP: the wire of @trpc/client 10 and 11, and mutations that execute once.

    wire      a request, read into calls       keys     which key each call has
    procedures  what may be called              inputs   what a call was given
    superjson, javascript  values on the wire   ledger   a mutation in its one transaction
    answers, jsonl  what goes back              application  the ASGI door

The registry decides what is a mutation, never the HTTP method. Nothing here judges an operation:
that is SQL's, behind `ledger`.
"""
