"""What a running server is and has: its settings as a preset, its vocabulary, who runs it, what it can tell.

What `init` writes into a new sweep file is found out here; nothing is changed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from loadgen.spec import DialectName, Target
from reconfig.effective import shown_settings
from reconfig.flags import ANY_ALGORITHM, AlgorithmWords, Spelling, Vocabulary
from reconfig.presets import AS_IS, Preset, name_of
from reconfig.processes import LocalProcesses, is_this_machine
from reconfig.redaction import Redactor
from reconfig.server import HttpServer, ServerFacts
from reconfig.vocabularies import VOCABULARIES

_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")
_CONTAINER = re.compile(r"(?:docker|libpod|crio|cri-containerd)[-/]([0-9a-f]{12})")


class RunBy(msgspec.Struct, frozen=True, kw_only=True):
    """Who seems to run the server, where that can be seen on this machine.

    Attributes:
        kind: the manager that fits; "manual" where nothing is known.
        unit: of systemd; `user`: one of a user's own systemd. `container`: the beginning of its id.
        command: the process's own command line, keys hidden.
        words: how it is known.
    """

    kind: Literal["systemd", "process", "command", "manual"]
    words: str
    unit: str | None = None
    user: bool = False
    container: str | None = None
    command: tuple[str, ...] = ()


class Interrogated(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a server told.

    Attributes:
        models: served ids; `max_model_len`: context limit in tokens.
        dialect: which family it is; `version`: its own word.
        preset: its present settings; `vocabulary`: the one that it speaks.
        settings: every speculative setting that it shows.
        max_running_requests, reasoning_parser: as shown, `None` where not.
        metrics, cache_report: whether it has them switched on; `None` where unknown.
        needs_key: it refused us for want of a key.
        launch_command: its arguments, keys hidden.
        problem: why nothing could be found out.
    """

    base_url: str
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    dialect: DialectName = "openai"
    version: str | None = None
    preset: Preset = Preset(name="none", algorithm="NONE")
    vocabulary: str = "mainline"
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    max_running_requests: int | None = None
    reasoning_parser: str | None = None
    metrics: bool | None = None
    cache_report: bool | None = None
    needs_key: bool = False
    launch_command: str | None = None
    run_by: RunBy = RunBy(kind="manual", words="not known")
    problem: str | None = None


async def interrogate(target: Target, *, server: HttpServer | None = None) -> Interrogated:
    """Asks a running server for everything it tells; a server that can't be asked is told in `problem`.

    Args:
        target: the server; its model's name does not matter.
        server: who asks, where that is not HTTP.
    """
    asked = server or HttpServer(target)
    if not await asked.port_open():
        return Interrogated(
            base_url=target.base_url,
            problem=f"nothing answers at {target.base_url}: start the server, or give another --base-url",
        )
    status = await asked.status("/v1/models")
    if status in {401, 403}:
        return Interrogated(
            base_url=target.base_url,
            needs_key=True,
            problem=f"{target.base_url} wants a key: name the environment variable that holds it in api_key_env",
        )
    listing, facts = await asked.listing(), await asked.facts()
    found = Interrogated(
        base_url=target.base_url,
        models=listing.models if listing is not None else (),
        max_model_len=listing.max_model_len if listing is not None else None,
        metrics=await asked.status("/metrics") == 200,
        run_by=run_by(target.base_url, Redactor([target.api_key])),
    )
    if listing is None:
        return msgspec.structs.replace(
            found, problem=f"{target.base_url} has no /v1/models (HTTP {status}): is it an inference server?"
        )
    if facts is None:
        other: DialectName = "vllm" if await asked.status("/version") == 200 else "openai"
        return msgspec.structs.replace(found, dialect=other, preset=Preset(name="as-is", algorithm=AS_IS))
    vocabulary = vocabulary_of(facts)
    return msgspec.structs.replace(
        found,
        dialect="sglang",
        version=facts.look_up("version"),
        preset=preset_of(facts, VOCABULARIES[vocabulary]),
        vocabulary=vocabulary,
        settings=shown_settings(facts),
        max_running_requests=_number(
            facts.look_up("effective_max_running_requests_per_dp") or facts.look_up("max_running_requests")
        ),
        reasoning_parser=_given(facts.look_up("reasoning_parser")),
        cache_report=facts.look_up("enable_cache_report") == "true",
        launch_command=Redactor([target.api_key]).clean(facts.launch_command or "") or None,
    )


