"""
The client: httpx, with one key for each user action and retries that cannot do a thing twice.

Whether a request may be sent again is decided in `course`, how long to wait in `patience`; the
two clients, with and without await, only send. No key is ever made anew for a retry, and no
request without a key is sent twice, but GET and HEAD.
"""
