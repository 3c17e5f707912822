"""Every precondition of a sweep that concerns the server and this machine, checked in one go and without a restart.

Each is good, a warning or wrong, and says what was found and what to do. GPUs and the sandbox are checked by those who
know them; `Check` is the form of all.
"""

from __future__ import annotations

import email.utils
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from loadgen.records import AcceptanceSource, Generator
from loadgen.spec import Target
from reconfig.expectations import Expected, expectations
from reconfig.flags import ENVIRONMENT, CannotExpress, Vocabulary
from reconfig.managers.protocol import Manager
from reconfig.presets import Preset
from reconfig.proof import judge, probe_request
from reconfig.server import HttpServer, ServerFacts

Verdict = Literal["good", "warning", "wrong"]
PROBE_LIMIT_S = 60.0
SPACE_WANTED = 2 * 1024**3
SPACE_NEEDED = 200 * 1024**2
CLOCK_WARNING_S = 2.0
ALL_SETTINGS = 100
"""A server that shows so many settings shows all of them: what is missing there, it does not know."""


class Check(msgspec.Struct, frozen=True):
    """One precondition: its name, how it is, what was found, and the cure (empty when good)."""

    name: str
    state: Verdict
    what: str
    cure: str = ""


async def check_all(
    *,
    target: Target,
    manager: Manager,
    presets: Sequence[Preset],
    vocabulary: Vocabulary,
    generator: Generator,
    folder: Path,
    lengths: Mapping[str, int] | None = None,
) -> list[Check]:
    """All checks of the server, its manager and this machine, in the order in which they are shown.

    Args:
        target: the server under test.
        manager: whatever restarts it.
        presets: what the sweep asks for.
        vocabulary: how the server spells it.
        generator: runs one generation, for usage and acceptance figures.
        folder: where sessions are kept.
        lengths: tokens of the longest requests, prompt and output together, by what they are for.
    """
    server = HttpServer(target)
    checks = [await check_reachable(target, server, manager)]
    running = checks[0].state == "good"
    facts = await server.facts() if running else None
    checks += [Check(*found) for found in await manager.check()]  # type: ignore[arg-type]
    checks += check_flags(presets, vocabulary, facts)
    if running:
        checks.append(await check_model(target, server))
        checks += await check_lengths(server, lengths or {})
        checks.append(await check_metrics(server, facts))
        checks += await check_generation(generator)
        checks.append(await check_clock(server))
    checks.append(check_space(folder))
    return checks


async def check_reachable(target: Target, server: HttpServer, manager: Manager) -> Check:
    """Whether the server answers, and lets us in."""
    if not await server.port_open():
        if manager.restarts_server:
            return Check(
                "server",
                "warning",
                f"nothing answers at {target.base_url}; it will be started",
                "start it for more checks",
            )
        return Check("server", "wrong", f"nothing answers at {target.base_url}", "start it, or correct base_url")
    status = await server.status("/v1/models")
    if status in {401, 403}:
        cure = "name the variable that holds the key in api_key_env" if target.api_key is None else "correct the key"
        return Check("server", "wrong", f"{target.base_url} refuses us (HTTP {status})", cure)
    if status != 200:
        return Check("server", "wrong", f"{target.base_url}/v1/models: {status}", "correct base_url")
    health = await server.health()
    if not health.good:
        return Check(
            "server", "warning", f"{target.base_url} answers; /health says {health.words}", "wait until it is up"
        )
    return Check("server", "good", f"{target.base_url} answers and is healthy")


async def check_model(target: Target, server: HttpServer) -> Check:
    """Whether the configured model is the served one."""
    listing = await server.listing()
    served = ", ".join(listing.models) if listing is not None and listing.models else "nothing"
    if listing is None or (target.model and target.model not in listing.models):
        return Check("model", "wrong", f'"{target.model}" is wanted, {served} is served', "correct model in [server]")
    limit = f", at most {listing.max_model_len} tokens" if listing.max_model_len else ""
    return Check("model", "good", f"{target.model or served}{limit}")


async def check_lengths(server: HttpServer, lengths: Mapping[str, int]) -> list[Check]:
    """Whether the server can hold the longest requests; nothing where it tells no limit."""
    listing = await server.listing()
    if listing is None or listing.max_model_len is None:
        return []
    limit = listing.max_model_len
    return [
        Check("length", "warning", f"{what}: {tokens} tokens, the server holds {limit}", "lower contexts or max_tokens")
        for what, tokens in lengths.items()
        if tokens > limit
    ]


