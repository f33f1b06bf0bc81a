"""What a machine has, and how open counts are filled from it."""

import subprocess
import sys

import jax
import pytest

from weft.plans import Device, Machine, parse
from weft.plans.fill import fill


def test_here_is_this_process():
    machine = Machine.here()
    assert machine.cores >= 1
    assert machine.memory > 2**20
    assert machine.devices == jax.local_device_count()
    assert machine.cpu_devices == len(jax.local_devices(backend="cpu"))


def test_devices_are_the_accelerators_where_there_are_any():
    assert Machine(cores=2, gpus=0, cpu_devices=4).devices == 4
    assert Machine(cores=2, gpus=2, cpu_devices=4).devices == 2


def test_count_of_a_device():
    machine = Machine(cores=2, gpus=2, cpu_devices=4)
    assert machine.count(None) == 2
    assert machine.count(Device("cpu")) == 4
    assert machine.count(Device("gpu")) == 2
    assert machine.count(Device("gpu", 1, 5)) == 1
    assert machine.count(Device("gpu", 4)) == 0


LAPTOP = Machine(cores=8)
SERVER = Machine(cores=64, gpus=8)


@pytest.mark.parametrize(
    ("text", "machine", "envs", "filled"),
    [
        ("(env+act+learn)*N", LAPTOP, 12, "env+act+learn"),
        ("(env+act+learn)*N", Machine(cores=2, cpu_devices=4), 12, "(env+act+learn)*4"),
        ("(env+act+learn)*N", Machine(cores=2, cpu_devices=8), 12, "(env+act+learn)*6"),
        ("(env+act+learn)*N", SERVER, 64, "(env+act+learn)*8"),
        ("(env+act+learn)*N@cpu", SERVER, 64, "(env+act+learn)@cpu"),
        ("(env+act)*N | learn", LAPTOP, 64, "(env+act)*4 | learn"),
        ("(env+act)*N | learn", LAPTOP, 21, "(env+act)*7 | learn"),
        ("(env+act)*N | learn", Machine(cores=1), 64, "env+act | learn"),
        ("(env+act)*N | learn*3", LAPTOP, 12, "(env+act)*3 | learn*3"),
        ("(env+act)*N | learn*K", SERVER, 240, "(env+act)*48 | learn*8"),
        ("(env+act)*N | learn*K", Machine(cores=6, gpus=4), 64, "(env+act)*4 | learn*4"),
        ("(env+act)*N | learn*5", LAPTOP, 12, "env+act | learn*5"),
        ("env*N | act*M | learn*K", LAPTOP, 12, "env*6 | act | learn"),
        ("env*N | act*M | learn*K", SERVER, 240, "env*48 | act*2 | learn*6"),
        ("env*N | act*M | learn*K", SERVER, 1, "env | act | learn"),
        ("env*N | (act+learn)*G", SERVER, 256, "env*32 | (act+learn)*8"),
        ("(env+act+grad)*N | apply*M", LAPTOP, 7, "(env+act+grad)*7 | apply"),
        ("(env+act)*N | replay*R | learn", LAPTOP, 12, "(env+act)*6 | replay | learn"),
        ("env*2 | act*N@gpu:2-5 | learn", SERVER, 16, "env*2 | act*4@gpu:2-5 | learn"),
        ("env*3 | act | learn*2", LAPTOP, 12, "env*3 | act | learn*2"),
    ],
)
def test_open_counts_are_filled(loop, replay_loop, text, machine, envs, filled):
    graph = replay_loop if "replay" in text else loop
    assert str(fill(parse(text), graph, machine, envs)) == filled


def test_the_plan_language_does_not_load_jax():
    code = "import weft.plans, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
