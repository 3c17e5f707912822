"""The text of a new sweep file: what a running server told, with a comment at every choice."""

from __future__ import annotations

import json
import re

from evals.coding import answer_tokens
from reconfig.interrogate import Interrogated, RunBy
from reconfig.presets import AS_IS, Preset


def sweep_text(found: Interrogated, api_key_env: str | None) -> str:
    """Returns a commented sweep file.

    Args:
        found: what the server told.
        api_key_env: the environment variable that holds its key, where it wants one.
    """
    model = found.models[0] if found.models else ""
    version = f" {found.version}" if found.version else ""
    lines = [
        f"# A sweep of {found.dialect}{version} at {found.base_url}, as it was found running.",
        "# Every key is explained in docs/sweep-file.md; `spectop check` looks at this file before hours are spent.",
        f"label = {_quoted(re.sub(r'[^A-Za-z0-9._-]+', '-', model).strip('-') or 'sweep')}",
        "",
        "[server]",
        f"base_url = {_quoted(found.base_url)}",
        f"model = {_quoted(model)}",
        f"dialect = {_quoted(found.dialect)}",
        f"api_key_env = {_quoted(api_key_env)}"
        if api_key_env
        else '# api_key_env = "SGLANG_API_KEY"   # a name, not a key',
        "",
        *_manager(found.run_by, found.preset),
        "",
        "[flags]",
        f"vocabulary = {_quoted(found.vocabulary)}   # how this server spells its settings",
        "",
        "[reference]",
        'name = "none"                   # adds a preset without speculation; others are compared with it',
        "",
        *_presets(found),
        "",
        *_matrix(found),
        "",
        "[evals]",
        'coding = "core-5"               # or core-40, humaneval, a JSONL file; remove the line for no eval',
        *_answers(found.max_model_len),
        "lossless_prompts = 16           # greedy texts compared with the reference's; 0 for no check",
        "",
        "# [load]",
        '# workload = { kind = "coding" } # prose, math, chat, mixed, or jsonl with path = "prompts.jsonl"',
        "# ignore_eos = false",
        "",
        '# leave = "as-is"               # how the server is left at the end: as-is, stopped, or a preset',
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _answers(limit: int | None) -> list[str]:
    fits = answer_tokens(limit)
    return [] if fits == answer_tokens(None) else [f"max_tokens = {fits}   # the server holds {limit} tokens a request"]


def _manager(run_by: RunBy, preset: Preset) -> list[str]:
    head = ["[server.manager]                # who may restart the server", f"# {run_by.words}"]
    if run_by.kind == "systemd" and run_by.unit:
        lines = ['kind = "systemd"', f"unit = {_quoted(run_by.unit)}"]
        lines.append(
            "arguments = \"SGLANG_EXTRA_ARGS\" # the variable in the unit's ExecStart that takes a preset's flags"
        )
        lines += ["user = true"] if run_by.user else []
        return head + lines
    if run_by.container:
        return [
            *head,
            'kind = "command"',
            "# The flags of a preset take the place of {arguments}.",
            'start = ["docker", "run", "--detach", "--name", "server-under-test", "IMAGE", "{arguments}"]',
            'stop = ["docker", "rm", "--force", "server-under-test"]',
            'log = ["docker", "logs", "--follow", "server-under-test"]',
        ]
    if run_by.kind == "process" and run_by.command:
        command = ", ".join(_quoted(word) for word in run_by.command)
        return [
            *head,
            'kind = "manual"                 # you restart it, spectop says with which flags, and proves it',
            "# To let spectop start it instead, end the running one and use (without the flags of the settings below):",
            '# kind = "process"',
            f"# command = [{command}]",
        ]
    return [*head, 'kind = "manual"                 # or systemd, process, command']


def _presets(found: Interrogated) -> list[str]:
    preset = found.preset
    if preset.algorithm == AS_IS:
        return [
            "# The server does not show its settings: say here what each preset asks for. An example:",
            "# [[presets]]",
            '# algorithm = "NGRAM"',
            "# block_size = [4, 8]",
        ]
    if not preset.speculative:
        return [
            "# The server runs without speculation; that is the reference above. An example of a grid:",
            "# [[presets]]",
            '# algorithm = "DDTREE"',
            "# budget_topk = [[8, 4], [16, 4], [4, 4], [12, 6]]",
            '# window = [2048, "none"]',
        ]
    lines = [
        "[[presets]]                     # as the server runs now; lists make a grid",
        f"algorithm = {_quoted(preset.algorithm)}",
    ]
    shown = ((key, getattr(preset, key)) for key in ("budget", "topk", "block_size"))
    lines += [f"{key} = {value}" for key, value in shown if value is not None]
    if preset.window is not None:
        lines.append(f"window = {_quoted(preset.window) if isinstance(preset.window, str) else preset.window}")
    return lines


def _matrix(found: Interrogated) -> list[str]:
    limit = found.max_model_len or 1 << 20
    contexts = [c for c in (60, 1024, 4096, 8192) if c + 512 <= limit] or [60]
    running = found.max_running_requests or 64
    concurrency = [c for c in (1, 8, 32, 64) if c <= running] or [1]
    note = f"   # the server runs at most {running} at once" if found.max_running_requests else ""
    return [
        "[matrix]",
        f"contexts = {json.dumps(contexts)}   # prompt tokens",
        f"concurrency = {json.dumps(concurrency)}{note}",
        "temperatures = [0.0]",
        "max_tokens = 512",
        "repeats = 3",
        'requests_per_slot = 4           # or duration = "30s"',
    ]


def _quoted(text: str | None) -> str:
    return json.dumps(text or "", ensure_ascii=False)
