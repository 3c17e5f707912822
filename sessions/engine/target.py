"""Small things asked of the server between cells, outside every measured request."""

from __future__ import annotations

import httpx

from loadgen.certificates import trusted
from loadgen.spec import Target

FLUSH_WAIT_S = 10.0


async def flush_cache(target: Target) -> bool:
    """Empties the server's prefix cache, waiting on the server's side until it is idle.

    Only SGLang offers it without being asked for at its start. Returns whether the server did it; a server that
    cannot is no failure, since prompts are unique from their first token and cached tokens are counted anyway.
    """
    if target.dialect != "sglang":
        return False
    headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    try:
        async with httpx.AsyncClient(
            timeout=FLUSH_WAIT_S + 5.0, headers=headers, trust_env=False, verify=trusted(target.base_url)
        ) as client:
            answer = await client.post(f"{target.base_url}/flush_cache", params={"timeout": FLUSH_WAIT_S})
    except httpx.HTTPError:
        return False
    return answer.is_success
