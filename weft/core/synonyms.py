"""What others call the same thing: for the suggestions in errors, never taken in place of the name."""

from __future__ import annotations

from collections.abc import Collection, Mapping

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "gamma": ("discount",),
    "lambda": ("trace_decay",),
    "lam": ("trace_decay",),
    "gae_lambda": ("trace_decay",),
    "ent_coef": ("entropy_cost",),
    "entropy_coef": ("entropy_cost",),
    "vf_coef": ("value_cost",),
    "clip_range": ("clip",),
    "clip_eps": ("clip",),
    "n_steps": ("unroll",),
    "num_steps": ("unroll",),
    "rollout_length": ("unroll",),
    "batch_size": ("minibatches",),
    "num_envs": ("envs",),
    "n_envs": ("envs",),
    "total_timesteps": ("steps",),
    "timesteps": ("steps",),
}
"""By the names that other libraries and papers use."""


def meant(name: str, known: Collection[str]) -> list[str]:
    """Those of ``known`` that ``name`` is another word for, or whose words begin with its letters: ``lr``."""
    plain = _plain(name)
    by_plain = {_plain(candidate): candidate for candidate in known}
    called = [by_plain[other] for other in SYNONYMS.get(plain, ()) if other in by_plain]
    if len(plain) < 2:
        return called
    return called + [
        candidate
        for words, candidate in by_plain.items()
        if "_" in words and "".join(word[:1] for word in words.split("_")) == plain
    ]


def _plain(name: str) -> str:
    """Lower case, words joined by ``_``, without a flag's dashes and prefix."""
    return name.lower().lstrip("-").replace("-", "_").removeprefix("algo.")
