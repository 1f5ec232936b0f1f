"""The core on 64-bit ARM: compiled by a cross compiler, run under qemu, compared bit by bit.

    python tests/cross.py

Needs cmake and ninja, ``aarch64-linux-gnu-g++`` and, to run what was compiled,
``qemu-aarch64-static``. What is missing is said, and is no failure.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(sys.executable).parent
# ARM is compared with the core of `make core-test`: bits do not depend on how it is optimised.
ARM, HERE = ROOT / "build" / "aarch64", ROOT / "build" / "sanitize"
# The other tests of the core run whole searches, which takes minutes under an emulator. The tasks
# below compare the searches with those of this machine instead.
TOPICS = (
    *("matching", "hcm", "pool", "sampler", "five_point", "lo_ransac", "gms", "second_problem"),
    *("relative_pose", "fundamental", "homography", "rigid", "absolute_pose"),
)
TASKS = (
    *(
        ("auto", 300),
        ("hcm-mcm", 600),
        ("hcm", 300),
        ("mcm", 300),
        ("cm", 300),
        ("five-point", 320),
    ),
    *(("hcm-evaluation", 300), ("refine", 30), ("gms", 1), ("neighbours", 1)),
)


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tool(name):
    return shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")


def build(folder, targets, *options):
    """Configure and compile; what the tools print is shown when they fail."""
    folder.parent.mkdir(exist_ok=True)
    configure = [tool("cmake"), "-S", ROOT, "-B", folder, "-G", "Ninja", *options]
    configure += [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DMANYMATCH_PYTHON=OFF"]
    for command in (configure, [tool("cmake"), "--build", folder, "--target", *targets]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            sys.exit(done.stdout + done.stderr)


def output(*command, isa):
    """What the driver computed with one instruction set, without its heading."""
    environment = os.environ | {"MANYMATCH_ISA": isa}
    done = subprocess.run(  # noqa: S603
        list(map(str, command)), env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split(": ", 1)[1]


def fused(driver):
    """The instruction set of this machine that multiplies and adds in one rounding, if any."""
    for isa in ("avx512", "avx2", "neon"):
        done = subprocess.run(  # noqa: S603
            [driver, "gms", "1"],
            env=os.environ | {"MANYMATCH_ISA": isa},
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return isa
    return None


def main():
    missing = [name for name in ("cmake", "ninja", "aarch64-linux-gnu-g++") if tool(name) is None]
    if missing:
        say(f"No {' and no '.join(missing)}: the ARM path was not compiled.")
        return
    toolchain = ROOT / "cmake" / "aarch64-linux-gnu.cmake"
    build(
        *(ARM, ["manymatch_core", "driver", *(f"test_{topic}" for topic in TOPICS)]),
        *(f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DMANYMATCH_TESTS=ON", "-DMANYMATCH_BENCH=ON"),
    )
    say("The ARM path compiles.")
    qemu = tool("qemu-aarch64-static") or tool("qemu-aarch64")
    if qemu is None:
        say("No qemu-aarch64-static: it was not run.")
        return
    ctest = [tool("ctest"), "--test-dir", ARM, "-R", f"^({'|'.join(TOPICS)})$", "-j2"]
    subprocess.run([*ctest, "--output-on-failure"], check=True)  # noqa: S603
    sanitized = ["-DMANYMATCH_TESTS=ON", "-DMANYMATCH_SANITIZE=address,undefined"]
    build(HERE, ["driver"], "-DMANYMATCH_BENCH=ON", *sanitized)
    driver = Path("cpp") / "bench" / "driver"
    for isa, same in (("neon", fused(HERE / driver)), ("baseline", "baseline")):
        if same is None:
            say("This machine has no fused multiply-add to compare NEON with.")
            continue
        for task, count in TASKS:
            found = output(qemu, ARM / driver, task, count, isa=isa)
            if found != output(HERE / driver, task, count, isa=same):
                sys.exit(f"{task}: {isa} under qemu and {same} here differ: {found}")
        say(f"{isa} under qemu and {same} here give the same bits in {len(TASKS)} tasks.")


if __name__ == "__main__":
    main()
