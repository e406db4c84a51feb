"""everturn's awaited face on every backend, as factories. (Its blocking face is what a URL opens.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import everturn
from everturn.testing.kit.store_urls import factory as of_url


async def sqlite(where: Path, ttl: float | None = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - the kit calls it so
    return await everturn.open_async(f"sqlite:///{where}/memory.db", **given(ttl, timeout))


async def redis(where: Path, redis_url: str, ttl: float | None = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109
    return await everturn.open_async(redis_url, namespace=where.name, warnings="off", **given(ttl, timeout))


async def postgres(where: Path, postgres_url: str, ttl: float | None = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109
    return await everturn.open_async(postgres_url, namespace=where.name, **given(ttl, timeout))


async def dynamodb(where: Path, dynamodb_endpoint: str, ttl: float | None = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109
    url = f"dynamodb://everturn?region=us-east-1&create=true&endpoint={dynamodb_endpoint}"
    return await everturn.open_async(url, namespace=where.name, **given(ttl, timeout))


redis.corrupt = of_url("redis://").corrupt  # type: ignore[attr-defined]
postgres.corrupt = of_url("postgresql://").corrupt  # type: ignore[attr-defined]
dynamodb.corrupt = of_url("dynamodb://").corrupt  # type: ignore[attr-defined]


def given(ttl: float | None, timeout: float | None) -> dict[str, float]:
    return {name: value for name, value in (("ttl", ttl), ("timeout", timeout)) if value is not None}
