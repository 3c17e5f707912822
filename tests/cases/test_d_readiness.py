"""Field cases of readiness and restart: servers that look ready and are not, and that look dead and are not."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from loadgen.figures import MarkKind
from loadgen.measure import measure_cell
from loadgen.records import Chunk, Outcome, RequestRecord
from loadgen.spec import CellSpec, Target
from reconfig.limits import Limits
from reconfig.managers.protocol import ManagerStatus
from reconfig.presets import Preset, Proof
from reconfig.processes import ProcessSeen
from reconfig.proof import judge, looks_senseless
from reconfig.putting import prove_running, put_in_effect
from reconfig.restart import GpuMemory
from reconfig.vocabularies import VOCABULARIES
from reconfig.watching import wait_for_trouble
from tests.reconfig.scripted import (
    ScriptedGenerator,
    ScriptedManager,
    ScriptedProcesses,
    ScriptedServer,
    World,
    generation,
    run_jumping,
)

DATA = Path(__file__).parent / "data"
PRESET = Preset(name="b8t4", algorithm="DDTREE", budget=8, topk=4)
FACTS = {
    "speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 8, "speculative_ddtree_topk": 4,
    "launch_command": "--speculative-ddtree-budget 8", "random_seed": 7,
}  # fmt: skip


def case(name: str, file: str) -> Any:
    path = DATA / name / file
    return json.loads(path.read_text()) if file.endswith(".json") else path.read_bytes()


def running(pid: int, invocation: str = "", restarts: int = 0) -> ManagerStatus:
    return ManagerStatus(
        state="running", words=f"active, pid {pid}", pid=pid, restarts=restarts,
        facts={"pid": str(pid), "invocation": invocation or f"i{pid}"},
    )  # fmt: skip


def up(pid: int, started: float | None = None) -> dict[str, Any]:
    """A server that is up and good, as changes of the script."""
    return {
        "status": running(pid), "port": True, "health": 200, "facts": FACTS, "answer": generation(),
        "listeners": (ProcessSeen(pid, time.time() if started is None else started, "python"),), "alive": {pid},
    }  # fmt: skip


def put(
    world: World,
    *,
    limits: Limits | None = None,
    model: str = "",
    manager: ScriptedManager | None = None,
    processes: ScriptedProcesses | None = None,
    **more: Any,
) -> tuple[Proof, float, ScriptedGenerator]:
    """Puts the preset in effect in a scripted world; the proof, and the seconds after the start it was there."""

    async def work() -> tuple[Proof, float, ScriptedGenerator]:
        generator = ScriptedGenerator(world)
        proof = await put_in_effect(
            PRESET,
            vocabulary=VOCABULARIES["ddtree"],
            manager=manager or ScriptedManager(world),
            target=Target(base_url="http://127.0.0.1:30000", model=model),
            generator=generator,
            limits=limits or Limits(ready_s=1800),
            on_step=world.on_step,
            on_log=world.lines.append,
            server=ScriptedServer(world),
            processes=processes or ScriptedProcesses(world),
            **more,
        )
        return proof, world.now, generator

    return run_jumping(work)


def test_f68_port_in_use_is_a_failure_when_the_child_exits_whoever_answers_on_the_port() -> None:
    expected = case("F68", "expected.json")
    world = World()
    world.at(0, status=running(4200))
    world.at(8, log=case("F68", "server.log"))
    world.at(9, status=ManagerStatus(state="failed", words="the process ended with status 1", pid=4200))
    world.at(10, port=True, health=200, answer=generation("ready", 4), listeners=(ProcessSeen(3977, 1.0, "old"),))
    proof, decided_s, _ = put(world)
    assert not proof.in_effect
    assert proof.cause == "port"
    assert decided_s <= expected["decided_by_s"]
    assert expected["reason_contains"] in (proof.failure or "")
    assert str(expected["holder_pid"]) in (proof.failure or "")


def test_f68_an_answer_from_a_foreign_process_is_no_readiness() -> None:
    world = World()
    world.at(0, **{**up(4200), "listeners": (ProcessSeen(3977, 1.0, "sglang::scheduler"),)})
    proof, _, _ = put(world, limits=Limits(ready_s=30))
    assert not proof.in_effect
    assert "pid 3977" in world.shown_at(20)


@pytest.mark.parametrize("told_by", ["the manager", "the listener"])
def test_a_port_that_is_forwarded_by_ssh_is_neither_the_old_server_nor_the_new_one(told_by: str) -> None:
    world = World()
    forwarder = (ProcessSeen(900, 1.0, "ssh"),)
    world.state.update({**up(4200), "listeners": forwarder, "alive": {900}})
    world.at(0, status=running(4300), health=None, facts={}, answer=None)
    world.at(40, health=503)
    world.at(50, **{**up(4300), "listeners": forwarder, "alive": {900}})
    manager = ScriptedManager(world, stop_first=True)
    manager.pids_are_local = False
    manager.elsewhere = told_by == "the manager"
    proof, ready_s, _ = put(world, manager=manager)
    assert proof.in_effect, proof.failure
    assert 49.9 <= ready_s <= 55
    assert proof.load_s is not None
    assert 39 <= proof.load_s <= 42
    assert "listener pid" not in proof.instance
    assert proof.instance["manager pid"] == "4300"


def test_f69_health_200_and_a_hanging_generation_is_up_and_not_generating() -> None:
    limits, expected = case("F69", "limits.json"), case("F69", "expected.json")
    world = World()
    world.at(0, status=running(4200))
    world.at(30, **{**up(4200), "answer": None})
    overall = limits["overall_s"]
    proof, decided_s, _ = put(
        world, limits=Limits(ready_s=overall, probe_s=limits["generate_timeout_s"], generate_s=overall - 30)
    )
    assert expected["state_at_s"]["65"] in world.shown_at(65)
    assert proof.cause == "generate"
    assert expected["state_at_s"]["65"] in (proof.failure or "")
    assert overall - 5 <= decided_s <= overall + 5
    assert world.most_open_probes == expected["max_open_probes"]
    assert world.open_probes == 0


def test_f70_a_busy_server_with_503_on_health_is_neither_restarted_nor_in_trouble() -> None:
    timeline = case("F70", "timeline.json")
    world = World()
    world.state.update(up(4200))
    for entry in timeline:
        if "health" in entry:
            world.at(entry["t"], health=entry["health"])

    async def work() -> tuple[Proof, bool, list[str]]:
        manager = ScriptedManager(world)
        world.begin()
        proof = await prove_running(
            PRESET, vocabulary=VOCABULARIES["ddtree"], manager=manager, generator=ScriptedGenerator(world),
            target=Target(base_url="http://127.0.0.1:30000", model=""), server=ScriptedServer(world),
            processes=ScriptedProcesses(world),
        )  # fmt: skip
        watch = asyncio.create_task(wait_for_trouble(proof, manager))
        await asyncio.sleep(60)
        in_trouble = watch.done()
        watch.cancel()
        return proof, in_trouble, manager.calls

    proof, in_trouble, calls = run_jumping(work)
    assert proof.in_effect
    assert not in_trouble
    assert calls == []


def test_f70_health_503_during_the_proof_is_waited_for_and_called_busy() -> None:
    world = World()
    world.at(0, **{**up(4200), "health": 503})
    world.at(58, health=200)
    proof, ready_s, _ = put(world)
    assert proof.in_effect
    assert 57.9 <= ready_s <= 60
    assert "busy" in world.shown_at(45)


def test_f71_another_model_is_a_failure_that_names_the_served_one() -> None:
    expected, model = case("F71", "expected.json"), case("F71", "config.json")["model"]
    a, b = case("F71", "server_a.json"), case("F71", "server_b.json")
    world = World()
    refusal = generation("", None, None, outcome=Outcome.HTTP_4XX, http_status=404, error=a["probe"]["body"]["message"])
    world.at(0, **{**up(4200), "models": tuple(a["v1_models"]), "answer": refusal})
    proof, decided_s, generator = put(world, model=model)
    assert proof.cause == "model"
    assert expected["server_a"]["reason_contains"] in (proof.failure or "")
    assert decided_s < 5
    assert len(generator.requests) == 1

    world = World()
    world.at(0, **{**up(4200), "models": tuple(b["v1_models"])})
    proof, _, _ = put(world, model=model)
    assert not proof.in_effect
    assert proof.model == expected["server_b"]["recorded_model"]


def test_f72_out_of_memory_is_the_cause_and_not_the_noise_behind_it() -> None:
    expected = case("F72", "expected.json")
    world = World()
    world.at(0, status=running(4300))
    world.at(41, log=case("F72", "server.log"))
    world.at(42, status=ManagerStatus(state="failed", words="the process was ended by SIGKILL", pid=4300))
    proof, decided_s, _ = put(world)
    assert proof.cause == expected["cause"]
    assert decided_s <= expected["decided_by_s"]
    assert expected["reason_contains"] in (proof.failure or "")
    assert expected["phase"] in (proof.failure or "")
    assert "CancelledError" not in (proof.failure or "")
    assert any("1.50 GiB" in line for line in proof.log_tail)

    world = World()
    world.state.update(status=ManagerStatus(state="failed", words="the process was ended by SIGKILL", pid=4300))
    world.at(0, status=running(4301))
    world.at(5, **up(4301))
    proof, _, _ = put(world)
    assert proof.in_effect, proof.failure


def test_f73_out_of_memory_in_the_run_is_trouble_although_the_process_stays() -> None:
    world = World()
    world.state.update(up(4200))
    world.at(14, log=case("F73", "server.log"))
    world.at(15, answer=None)

    async def work() -> tuple[Any, float, Proof]:
        manager = ScriptedManager(world)
        target = Target(base_url="http://127.0.0.1:30000", model="")
        surroundings: dict[str, Any] = {
            "vocabulary": VOCABULARIES["ddtree"], "manager": manager, "generator": ScriptedGenerator(world),
            "target": target, "server": ScriptedServer(world), "processes": ScriptedProcesses(world),
        }  # fmt: skip
        proof = await prove_running(PRESET, **surroundings)
        world.begin()
        trouble = await wait_for_trouble(proof, manager)
        seen_at = world.now
        await asyncio.sleep(1)
        limits = Limits(probe_s=case("F73", "limits.json")["idle_token_timeout_s"], generate_s=60)
        return trouble, seen_at, await prove_running(PRESET, limits=limits, **surroundings)

    trouble, seen_at, again = run_jumping(work)
    assert trouble.cause == case("F73", "expected.json")["cause"]
    assert "616.00 MiB" in trouble.words
    assert 14 <= seen_at <= 16
    assert again.cause == "generate"  # it does not generate: it must be put in effect again before the next cell


def test_f74_minutes_of_silence_while_loading_are_normal_and_progress_is_read_between_carriage_returns() -> None:
    expected, limits = case("F74", "expected.json"), case("F74", "limits.json")
    stderr = case("F74", "stderr.bin")
    first = case("F74", "timeline.json")[0]["stderr_offset"]
    world = World()
    world.at(0, status=running(4200))
    world.at(5, log=stderr[:first])
    updates = stderr[first:].split(b"\r")
    for number, update in enumerate(updates):
        world.at(5 + 535 * number / len(updates), log=update + b"\r" * (number < len(updates) - 1))
    world.at(760, **up(4200))
    proof, ready_s, _ = put(world, limits=Limits(ready_s=limits["overall_s"]))
    assert proof.in_effect, proof.failure
    assert expected["ready_at_s"] - 0.1 <= ready_s <= expected["ready_at_s"] + 5
    assert expected["state_at_s"]["300"] in world.shown_at(300)
    assert "55 %" in world.shown_at(300)
    assert expected["state_at_s"]["700"] in world.shown_at(700)
    assert sum("shards" in line for line in proof.log_tail) == expected["progress_lines_in_log"]
    assert sum("shards" in line.text for line in world.lines) > 30
    assert max(len(line.text) for line in world.lines) < 200


def test_f75_a_crash_loop_is_decided_by_the_third_restart_with_the_first_fatal_line() -> None:
    expected = case("F75", "expected.json")
    world = World()
    for entry in case("F75", "timeline.json"):
        if "pid" in entry:
            world.at(entry["t"], status=running(entry["pid"], restarts=entry["n_restarts"]), port=False)
        elif entry.get("connect") == "open":
            world.at(entry["t"], port=True, health=503)
        elif "child_exit" in entry:
            waiting = ManagerStatus(state="starting", words="activating (auto-restart): result exit-code")
            world.at(entry["t"], log=case("F75", "server.log"), status=waiting, port=False)
    proof, decided_s, _ = put(world)
    assert proof.cause == expected["cause"]
    assert decided_s <= expected["decided_by_s"]
    assert f"{expected['restarts_seen']} times" in (proof.failure or "")
    assert expected["reason_contains"] in (proof.failure or "")


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_f78_an_empty_answer_is_not_ready_and_a_senseless_one_is_warned_about(name: str) -> None:
    probe, expected = case("F78", "probes.json")[name], case("F78", "expected.json")[name]
    answer = generation(probe["text"], probe["tokens"], probe["finish_reason"])
    assert (judge(answer) is None) is expected["ready"]
    world = World()
    world.at(0, **{**up(4200), "answer": answer})
    proof, _, generator = put(world, limits=Limits(generate_s=10))
    assert proof.in_effect is expected["ready"]
    if expected["ready"]:
        assert looks_senseless(probe["text"]) is expected["warning"]
        assert any(probe["text"] in warning for warning in proof.warnings) is expected["warning"]
        assert len({request.messages[0].content for request in generator.requests}) == 2


def test_f79_memory_of_our_own_left_processes_is_freed_and_then_the_start_begins() -> None:
    timeline, expected = case("F79", "timeline.json"), case("F79", "expected.json")
    world = World()
    group = timeline[0]["group"]
    world.state.update(status=running(group[0]), alive=set(group), used_gb=70.2)
    processes = ScriptedProcesses(world, family=group, stubborn=[4402])

    class Stops(ScriptedManager):
        async def stop(self) -> None:
            await super().stop()
            for pid in group[:2]:
                world.signals.append((pid, 15))
                world.state["alive"].discard(pid)
            self.world.begin()
            world.at(9, used_gb=1.0)

        async def start(self) -> None:
            self.calls.append("start")
            starts.append(world.now)
            world.at(world.now + 1, **up(4500))

    async def memory() -> GpuMemory:
        used = world.seen()["used_gb"]
        return GpuMemory(used < 5, f"{used} GB in use", tuple(sorted(world.state["alive"])))

    starts: list[float] = []
    proof, _, _ = put(world, manager=Stops(world, kills_orphans=True), processes=processes, gpu_memory_free=memory)
    assert proof.in_effect, proof.failure
    assert expected["start_at_s"] <= starts[0] <= expected["start_at_s"] + 1
    assert sorted({pid for pid, _ in world.signals}) == expected["signals_to"]
    assert (4402, 9) in world.signals


def test_f79_memory_held_by_a_foreign_process_blocks_names_it_and_ends_nothing() -> None:
    foreign, expected = case("F79", "foreign.json")[0], case("F79", "expected.json")["foreign"]
    world = World()
    world.state.update(status=running(4400), alive={900}, used_gb=foreign["gpu_used_gb"])
    manager = ScriptedManager(world, kills_orphans=True)

    async def memory() -> GpuMemory:
        return GpuMemory(False, f"{foreign['gpu_used_gb']} GB in use", tuple(foreign["holders"]))

    proof, _, _ = put(world, manager=manager, gpu_memory_free=memory)
    assert not proof.in_effect
    assert expected["state"] in (proof.failure or "")
    assert expected["reason_contains"] in (proof.failure or "")
    assert "[telemetry] devices" in (proof.failure or "")
    assert world.signals == []
    assert manager.calls == ["prepare", "stop", "undo"]


def _answered(number: int, ttft_ms: float, purpose: Any) -> RequestRecord:
    """A finished request of five tokens, one every 10 ms."""
    ttft = ttft_ms / 1000
    start = 20.0 * number
    return RequestRecord(
        t=start + ttft + 0.05, cell="cell", rid=f"r{number}", purpose=purpose, t_due=start, t_send=start, ttft=ttft,
        ttfo=ttft, e2e=ttft + 0.04, n_out=5, n_first=1, n_first_known=True, prompt_tokens=60, finish_reason="length",
        outcome=Outcome.OK, max_tokens=5,
        chunks=tuple(Chunk(ttft + 0.01 * token, 1) for token in range(5)),
    )  # fmt: skip


def test_f76_a_first_request_that_compiles_is_marked_and_a_warm_up_takes_it_out_visibly() -> None:
    times, expected = case("F76", "ttft_ms.json"), case("F76", "expected.json")
    spec = CellSpec(cell="cell", context=60, concurrency=1, max_tokens=5, warmup_requests=1)
    cold = measure_cell([_answered(number, ttft, "cell") for number, ttft in enumerate(times)], spec)
    marks = [mark for mark in cold.marks if mark.kind is MarkKind.COLD]
    assert len(marks) == expected["cold_samples"]
    assert "10.86 s" in marks[0].reason
    assert cold.ttft_s.p50 == pytest.approx(expected["median_ms"] / 1000)

    purposes = ["warmup"] + ["cell"] * (len(times) - 1)
    records = [_answered(number, ttft, purposes[number]) for number, ttft in enumerate(times)]
    warm = measure_cell(records, spec)
    assert not [mark for mark in warm.marks if mark.kind is MarkKind.COLD]
    assert warm.ttft_s.n == len(times) - expected["cold_samples"]
    kept = [record.ttft for record in records if record.purpose == "cell" and record.ttft is not None]
    assert sum(kept) / len(kept) == pytest.approx(expected["warm_mean_ms"] / 1000)
