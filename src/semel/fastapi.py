"""
Operations of FastAPI: routes whose handler and answer are committed together, once.

    once = Once(project="shop", connection=session, actor=user_id)
    router = APIRouter(route_class=OnceRoute)

    @router.post("/payments", status_code=201)
    async def pay(payment: Payment, op: Annotated[Operation, Depends(once)]) -> Receipt: ...

Needs the extra `fastapi`.
"""

try:
    import fastapi as _fastapi
except ImportError as missing:
    raise ImportError(f"{missing}: pip install 'semel[fastapi]'") from missing

from semel.edges.frameworks.fastapi import Once
from semel.edges.frameworks.fastapi_route import OnceRoute
from semel.edges.operation import Operation

del _fastapi

__all__ = ["Once", "OnceRoute", "Operation"]
