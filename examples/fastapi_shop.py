"""
A shop on FastAPI and SQLAlchemy: an order is placed once, however often its request is sent.

    export SEMEL_DSN=$(semel db start --json | jq -r .dsn)    # or your own database's
    semel migrate
    uvicorn --app-dir examples fastapi_shop:app

    curl -i localhost:8000/orders -H 'X-User: alice' -H 'Idempotency-Key: order-1' \\
        -H 'Content-Type: application/json' -d '{"item": "lamp", "pieces": 2}'

Sent again, the answer is the same to the byte and nothing is done; with other pieces it is 422.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Response
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, Field
from sqlalchemy import URL, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from semel.fastapi import Once, OnceRoute, Operation

_dsn = conninfo_to_dict(os.environ["SEMEL_DSN"])
engine = create_async_engine(
    URL.create("postgresql+psycopg", query={k: str(v) for k, v in _dsn.items()})
)


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "fastapi_stock"
    item: Mapped[str] = mapped_column(primary_key=True)
    pieces: Mapped[int]


class Order(Base):
    __tablename__ = "fastapi_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str]
    item: Mapped[str]
    pieces: Mapped[int]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
        await conn.execute(
            text("insert into fastapi_stock values ('lamp', 10) on conflict do nothing")
        )
    yield
    await engine.dispose()


async def session() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine) as session:
        yield session


async def user(x_user: Annotated[str | None, Header()] = None) -> str:
    """Whoever your authentication says; it runs before anything is replayed."""
    if not x_user:
        raise HTTPException(401, "who are you?")
    return x_user


once = Once(project="shop", connection=session, actor=user)
app = FastAPI(lifespan=lifespan)
router = APIRouter(route_class=OnceRoute)


class NewOrder(BaseModel):
    item: str
    pieces: Annotated[int, Field(gt=0)]


class Receipt(BaseModel):
    order: int
    left: int


@router.post("/orders", status_code=201)
async def place(
    new: NewOrder,
    session: Annotated[AsyncSession, Depends(session)],  # the one that is committed
    user: Annotated[str, Depends(user)],
    op: Annotated[Operation, Depends(once)],
    response: Response,
) -> Receipt:
    stock = await session.get(Stock, new.item, with_for_update=True)
    if stock is None:
        raise HTTPException(404, f"no such item: {new.item}")
    stock.pieces -= new.pieces
    order = Order(user=user, item=new.item, pieces=new.pieces)
    session.add(order)
    await session.flush()
    if stock.pieces < 0:  # what was written is undone, and the same request may succeed later
        raise HTTPException(409, "not enough of it left")
    op.journal("orders", {"order": order.id})
    response.headers["Location"] = f"/orders/{order.id}"
    return Receipt(order=order.id, left=stock.pieces)


@router.get("/orders")
async def orders(session: Annotated[AsyncSession, Depends(session)]) -> list[int]:
    return list(await session.scalars(select(Order.id).order_by(Order.id)))


app.include_router(router)
