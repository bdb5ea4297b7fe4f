"""
Edges: where requests come in, and where other people's frameworks begin.

A channel reads, the acceptor commits, the ingress answers. Nothing is answered before it is
committed, and nothing that can fail happens after.
"""
