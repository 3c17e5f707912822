"""What the simulated machines and drafters are like: the numbers that the acceptance and timing models run on.

The only place that holds calibrated constants. `qwen3-8b` stands for Qwen3-8B with its block-16 drafter on one H200
(the DDTree paper's setting), `kimi-k26` for Kimi K2.6 with a block-8 drafter on 8 x RTX PRO 6000.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DraftQuality:
    """How good the drafter is at one drafted position.

    Attributes:
        confident: probability that the drafter is confident at a position, 0 to 1.
        hit: probability that its first candidate is right where it is confident.
        unsure_hit: the same where it is unsure.
        ratio: ratio of the geometric series that ranks 2, 3, ... follow.
    """

    confident: float
    hit: float
    unsure_hit: float
    ratio: float


@dataclass(frozen=True)
class StepCost:
    """Time of one forward pass, milliseconds, as a function of the batch.

    `base + root * sqrt(rows) + linear * rows`, rows being running requests x verify width, plus attention over the
    context: `context_step * mean + context_row * sum * width ** context_width_power`, per 16,384 tokens of context.

    Attributes:
        draft: time of one drafter pass; `draft_row`: per running request; `draft_context`: per 16,384 tokens that the
            drafter attends over, summed over the batch.
        tree: building and scattering a tree mask on the host; `tree_row`: per running request.
        prefill_base: of one prefill pass; `prefill_token`: per new token; `prefill_square`: per new token and token
            of context before it.
    """

    base: float
    root: float
    linear: float
    context_step: float
    context_row: float
    context_width_power: float
    draft: float
    draft_row: float
    draft_context: float
    tree: float
    tree_row: float
    prefill_base: float
    prefill_token: float
    prefill_square: float


@dataclass(frozen=True)
class GpuModel:
    """One kind of GPU and how many there are.

    Attributes:
        memory_bytes: size; `weights_bytes`, `graphs_bytes`: what the loaded server holds on each.
        idle_w, limit_w, decode_w, prefill_w: power at rest, the limit, and while decoding or prefilling.
    """

    name: str
    count: int
    memory_bytes: int
    weights_bytes: int
    graphs_bytes: int
    idle_w: float
    limit_w: float
    decode_w: float
    prefill_w: float
    sm_clock_mhz: int
    memory_clock_mhz: int


@dataclass(frozen=True)
class Profile:
    """A model, its drafter and its machine.

    Attributes:
        block_size: drafter's trained block, anchor slot included.
        trained_window: tokens of context that the drafter was trained on.
        quality: drafter's quality by kind of content.
        max_total_tokens: KV cache in tokens without speculation; `max_total_tokens_speculative`: with it.
        shards: checkpoint files, for the load's progress lines.
    """

    name: str
    served_model_name: str
    model_type: str
    architecture: str
    context_length: int
    vocabulary: int
    block_size: int
    trained_window: int
    ranks: int
    quality: dict[str, DraftQuality]
    cost: StepCost
    gpu: GpuModel
    max_total_tokens: int
    max_total_tokens_speculative: int
    shards: int
    thinking: bool
    eagle: DraftQuality = field(default_factory=lambda: DraftQuality(1.0, 0.60, 0.60, 0.5))
    ngram: DraftQuality = field(default_factory=lambda: DraftQuality(0.30, 0.90, 0.06, 0.5))


KIMI_K26 = Profile(
    name="kimi-k26",
    served_model_name="kimi-k2.6",
    model_type="kimi_k25",
    architecture="KimiK25ForConditionalGeneration",
    context_length=262144,
    vocabulary=163840,
    block_size=8,
    trained_window=2048,
    ranks=8,
    quality={
        "code": DraftQuality(0.80, 0.98, 0.50, 0.77),
        "snippets": DraftQuality(0.69, 0.98, 0.50, 0.77),
        "math": DraftQuality(0.808, 0.98, 0.50, 0.77),
        "chat": DraftQuality(0.60, 0.97, 0.45, 0.77),
        "prose": DraftQuality(0.45, 0.96, 0.45, 0.77),
    },
    cost=StepCost(
        base=6.97,
        root=4.76,
        linear=0.0,
        context_step=0.66,
        context_row=0.444,
        context_width_power=0.83,
        draft=1.85,
        draft_row=0.02,
        draft_context=0.25,
        tree=2.4,
        tree_row=0.04,
        prefill_base=35.0,
        prefill_token=0.1096,
        prefill_square=2.845e-6,
    ),
    gpu=GpuModel(
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        count=8,
        memory_bytes=97887 * 2**20,
        weights_bytes=int(71.9 * 2**30),
        graphs_bytes=int(1.6 * 2**30),
        idle_w=32.0,
        limit_w=600.0,
        decode_w=265.0,
        prefill_w=430.0,
        sm_clock_mhz=2430,
        memory_clock_mhz=12481,
    ),
    max_total_tokens=478992,
    max_total_tokens_speculative=402176,
    shards=64,
    thinking=True,
)

QWEN3_8B = Profile(
    name="qwen3-8b",
    served_model_name="qwen3-8b",
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    context_length=40960,
    vocabulary=151936,
    block_size=16,
    trained_window=32768,
    ranks=4,
    quality={
        "code": DraftQuality(0.767, 0.983, 0.47, 0.77),
        "snippets": DraftQuality(0.73, 0.983, 0.47, 0.77),
        "math": DraftQuality(0.826, 0.983, 0.47, 0.77),
        "chat": DraftQuality(0.60, 0.975, 0.45, 0.77),
        "prose": DraftQuality(0.44, 0.97, 0.45, 0.77),
    },
    cost=StepCost(
        base=22.0,
        root=0.0,
        linear=0.0045,
        context_step=0.6,
        context_row=0.3,
        context_width_power=0.3,
        draft=8.6,
        draft_row=0.02,
        draft_context=0.1,
        tree=0.1,
        tree_row=0.02,
        prefill_base=22.0,
        prefill_token=0.035,
        prefill_square=4.0e-7,
    ),
    gpu=GpuModel(
        name="NVIDIA H200",
        count=1,
        memory_bytes=143771 * 2**20,
        weights_bytes=int(15.6 * 2**30),
        graphs_bytes=int(1.2 * 2**30),
        idle_w=75.0,
        limit_w=700.0,
        decode_w=390.0,
        prefill_w=610.0,
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
    ),
    max_total_tokens=812000,
    max_total_tokens_speculative=655000,
    shards=5,
    thinking=True,
)

PROFILES = {profile.name: profile for profile in (KIMI_K26, QWEN3_8B)}