def vocabulary_of(facts: ServerFacts) -> str:
    """The vocabulary whose keys a server shows; "mainline" where it shows none of the others'."""
    for name, marks in (
        ("dflash-tree-31069", "speculative_dflash_tree_verify"),
        ("fork-ddtree", "speculative_dflash_enable_ddtree"),
        ("dflash-tree-width-36196", "speculative_dflash_tree_width"),
        ("ddtree", "speculative_ddtree_topk"),
        ("ddtree-29907", "speculative_ddtree_budget"),
        ("mainline-early-window", "speculative_dflash_draft_window_size"),
    ):
        if _given(facts.look_up(marks)) not in {None, "false"}:
            return name
    shown = facts.names()
    if "speculative_ddtree_topk" in shown:
        return "ddtree"
    if "speculative_ddtree_budget" in shown:
        return "ddtree-29907"
    return "ddtree-27509" if facts.look_up("speculative_algorithm") == "DDTREE" else "mainline"


def preset_of(facts: ServerFacts, vocabulary: Vocabulary) -> Preset:
    """A server's present settings as a preset, read with a vocabulary."""
    algorithm = (_given(facts.look_up("speculative_algorithm")) or "NONE").upper()
    if algorithm == "NONE":
        return Preset(name="none", algorithm="NONE")
    tree = vocabulary.algorithms.get("DDTREE")
    if tree is not None and algorithm == "DFLASH" and tree.shows == "DFLASH" and _tree_is_on(facts, tree):
        algorithm = "DDTREE"
    words = vocabulary.algorithms.get(algorithm) or vocabulary.algorithms.get(ANY_ALGORITHM)
    preset = Preset(name="", algorithm=algorithm)
    if words is not None:
        window = _read(facts, words.window)
        tree_width = words.budget is not None and words.tree_width_plus is not None
        block = words.block_size
        if block is not None and tree_width:
            # In tree mode the number of draft tokens shows the tree, not the block.
            block = msgspec.structs.replace(block, keys=block.keys[:1])
        preset = Preset(
            name="",
            algorithm=algorithm,
            budget=_read(facts, words.budget),
            topk=_read(facts, words.topk),
            block_size=_read(facts, block),
            window=None if words.window is None else (window or "none"),
        )
    return msgspec.structs.replace(preset, name=name_of(preset))


def run_by(base_url: str, redactor: Redactor) -> RunBy:
    """Who runs the process that listens on a local server's port."""
    parts = urlsplit(base_url)
    if not is_this_machine(parts.hostname or ""):
        return RunBy(kind="manual", words=f"{parts.hostname} is another machine")
    processes = LocalProcesses()
    listeners = processes.listeners(parts.port or 80)
    if not listeners:
        return RunBy(kind="manual", words="the process that listens can't be seen")
    if listeners[0].forwards:
        return RunBy(kind="manual", words=f"{listeners[0].words} forwards the port: the server runs elsewhere")
    pid = listeners[0].pid
    group = _text(Path(f"/proc/{pid}/cgroup"))
    command = tuple(shlex.split(redactor.clean(shlex.join(processes.command(pid)))))
    container = _CONTAINER.search(group)
    if container is not None:
        return RunBy(
            kind="command",
            container=container[1],
            command=command,
            words=f"{listeners[0].words} runs in container {container[1]}",
        )
    units = [unit for unit in _UNIT.findall(group) if not unit.startswith("user@")]
    if units:
        user = "/user@" in group
        return RunBy(
            kind="systemd", unit=units[-1], user=user, command=command, words=f"{listeners[0].words} is of {units[-1]}"
        )
    return RunBy(kind="process", command=command, words=f"{listeners[0].words} belongs to no service")


def _tree_is_on(facts: ServerFacts, tree: AlgorithmWords) -> bool:
    if tree.also_shows is not None:
        return facts.look_up(tree.also_shows) == "true"
    width = _read(facts, tree.topk)
    return width is not None and width > 1


def _read(facts: ServerFacts, spelling: Spelling | None) -> int | None:
    for key in spelling.keys if spelling is not None else ():
        number = _number(facts.look_up(key.name))
        if number is not None:
            return number - key.plus
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _given(text: str | None) -> str | None:
    return None if text in {None, "none"} else text


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
