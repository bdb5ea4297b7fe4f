"""
REST: what every framework's adapter decides alike, without knowing a framework.

    asked     the request as the rules see it
    rules     what a route may set
    key       whether this request is an operation, and under which key
    digest    what of a request must agree with its retry
    answer    what is kept of an answer, and how it is sent again
    refusal   errors as application/problem+json

Here nothing is executed and no database is spoken to; `edges.frameworks` does both.
"""
