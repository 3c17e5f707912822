"""Runs many coroutines at once and fails as one: the first error, as it was raised, after the others are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results in order.

    Raises:
        BaseException: whatever one of them raised first, not wrapped in a group, so that callers can catch it by type.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return [task.result() for task in tasks]
