"""Other load generators, against the same server in the same run.

`python -m benchmarks.peers install aiperf guidellm sglang` installs those named, each in an environment of its own in
`benchmarks/.peers/` and only when asked for, since they bring gigabytes along. Without any of them this benchmark says
so and does nothing. What a peer did is read from its own report; one token is one chunk here, so its output tokens a
second are chunks a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.client import compile_firehose, firehose, read_by_us

HOME = Path(__file__).parent / ".peers"
SGLANG_CLIENT = Path(__file__).with_name("peer_sglang.py")
PACED_STREAMS, PACED_CHUNKS, PACED_US = 64, 1000, 2000
FAST_STREAMS, FAST_CHUNKS = 32, 2000
LIMIT_S = 300
MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<e>"]
made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
special = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<e>")
whole = PreTrainedTokenizerFast(tokenizer_object=made, **special)
whole.save_pretrained(sys.argv[1])
"""


class Reported(msgspec.Struct, frozen=True):
    """What a peer says of its run."""

    chunks_s: float
    gap_ms: float


class Peer(msgspec.Struct, frozen=True):
    """A peer: how it is installed, run and read.

    Attributes:
        requirements: arguments of `pip install`, one call after the other.
        command: its arguments, from port, streams, tokens an answer, tokenizer and folder.
        read: takes the folder with its report.
    """

    requirements: tuple[tuple[str, ...], ...]
    command: Callable[[int, int, int, Path, Path], list[str]]
    read: Callable[[Path], Reported]


def _aiperf(port: int, streams: int, _tokens: int, tokenizer: Path, folder: Path) -> list[str]:
    return [
        *("aiperf", "profile", "--model", "mock", "--url", f"http://127.0.0.1:{port}", "--endpoint-type", "chat"),
        *("--streaming", "--tokenizer", str(tokenizer), "--concurrency", str(streams), "--request-count", str(streams)),
        *("--use-server-token-count", "--ui", "none", "--artifact-dir", str(folder)),
    ]


def _read_aiperf(folder: Path) -> Reported:
    report = json.loads((folder / "profile_export_aiperf.json").read_text())
    return Reported(report["output_token_throughput"]["avg"], report["inter_token_latency"]["p50"])


def _guidellm(port: int, streams: int, tokens: int, tokenizer: Path, folder: Path) -> list[str]:
    return [
        *("guidellm", "run", "--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=mock"),
        *("--profile", f"kind=concurrent,streams={streams}", "--constraint", f"kind=max_requests,count={streams}"),
        *("--tokenizer", f"kind=hf_auto,model={tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={tokens}"),
        *("--output", f"kind=json,path={folder / 'report.json'}", "--disable-console"),
    ]


def _read_guidellm(folder: Path) -> Reported:
    metrics = json.loads((folder / "report.json").read_text())["benchmarks"][0]["metrics"]
    tokens, gaps = metrics["output_tokens_per_second"], metrics["inter_token_latency_ms"]
    return Reported(tokens["successful"]["mean"], gaps["successful"]["median"])


def _sglang(port: int, streams: int, tokens: int, tokenizer: Path, folder: Path) -> list[str]:
    return [
        *("python", str(SGLANG_CLIENT), "--backend", "sglang-oai-chat", "--model", "mock"),
        *("--base-url", f"http://127.0.0.1:{port}", "--tokenizer", str(tokenizer), "--dataset-name", "random-ids"),
        *("--num-prompts", str(streams), "--max-concurrency", str(streams), "--random-input-len", "64"),
        *("--random-output-len", str(tokens), "--random-range-ratio", "1", "--disable-tqdm"),
        *("--output-file", str(folder / "report.jsonl")),
    ]


def _read_sglang(folder: Path) -> Reported:
    report = json.loads((folder / "report.jsonl").read_text())
    return Reported(report["output_throughput"], report["median_itl_ms"])


PEERS = {
    "aiperf": Peer((("aiperf==0.13.0",),), _aiperf, _read_aiperf),
    "guidellm": Peer((("guidellm==0.8.1",),), _guidellm, _read_guidellm),
    "sglang": Peer(
        (("--no-deps", "sglang==0.5.23"), ("--requirement", str(SGLANG_CLIENT.with_suffix(".txt")))),
        _sglang,
        _read_sglang,
    ),
}


def install(names: list[str]) -> None:
    """Makes the environments of the named peers."""
    for name in names:
        venv.create(HOME / name, with_pip=True)
        for requirements in PEERS[name].requirements:
            subprocess.run([HOME / name / "bin" / "pip", "install", "--quiet", *requirements], check=True)


def run_peer(name: str, port: int, streams: int, chunks: int, folder: Path) -> Reported:
    """Runs an installed peer once.

    Raises:
        subprocess.CalledProcessError: it failed; its output is in the exception.
    """
    programs = HOME / name / "bin"
    tokenizer, report = folder / "tokenizer", folder / f"{name}-{chunks}"
    subprocess.run([programs / "python", "-c", MAKE_TOKENIZER, str(tokenizer)], check=True, capture_output=True)
    report.mkdir()
    program, *arguments = PEERS[name].command(port, streams, chunks, tokenizer, report)
    subprocess.run([programs / program, *arguments], check=True, capture_output=True, timeout=LIMIT_S, cwd=folder)
    return PEERS[name].read(report)


def main() -> None:
    """Compares the installed peers with the load generator."""
    installed = [name for name in PEERS if (HOME / name / "bin").is_dir()]
    if not installed:
        print(f"no peer is installed: python -m benchmarks.peers install {' '.join(PEERS)}")
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = compile_firehose(folder)
        for streams, chunks, delay_us in (
            (PACED_STREAMS, PACED_CHUNKS, PACED_US),
            (FAST_STREAMS, FAST_CHUNKS, 0),
        ):
            pace = "as fast as possible"
            if delay_us:
                offered = streams * 1_000_000 / delay_us
                pace = f"one event each {delay_us / 1e3:g} ms: {offered:,.0f} a second are offered, nobody reads more"
            print(f"{streams} streams, {pace}")
            with firehose(program, chunks, delay_us) as port:
                ours, _, _ = read_by_us(port, streams, 1)
                print(f"  {'spectop, 1 worker':20} {ours.events_s:10,.0f} chunks/s {ours.gap_ms:8.3f} ms median gap")
                for name in installed:
                    try:
                        told = run_peer(name, port, streams, chunks, folder)
                    except subprocess.CalledProcessError as failed:
                        print(f"  {name:20} failed: ...{(failed.stderr or failed.stdout)[-400:].decode()}")
                        continue
                    ratio = ours.events_s / told.chunks_s
                    print(
                        f"  {name:20} {told.chunks_s:10,.0f} chunks/s {told.gap_ms:8.3f} ms by its own report; "
                        f"spectop {ratio:.1f} x as many"
                    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["install"]:
        install(sys.argv[2:])
    else:
        main()
