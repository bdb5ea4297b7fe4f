"""
Operations of FastAPI: routes whose handler and answer are committed together, once.

    once = Once(project="shop", connection=session, actor=user_id)
    router = APIRouter(route_class=OnceRoute)

    @router.post("/payments", status_code=201)
    async def pay(payment: Payment, op: Annotated[Operation, Depends(once)]) -> Receipt: ...

Needs the extra `fastapi`.
"""

from semel.edges.frameworks.fastapi import Once, OnceRoute
from semel.edges.operation import Operation

__all__ = ["Once", "OnceRoute", "Operation"]
