"""
Ops: how people and their tools look at Semel and work it.

The API, the metrics and the process that serves them with the ingress. What they show is read
from the views, what they change goes through the same functions as everything else.
"""
