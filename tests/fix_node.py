"""Node and the real tRPC packages, for the tests of what speaks to them; skipped where they are not.

`node_client("11")` is a folder with `node_modules`: @trpc/client, @trpc/server, superjson and
typescript in the exact versions of its package-lock.json. npm puts them there once.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "node"
STAMP = ".semel"
NODE_MAJOR_MIN = 20
NPM_SECONDS = 120
QUIETLY = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1")

#: A version of tRPC, "11" or "10", to the folder with its node_modules.
NodeClient = Callable[[str], Path]


@pytest.fixture(scope="session")
def node() -> str:
    """The path of node."""
    found = shutil.which("node")
    if found is None:
        pytest.skip(f"no node: install node {NODE_MAJOR_MIN} or newer, with npm")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    if int(said.stdout.removeprefix("v").partition(".")[0]) < NODE_MAJOR_MIN:
        pytest.skip(f"node is {said.stdout.strip()}: install {NODE_MAJOR_MIN} or newer")
    return found


@pytest.fixture(scope="session")
def node_client(node: str) -> NodeClient:
    """Folders of packages; a test that asks for one that cannot be had is skipped."""

    def folder(version: str) -> Path:
        home = HERE / version
        fault = _install(home)
        if fault:
            pytest.skip(f"no @trpc/client {version}: run `npm ci` in {home} ({fault})")
        return home

    return folder


@functools.cache
def _install(home: Path) -> str:
    """Install what the lock file of *home* says, once for all processes; why not, or nothing."""
    modules = home / "node_modules"
    want = hashlib.sha256((home / "package-lock.json").read_bytes()).hexdigest()
    with (home / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = modules / STAMP
        if stamp.exists() and stamp.read_text() == want:
            return ""
        npm = shutil.which("npm")
        if npm is None:
            return "npm is not installed"
        try:
            done = subprocess.run(
                [npm, "ci", *QUIETLY],
                cwd=home,
                capture_output=True,
                text=True,
                timeout=NPM_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"npm took more than {NPM_SECONDS} s"
        if done.returncode:
            return (done.stderr.strip() or "npm failed").splitlines()[0]
        stamp.write_text(want)
    return ""


def run_node(node: str, packages: Path, *args: str, **environ: str) -> str:
    """
    What node prints, run with *args* where `packages.mjs` finds *packages*.

    Raises:
        AssertionError: with all it said, when it fails.
    """
    done = subprocess.run(
        [node, *args],
        env=os.environ | {"SEMEL_NODE_PACKAGES": str(packages)} | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
