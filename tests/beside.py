"""What another connection does meanwhile, in a thread, until the database says that it waits."""

import threading
from collections.abc import Callable
from typing import Any

from fix_world import Conn, until_blocked


class Beside:
    """What another connection does meanwhile, in a thread."""

    def __init__(self, conn: Conn, act: Callable[[Conn], Any]) -> None:
        self._said: list[Any] = []

        def do() -> None:
            try:
                self._said.append(act(conn))
            except BaseException as error:  # noqa: BLE001 - handed over
                self._said.append(error)

        self._thread = threading.Thread(target=do, daemon=True)
        self._thread.start()

    def said(self) -> Any:
        self._thread.join(30)
        [answer] = self._said
        if isinstance(answer, BaseException):
            raise answer
        return answer


def blocked(conn: Conn, other: Conn, act: Callable[[Conn], Any]) -> Beside:
    """*act* on *other*, which waits for what *conn* holds."""
    beside = Beside(other, act)
    until_blocked(conn, other.info.backend_pid)
    return beside