def check_flags(presets: Sequence[Preset], vocabulary: Vocabulary, facts: ServerFacts | None) -> list[Check]:
    """Whether the vocabulary has words for every preset, and this server's version knows them."""
    checks = []
    unknown: dict[str, list[str]] = {}
    for preset in presets:
        try:
            expected = expectations(preset, vocabulary)
        except CannotExpress as error:
            checks.append(
                Check("flags", "wrong", str(error), "choose another vocabulary in [flags], or give own words")
            )
            continue
        for item in expected:
            flag = _unknown(item, facts) if facts is not None else None
            if flag is not None:
                unknown.setdefault(flag, []).append(preset.name)
    version = f"this server ({facts.look_up('version') or 'version unknown'})" if facts is not None else ""
    certain = facts is not None and len(facts.names()) >= ALL_SETTINGS
    checks += [
        Check(
            "flags",
            "wrong" if certain and flag.startswith("--speculative-") else "warning",
            f"{version} shows no setting for {flag} (presets {', '.join(names)}); it may refuse to start",
            "choose the vocabulary of this server in [flags]",
        )
        for flag, names in unknown.items()
    ]
    if checks:
        return checks
    where = f"; {version} knows them all" if facts is not None else ""
    return [Check("flags", "good", f'{len(presets)} presets in the vocabulary "{vocabulary.name}"{where}')]


async def check_metrics(server: HttpServer, facts: ServerFacts | None) -> Check:
    """Whether the server's own gauges can be read."""
    if await server.status("/metrics") == 200:
        return Check("metrics", "good", "/metrics is there")
    cure = "start the server with --enable-metrics" if facts is not None else "switch the server's metrics on"
    return Check("metrics", "warning", "no /metrics: the server's own gauges stay empty", cure)


async def check_generation(generator: Generator) -> list[Check]:
    """Whether a generation succeeds, with usage, and with acceptance figures of its own."""
    generation = await generator.generate(probe_request(PROBE_LIMIT_S))
    problem = judge(generation)
    if problem is not None:
        return [Check("generation", "wrong", problem, "look at the server's log")]
    checks = [Check("generation", "good", "a generation succeeds, with usage")]
    source = generation.record.acceptance_source
    if source is AcceptanceSource.PER_REQUEST:
        checks.append(Check("acceptance", "good", "figures come with each request"))
    else:
        checks.append(
            Check(
                "acceptance",
                "warning",
                "no acceptance figures with a request (no speculation now, or an older server)",
                "they are then taken from the server's counters",
            )
        )
    return checks


async def check_clock(server: HttpServer) -> Check:
    """Whether this machine's clock agrees with the server's, so that logs can be laid side by side."""
    said = await server.date()
    if said is None:
        return Check("clock", "good", "the server does not tell its time")
    try:
        apart_s = time.time() - email.utils.parsedate_to_datetime(said).timestamp()
    except ValueError:
        return Check("clock", "warning", f"the server's date makes no sense: {said}", "look at its clock")
    # The header has whole seconds.
    if -CLOCK_WARNING_S <= apart_s <= CLOCK_WARNING_S + 1.0:
        return Check("clock", "good", "agrees with the server's")
    return Check("clock", "warning", f"{abs(apart_s):.0f} s apart from the server's", "synchronise both clocks (NTP)")


def check_space(folder: Path) -> Check:
    """Whether there is room for a session."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    words = f"{free / 1024**3:.1f} GiB free at {place}"
    if free < SPACE_NEEDED:
        return Check("disk", "wrong", words, "make room, or choose another place with --sessions-dir")
    if free < SPACE_WANTED:
        return Check("disk", "warning", words, "a long sweep with its texts may need more")
    return Check("disk", "good", words)


def _unknown(item: Expected, facts: ServerFacts) -> str | None:
    """The flag of a setting that a server shows no key for; `None` where it shows one."""
    flag = next((word.partition("=")[0] for word in item.argument if word.startswith("--")), None)
    if flag is None:
        return None
    shown = facts.names()
    own = flag.lstrip("-").replace("-", "_")
    keys = [name for name, _ in item.keys if not name.startswith(ENVIRONMENT)]
    settles = [name for name in keys if name != "speculative_num_draft_tokens"] or keys
    return None if own in shown or any(name in shown for name in settles) else flag
