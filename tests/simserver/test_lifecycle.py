"""Start and stop of a real process: what a client sees at each stage, and what the log says in which order."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path

import pytest

from tests.simserver.support import Sim, launch, parse_answer, running, until


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def refused(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


@contextlib.contextmanager
def loading(tmp_path: Path, *flags: str, port: int = 0, env: dict[str, str] | None = None):  # type: ignore[no-untyped-def]
    sim = launch(tmp_path, *flags, port=port, env=env)
    try:
        yield sim
    finally:
        sim.process.kill()
        sim.process.wait()


def test_the_port_is_bound_only_after_the_load_and_health_is_503_until_warm(tmp_path: Path) -> None:
    port = free_port()
    with loading(
        tmp_path, "--sim-load-seconds", "1", "--sim-warmup-seconds", "2.5", "--sim-speed", "50", port=port
    ) as sim:
        sim.wait_log("Load weight begin")
        assert refused(port)
        until(lambda: not refused(port), "the port")
        assert "Load weight end" in sim.log
        assert sim.exchange("GET", "/health").code == 503
        assert sim.exchange("GET", "/health_generate").code == 503
        assert sim.exchange("GET", "/ready").code == 503
        assert sim.exchange("GET", "/v1/models").code == 200
        assert sim.exchange("GET", "/server_info").json["status"] == "ready"
        assert sim.chat("Hello", max_tokens=4).code == 200
        assert "fired up" not in sim.log, "all of this happened before the server was ready"
        until(lambda: sim.exchange("GET", "/health").code == 200, "health")
        assert "The server is fired up and ready to roll!" in sim.log


def test_the_log_has_the_real_servers_lines_in_their_order(tmp_path: Path) -> None:
    flags = (
        "--tp-size 8 --speculative-algorithm DDTREE --speculative-ddtree-budget 8 --speculative-ddtree-topk 4 "
        "--speculative-draft-window-size 2048 --sim-speed 20"
    )
    with running(tmp_path, *flags.split()) as sim:
        sim.stream("Write a Python function fib(n).", max_tokens=400)
        log = sim.log
    wanted = [
        "Max running requests is reset to 48",
        "server_args={'model_path': 'models/kimi'",
        "TP0] Load weight begin. avail mem=",
        "\rLoading safetensors checkpoint shards:   0% Completed | 0/64 [00:00<?, ?it/s]",
        "\rLoading safetensors checkpoint shards:  12% Completed | 8/64 [",
        "\rLoading safetensors checkpoint shards: 100% Completed | 64/64",
        "Load weight end. elapsed=",
        "Memory pool end. avail mem=",
        "Initialized DFLASH draft runner. attention_backend=flashinfer, model=DFlashDraftModel, block_size=8, "
        "draft_window_size=2048, compact_cache=True",
        "DFLASH draft runner ready. mask_token=",
        "max_total_num_tokens=402176, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, "
        "context_len=262144, available_gpu_mem=",
        "INFO:     Started server process [",
        "INFO:     Uvicorn running on http://127.0.0.1:",
        "The server is fired up and ready to roll!",
        "Prefill batch, #new-seq: 1, #new-token: ",
        "TP0] Decode batch, #running-req: 1, #token: ",
    ]
    position = -1
    for text in wanted:
        found = log.find(text, position + 1)
        assert found > position, f"{text!r} is not after what came before it"
        position = found


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--speculative-algorithm DFLASH", "draft_window_size=None, compact_cache=False"),
        (
            "--speculative-algorithm DFLASH --speculative-draft-window-size 2048 --sim-fault ignore-window",
            "draft_window_size=None, compact_cache=False",
        ),
        (
            "--speculative-algorithm DFLASH --speculative-num-draft-tokens 4",
            "DFLASH block size mismatch: using speculative_num_draft_tokens=4 but draft config block_size=8.",
        ),
    ],
)
def test_the_log_says_what_is_in_effect(tmp_path: Path, flags: str, line: str) -> None:
    with running(tmp_path, *flags.split()) as sim:
        assert line in sim.log
        if "ignore-window" in flags:
            info = sim.get("/server_info")
            assert info["speculative_draft_window_size"] is None
            assert "--speculative-draft-window-size 2048" in info["launch_command"]


def open_stream(sim: Sim, rid: str, tokens: int = 4000):  # type: ignore[no-untyped-def]
    body = {
        "messages": [{"role": "user", "content": f"Write a long story about {rid}."}], "stream": True, "rid": rid,
        "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    return sim.open("POST", "/v1/chat/completions", body)


def test_on_sigterm_the_process_drains_and_goes_on_answering(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-speed", "4", "--sim-drain-poll-seconds", "0.2") as sim:
        with open_stream(sim, "under-way", 700) as sock:
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")
            sim.process.terminate()
            sim.wait_log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
            assert sim.exchange("GET", "/health").code == 503
            assert sim.exchange("GET", "/v1/models").code == 200
            assert sim.exchange("GET", "/server_info").code == 200
            late = sim.chat("Hello", max_tokens=8)
            assert late.code == 200
            assert late.json["usage"]["completion_tokens"] == 8
            sim.wait_log("Gracefully exiting... Remaining number of requests 1. Remaining requests remaining_rids=")
            raw = b"HTTP/1.1 200 OK"
            while data := sock.recv(65536):
                raw += data
            assert b"data: [DONE]" in raw
        assert sim.process.wait(30) == 0
        assert "Health check request received during shutdown. Returning 503." in sim.log
        assert "INFO:     Finished server process" in sim.log
        assert refused(sim.port)


def test_a_prompt_under_way_is_drained_too(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-drain-poll-seconds", "0.05", "--chunked-prefill-size", "32768") as sim:
        body = {"messages": [{"role": "user", "content": "word " * 12_000}], "max_tokens": 3}
        with sim.open("POST", "/v1/chat/completions", body) as sock:
            until(lambda: sim.truth()["requests"], "the request")
            sim.process.terminate()
            sim.wait_log("Remaining number of requests 1.")
            assert b'"completion_tokens":3' in sock.recv(65536)
        assert sim.process.wait(30) == 0


def test_slow_old_process_goes_on_answering_with_nothing_to_do(tmp_path: Path) -> None:
    flags = ["--sim-fault", "slow-old-process=1.5", "--sim-drain-poll-seconds", "0.1", "--sim-speed", "50"]
    with running(tmp_path, *flags) as sim:
        began = time.monotonic()
        sim.process.terminate()
        sim.wait_log("Gracefully exiting")
        assert sim.chat("Hello", max_tokens=4).code == 200
        assert sim.process.wait(30) == 0
        assert time.monotonic() - began >= 1.5


def test_a_forced_shutdown_does_not_drain(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-drain-poll-seconds", "30", env={"SGL_FORCE_SHUTDOWN": "1"}) as sim:
        assert sim.terminate() == 0
        assert "Gracefully exiting" not in sim.log


def test_a_new_process_is_told_from_an_old_one(tmp_path: Path) -> None:
    identities = []
    for _ in range(2):
        with running(tmp_path, "--sim-speed", "50") as sim:
            info = sim.get("/server_info")
            identities.append((json.dumps(info["startup_time"]), info["random_seed"]))
    assert identities[0] != identities[1]


def test_a_port_in_use_is_found_after_the_load(tmp_path: Path) -> None:
    with running(tmp_path) as first, loading(tmp_path, port=first.port) as second:
        assert second.process.wait(30) == 1
        assert "Load weight end" in second.log
        assert (
            f"error while attempting to bind on address ('127.0.0.1', {first.port}): address already in use"
            in second.log
        )
        assert first.exchange("GET", "/v1/models").code == 200
    with loading(tmp_path, "--sim-fault", "port-in-use") as third:
        assert third.process.wait(30) == 1
        assert "address already in use" in third.log


def test_a_crash_while_loading_ends_with_a_traceback_in_the_log(tmp_path: Path) -> None:
    port = free_port()
    with loading(tmp_path, "--sim-fault", "crash-while-loading", port=port) as sim:
        assert sim.process.wait(30) == 1
        assert " 56% Completed" in sim.log
        assert " 62% Completed" not in sim.log
        assert "torch.OutOfMemoryError: CUDA out of memory." in sim.log
        assert refused(port)


def test_flags_that_do_not_go_together_end_with_a_value_error(tmp_path: Path) -> None:
    with loading(tmp_path, "--speculative-algorithm", "MEDUSA") as sim:
        assert sim.process.wait(30) == 1
        assert "ValueError: Unknown speculative algorithm name: MEDUSA" in sim.log
        assert "Traceback" not in sim.log


def test_with_a_key_everything_but_health_and_metrics_asks_for_it(tmp_path: Path) -> None:
    with running(tmp_path, "--api-key", "secret-one", "--sim-speed", "50", "--enable-metrics") as sim:
        assert sim.exchange("GET", "/v1/models").code == 401
        assert sim.exchange("GET", "/v1/models", headers={"Authorization": "Bearer wrong"}).json == {
            "error": "Unauthorized"
        }
        assert sim.exchange("GET", "/v1/models", headers={"Authorization": "Bearer secret-one"}).code == 200
        assert sim.exchange("GET", "/health").code == 200
        assert sim.exchange("GET", "/metrics").code == 200
        assert "secret-one" not in sim.log.split("server_args=")[1].splitlines()[0]


def test_idle_connections_are_closed_after_five_seconds(tmp_path: Path) -> None:
    with running(tmp_path) as sim, socket.create_connection(("127.0.0.1", sim.port), timeout=20) as sock:
        request = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        sock.sendall(request)
        assert parse_answer(sock.recv(65536)).code == 200
        sock.sendall(request)
        assert parse_answer(sock.recv(65536)).code == 200
        began = time.monotonic()
        assert sock.recv(1) == b""
        assert time.monotonic() - began > 4
