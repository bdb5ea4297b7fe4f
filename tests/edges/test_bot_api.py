"""The Bot API of our tests is one to python-telegram-bot and to aiogram."""

import asyncio

import pytest
from aiogram import Bot as AioBot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    TelegramConflictError,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from telegram import Bot as PtbBot
from telegram.error import Conflict, InvalidToken, RetryAfter

from bot_api import TOKEN, BotApi, bot_api, refused
from fix_world import until

MESSAGE = {
    "message": {
        "message_id": 1,
        "date": 1,
        "chat": {"id": 5, "type": "private", "first_name": "A"},
        "text": "hi",
    }
}


def ptb(api: BotApi, token: str = TOKEN) -> PtbBot:
    return PtbBot(token, base_url=f"{api.url}/bot")


def aio(api: BotApi, token: str = TOKEN) -> AioBot:
    server = TelegramAPIServer.from_base(api.url)
    return AioBot(token, session=AiohttpSession(api=server))


def test_python_telegram_bot_reads_confirms_and_forgets() -> None:
    async def play(api: BotApi) -> None:
        async with ptb(api) as bot:
            ids = api.push(MESSAGE, MESSAGE, MESSAGE)
            first = await bot.get_updates(limit=2, timeout=0)
            assert [update.update_id for update in first] == ids[:2]
            assert first[0].message is not None
            assert first[0].message.text == "hi"
            assert api.pending == ids
            rest = await bot.get_updates(offset=ids[1] + 1, timeout=0)
            assert [update.update_id for update in rest] == ids[2:]
            assert api.pending == ids[2:]
            assert await bot.get_updates(offset=ids[2] + 1, timeout=0) == ()

    with bot_api() as api:
        asyncio.run(play(api))
        assert api.pending == []


def test_aiogram_reads_confirms_and_forgets() -> None:
    async def play(api: BotApi) -> None:
        bot = aio(api)
        try:
            ids = api.push(MESSAGE, MESSAGE)
            found = await bot.get_updates(timeout=0)
            assert [update.update_id for update in found] == ids
            api.push(MESSAGE, MESSAGE)
            last = await bot.get_updates(offset=-1, timeout=0)
            assert [update.update_id for update in last] == [ids[1] + 2]
            assert len(api.pending) == 1
        finally:
            await bot.session.close()

    with bot_api() as api:
        asyncio.run(play(api))


def test_an_offset_far_above_the_tail_is_answered_from_the_oldest() -> None:
    async def play(api: BotApi) -> None:
        async with ptb(api) as bot:
            ids = api.push(MESSAGE)
            found = await bot.get_updates(offset=ids[0] + 100, timeout=0)
            assert [update.update_id for update in found] == ids
            assert await bot.get_updates(offset=ids[0] + 11, timeout=0) == ()

    with bot_api() as api:
        asyncio.run(play(api))


def test_who_waits_is_ended_by_the_next_and_by_a_webhook() -> None:
    async def play(api: BotApi) -> None:
        async with ptb(api) as one, ptb(api) as two:
            waiting = asyncio.create_task(one.get_updates(timeout=10))
            await asyncio.to_thread(until, lambda: api.open)
            await two.get_updates(timeout=0)
            with pytest.raises(Conflict, match="other getUpdates"):
                await waiting
            await two.set_webhook("https://example.com/x")
            with pytest.raises(Conflict, match="webhook"):
                await two.get_updates(timeout=0)
            await two.delete_webhook()
            assert await two.get_updates(timeout=0) == ()

    with bot_api() as api:
        asyncio.run(play(api))


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")
def test_both_clients_understand_its_refusals() -> None:
    async def play(api: BotApi) -> None:
        bot = aio(api)
        try:
            api.webhook = "https://example.com/x"
            with pytest.raises(TelegramConflictError):
                await bot.get_updates(timeout=0)
            api.answers += [refused(429, "Too Many Requests: retry after 7", retry_after=7)] * 2
            with pytest.raises(TelegramRetryAfter) as told:
                await bot.get_updates(timeout=0)
            assert told.value.retry_after == 7
            async with ptb(api) as other:
                with pytest.raises(RetryAfter):
                    await other.get_updates(timeout=0)
            api.tokens.clear()
            with pytest.raises(TelegramUnauthorizedError):
                await bot.get_updates(timeout=0)
            with pytest.raises(InvalidToken):
                async with ptb(api):
                    pass
        finally:
            await bot.session.close()

    with bot_api() as api:
        asyncio.run(play(api))
