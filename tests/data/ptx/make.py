"""Translates kernels.cu, kernels.py and nvcc/*.cu to the PTX of tests; run when they change.

    python tests/data/ptx/make.py nvrtc     takes the wheels nvidia-cuda-nvrtc and cuda-bindings
    python tests/data/ptx/make.py clang     takes the wheel ziglang, whose clang has an NVPTX target
    python tests/data/ptx/make.py triton    takes the wheel triton; no GPU
    python tests/data/ptx/make.py turing    takes triton 3.1.0, for tensor cores of 7.5
    python tests/data/ptx/make.py nvcc      takes nvcc with CUDA's headers; ptxas accepts all files

Every file begins with a line that names the compiler and its version.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "kernels.cu"
ARCHITECTURES = (80, 90)
NVCC = {"calls": (80,), "grid": (80,), "lines": (80,), "video": (75,), "wmma": (75, 80)}


def nvrtc() -> None:
    """One file for each architecture."""
    from cuda.bindings import nvrtc as library

    def checked(answer: tuple[object, ...]) -> list[object]:
        if answer[0].value:  # type: ignore[attr-defined]
            raise SystemExit(f"nvrtc: {answer[0]}")
        return list(answer[1:])

    major, minor = checked(library.nvrtcVersion())
    for architecture in ARCHITECTURES:
        (program,) = checked(
            library.nvrtcCreateProgram(SOURCE.read_bytes(), b"kernels.cu", 0, [], [])
        )
        options = [f"--gpu-architecture=compute_{architecture}".encode(), b"--std=c++17"]
        answer = library.nvrtcCompileProgram(program, len(options), options)
        if answer[0].value:
            (size,) = checked(library.nvrtcGetProgramLogSize(program))
            log = b" " * size
            checked(library.nvrtcGetProgramLog(program, log))
            raise SystemExit(log.decode())
        (size,) = checked(library.nvrtcGetPTXSize(program))
        text = b" " * size
        checked(library.nvrtcGetPTX(program, text))
        _write("nvrtc", f"sm_{architecture}", f"NVRTC {major}.{minor}", text.decode().rstrip("\0"))


def clang() -> None:
    """One file for each architecture."""
    version = importlib.metadata.version("ziglang")
    for architecture in ARCHITECTURES:
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "clang",
            "-x",
            "cuda",
            "--cuda-device-only",
            "-S",
            "-O2",
            "-nocudainc",
            "-nocudalib",
            "-std=c++17",
            "-target",
            "x86_64-linux-gnu",
            f"--cuda-gpu-arch=sm_{architecture}",
            "-Wno-unknown-cuda-version",
            "-o",
            "-",
            str(SOURCE),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        _write("clang", f"sm_{architecture}", f"clang of ziglang {version}", done.stdout)


def triton() -> None:
    """One file for each kernel, type and architecture; launches.json says how each is launched."""
    import triton as package
    from triton.backends.compiler import GPUTarget

    sys.path.insert(0, str(HERE))
    from kernels import VARIANTS

    path = HERE / "triton" / "launches.json"
    launches = json.loads(path.read_text())
    for kernel, name, kinds, constants, architectures in VARIANTS:
        names = [one for one in kernel.arg_names if one not in constants]
        signature = dict(zip(names, kinds.split(), strict=True))
        signature |= dict.fromkeys(constants, "constexpr")
        source = package.compiler.ASTSource(kernel, signature, constants)
        for architecture in architectures:
            made = package.compile(source, target=GPUTarget("cuda", architecture, 32))
            file = f"{name}_sm_{architecture}"
            _write("triton", file, f"Triton {package.__version__}", made.asm["ptx"])
            launches[file] = _launch(made)
    path.write_text(json.dumps(launches, indent=1, sort_keys=True) + "\n")


def turing() -> None:
    """The product of bytes for 7.5: later versions of Triton do not use tensor cores of 7.5."""
    import triton as package
    from triton.backends.compiler import GPUTarget

    sys.path.insert(0, str(HERE))
    from kernels import VARIANTS

    kernel, name, kinds, constants, _ = next(one for one in VARIANTS if one[1] == "matmul_s8")
    numbered = {kernel.arg_names.index(one): value for one, value in constants.items()}
    source = package.compiler.ASTSource(kernel, dict(enumerate(kinds.split())), numbered)
    made = package.compile(source, target=GPUTarget("cuda", 75, 32))
    _write("triton", f"{name}_sm_75", f"Triton {package.__version__}", made.asm["ptx"])
    path = HERE / "triton" / "launches.json"
    launches = json.loads(path.read_text()) | {f"{name}_sm_75": _launch(made)}
    path.write_text(json.dumps(launches, indent=1, sort_keys=True) + "\n")


def _launch(made: Any) -> dict[str, object]:
    return {
        "kernel": made.metadata.name,
        "threads": 32 * made.metadata.num_warps,
        "shared": made.metadata.shared,
    }


def nvcc() -> None:
    """Kernels that need CUDA's own headers: one file for each source and architecture."""
    told = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    version = told.partition("release ")[2].partition(",")[0]
    for source, architectures in NVCC.items():
        for architecture in architectures:
            with tempfile.TemporaryDirectory() as scratch:
                ptx = Path(scratch) / "made.ptx"
                command = ["nvcc", "-ptx", "-std=c++17", "-Wno-deprecated-declarations"]
                command += [f"-arch=compute_{architecture}", "-o", str(ptx), f"{source}.cu"]
                lines = ["-lineinfo"] if source == "lines" else []
                subprocess.run([*command, *lines], cwd=HERE / "nvcc", check=True)
                judge = ["ptxas", f"-arch=sm_{architecture}", "-o", "/dev/null", str(ptx)]
                subprocess.run(judge, check=True)
                text = ptx.read_text().replace(f"{HERE / 'nvcc'}/", "")
            name = f"{source}_sm_{architecture}"
            _write("nvcc", name, f"nvcc {version}", text, with_lines=bool(lines))


def _write(folder: str, name: str, made_with: str, text: str, *, with_lines: bool = False) -> None:
    # Debug information would fill most of the text, and nothing here reads it.
    lines = text.split(".section\t.debug_")[0].splitlines()
    kept = [one for one in lines if with_lines or one.split()[:1] not in ([".loc"], [".file"])]
    path = HERE / folder / f"{name}.ptx"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([f"// Made with {made_with} by make.py.", *kept]).rstrip() + "\n")


if __name__ == "__main__":
    makers = {"nvrtc": nvrtc, "clang": clang, "triton": triton, "turing": turing, "nvcc": nvcc}
    makers[sys.argv[1]]()
