"""
Frameworks: the REST rules in the words of ASGI, FastAPI, Django and Flask.

An adapter reads the request, runs the handler and sends what the ledger decided, in the order that
makes it true: authorisation, begin, handler, commit, answer, background tasks. It decides nothing
about keys, digests or outcomes; `edges.rest` does. The public modules `semel.asgi`,
`semel.fastapi`, `semel.django` and `semel.flask` only name what is here.
"""
