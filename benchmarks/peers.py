"""Peers: other libraries, each in a virtual environment of its own, since their requirements are not ours.

python -m benchmarks.peers install sb3                     into benchmarks/.peers/sb3
python -m benchmarks.peers install sb3 'torch==2.13.0'     with further requirements for pip, a version say
python -m benchmarks.peers list
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / ".peers"

REQUIREMENTS = {
    "sb3": ["stable-baselines3"],
    "sbx": ["sbx-rl"],
    "sample-factory": ["sample-factory==2.1.1", "gymnasium<1", "numpy<2", "torch==2.13.0"],
    "rllib": ["ray[rllib]==2.60.*", "torch==2.13.0"],
    "gpu-compiler": ["jax[cuda12-local]", "nvidia-cuda-nvcc-cu12", "flax", "optax", "msgspec", "scipy", "rich"],
}
"""What each peer needs; pip chooses the versions unless told more."""


def python_of(peer: str) -> Path | None:
    """The interpreter of an installed peer; None where it is not installed."""
    python = FOLDER / peer / "bin" / "python"
    return python if (FOLDER / peer / ".installed").exists() and python.exists() else None


def how_to_install(peer: str) -> str:
    """One line for whoever misses it."""
    return f"{peer} is not installed, and was left out: python -m benchmarks.peers install {peer}"


def install(peer: str, more: list[str]) -> Path:
    """Make the peer's environment anew and install into it; blocks, and needs a package index."""
    folder = FOLDER / peer
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS[peer], *more], check=True)
    frozen = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
    (folder / ".installed").write_text(frozen)
    return folder


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="which peers there are, and which are installed")
    installing = commands.add_parser("install", help="make a peer's environment and install it")
    installing.add_argument("peer", choices=sorted(REQUIREMENTS))
    installing.add_argument("more", nargs="*", help="further requirements for pip")
    flags = parser.parse_args(arguments)
    if flags.command == "install":
        print(f"installed {flags.peer} into {install(flags.peer, flags.more)}")
    else:
        for peer in REQUIREMENTS:
            print(f"{peer}: {'installed' if python_of(peer) else 'not installed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
