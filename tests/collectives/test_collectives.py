"""Collectives of the host backend: jobs of several processes under Open MPI's launcher."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from itertools import pairwise
from math import prod
from pathlib import Path

import pytest

from tests.children import ROOT, untold
from tests.requirements import needed
from tests.sampling import SOAK, rounds
from tests.simulated.third_party import MPICH, cache_of, make_environment_of
from ubridge.models.commands.ranks import Ranks
from ubridge.models.loading import Loader
from ubridge.models.making import CONFIGS, make_model
from ubridge.models.sources import open_source
from uhal import Api
from uhal.collectives import Place
from uhal.errors import ArgumentValueError, NotSupportedError

MPIRUN = Path(sys.executable).parent / "mpirun"
needs_mpi = needed(
    find_spec("mpi4py") and MPIRUN.exists(), 'pip install "uhal-py[mpi]" brings Open MPI'
)
_ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK")


def run(ranks: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as a number of ranks."""
    return launched(
        [str(MPIRUN), "--oversubscribe"], ranks, sys.executable, *arguments, **environment
    )


def launched(
    launcher: list[str], ranks: int, *program: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as a number of ranks, by a launcher."""
    return subprocess.run(
        [*launcher, "-n", str(ranks), *program],
        cwd=ROOT,
        env=variables(**environment),
        capture_output=True,
        text=True,
        timeout=600,
    )


def variables(**more: str) -> dict[str, str]:
    """Return the environment of a job, without variables of another launcher."""
    kept = {name: text for name, text in untold().items() if not name.startswith(_LAUNCHERS)}
    return {**kept, **_ROOT_MAY, "UHAL_HOST_THREADS": "1", **more}


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_collective_equals_numpy_eager_and_replayed(ranks: int, seed: int) -> None:
    done = run(ranks, "-m", "tests.collectives.every_collective", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: all right" in done.stdout


@needs_mpi
@pytest.mark.drawn(1)
@pytest.mark.parametrize("ranks", [1, 3])
def test_operations_on_tensors_equal_their_references_eager_and_in_graphs(
    ranks: int, seed: int
) -> None:
    done = run(ranks, "-m", "tests.collectives.operations", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("operations are right") == ranks


@pytest.mark.skipif(not SOAK, reason="pip installs MPICH: make soak")
@pytest.mark.parametrize("ranks", [2, 4])
def test_mpich_gives_the_results_of_numpy(
    ranks: int, seed: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    python = make_environment_of(cache_of(pytestconfig), MPICH)
    launcher = [str(python.with_name("mpiexec"))]
    Api.quick_init(0, "host")
    make_model(tmp_path / "made", "llama", seed=seed)
    text = json.dumps({"equal": True})
    for job, more in (
        ("every_collective", ()),
        ("operations", ()),
        ("sharded_engine", (str(tmp_path / "made"), text)),
    ):
        program = (str(python), "-W", "ignore", "-m", f"tests.collectives.{job}", str(seed))
        done = launched(launcher, ranks, *program, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("right") >= ranks


@needs_mpi
def test_wrong_calls_are_refused_before_anything_is_enqueued() -> None:
    done = run(1, "-m", "tests.collectives.mistakes", UHAL_HOST_DEVICES="2")
    assert done.returncode == 0 and "refused" in done.stdout, done.stdout + done.stderr


LATE = """
import time
import uhal
from uhal import DeviceBuffer
from uhal.collectives import Communicator, Place, share, unique_id

uhal.Api.quick_init(0, "host")
place = Place.of()
one = Communicator(place.ranks, share(unique_id()), place.rank)
x = DeviceBuffer.zeros(4, "f4")
if place.rank == 0:
    time.sleep(1.0)
    one.all_reduce(x)
    one.wait(60)
else:
    one.all_reduce(x)
    try:
        one.wait(0.2)
    except TimeoutError as error:
        assert "rank 1 of 2: expected the end of collective 1 in 0.2 s" in str(error)
        print("late")
    one.wait(60)
one.close()
"""


@needs_mpi
def test_a_wait_ends_after_its_seconds() -> None:
    done = run(2, "-c", LATE)
    assert done.returncode == 0 and "late" in done.stdout, done.stdout + done.stderr


@needs_mpi
@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("KILL", "DeviceError: Communicator, rank {} of 3: rank 2 has ended or left"),
        # On a loaded machine other ranks may be silent, too.
        ("STOP", r"TimeoutError: .*, rank {} of 3: .* s; ranks? (0|(\d, )*2) do(es)? not answer"),
    ],
)
def test_a_missing_rank_is_named_and_the_others_end(how: str, named: str, seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(rounds(1, 25)):
        for _ in range(3):
            said = said_without_a_rank(how, str(drawn.randrange(1, 100)))
            require_nothing_left(said)
            if said.count("goes on") == 2:
                break  # the launcher sometimes ends a rank together with the killed one
        for rank in range(2):
            assert re.search(f"rank {rank}, .* {named.format(rank)}", said), said
            assert f"rank {rank} goes on" in said, said


def said_without_a_rank(how: str, calls: str) -> str:
    """Return the output of a job of three ranks, the last of which gets a signal."""
    program = [sys.executable, "-m", "tests.collectives.missing_rank", how, calls]
    job = subprocess.Popen(
        [str(MPIRUN), "--enable-recovery", "--oversubscribe", "-n", "3", *program],
        cwd=ROOT,
        env=variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout is not None
    said = ""
    for line in job.stdout:
        said += line
        if how == "STOP" and said.count("goes on") == 2:
            # The launcher waits for the stopped rank, too.
            process = re.search(r"rank 2 is process (\d+)", said)
            assert process is not None
            os.kill(int(process[1]), signal.SIGKILL)
            break
    said += job.stdout.read()
    job.wait(300)
    return said


def require_nothing_left(said: str) -> None:
    """Wait until a job's processes and its segments of shared memory are gone."""
    processes = re.findall(r"is process (\d+)", said)
    assert len(processes) == 3, said
    places = [
        *(Path("/proc", one) for one in processes),
        *map(Path, re.findall(r"has segment (\S+)", said)),
    ]
    end = time.monotonic() + 60
    while left := [place for place in places if place.exists()]:
        assert time.monotonic() < end, (left, said)
        time.sleep(0.05)


STORIES = Path(__file__).resolve().parents[3] / "shared" / "data" / "stories260K"
needs_stories = pytest.mark.skipif(
    not STORIES.is_dir(), reason=f"the published model is not there: {STORIES}"
)
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1280,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 601,
}
"""Axes that no number of ranks divides; shares have one or two blocks of 256."""
TINYLLAMA = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 22,
    "vocab_size": 32000,
    "head_dim": 64,
    "tie_word_embeddings": False,
}
ROUNDED = {"bound": 0.1, "error": 1.25}
"""Activations are rounded to 8 bits, so the last bit of a sum may change a code.

The ranks' errors and the whole model's are then samples of one distribution.
"""
QUANTIZED = {2: ("Q4_K_M", "q8_0", "q4_0"), 4: ("q8_0", "q4_0")}
"""Formats by number of ranks."""


@needs_mpi
@pytest.mark.drawn(1)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_with_shares_of_a_model_give_its_logits(
    ranks: int, tmp_path: Path, seed: int
) -> None:
    pytest.importorskip("tokenizers")
    drawn = random.Random(seed)
    families = sorted(set(CONFIGS) - {"rwkv5"})
    if ranks == 4:
        # A group (queries, a key and a value) cannot be split between ranks.
        families = [one for one in families if one not in ("chatglm", "glm", "glm4")]
    Api.quick_init(0, "host")
    models: list[str] = []
    for family in drawn.sample(families, rounds(4 - ranks // 2, len(families))):
        make_model(tmp_path / family, family, seed=seed)
        models += [str(tmp_path / family), json.dumps({"bound": 1e-5})]
    tied = {**SIZES, "tie_word_embeddings": True}
    make_model(tmp_path / "wide", "llama", tied, seed=seed)
    models += [str(tmp_path / "wide"), json.dumps({"bound": 1e-5})]
    for kind in QUANTIZED[ranks][: rounds(1, 3)]:
        models += [str(tmp_path / "wide"), json.dumps({**ROUNDED, "quantize": kind})]
    if STORIES.is_dir():
        models += [str(STORIES), json.dumps({"bound": 1e-5})]
    done = run(ranks, "-W", "ignore", "-m", "tests.collectives.sharded_models", str(seed), *models)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(ranks):
        assert f"rank {rank}: all models are right" in done.stdout


@needs_mpi
@pytest.mark.drawn(1)
@pytest.mark.parametrize(("ranks", "count"), [(2, 2), (4, 1)])
def test_an_engine_of_rank_0_gives_the_whole_models_tokens(
    ranks: int, count: int, tmp_path: Path, seed: int
) -> None:
    """The bits of a text depend neither on other texts nor on the number of ranks."""
    pytest.importorskip("tokenizers")
    families = sorted(set(CONFIGS) - {"rwkv5", "chatglm", "glm", "glm4"})
    Api.quick_init(0, "host")
    models: list[str] = []
    for family in random.Random(seed).sample(families, rounds(count, len(families))):
        make_model(tmp_path / family, family, seed=seed)
        models += [str(tmp_path / family), json.dumps({"equal": True})]
    if ranks == 2:
        make_model(tmp_path / "wide", "llama", SIZES, seed=seed)
        kind = {"quantize": "q8_0", "equal": False}
        models += [str(tmp_path / "wide"), json.dumps(kind)] if SOAK else []
    done = run(ranks, "-W", "ignore", "-m", "tests.collectives.sharded_engine", str(seed), *models)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all engines are right") == ranks


@needs_mpi
def test_serve_under_a_launcher_has_one_server(tmp_path: Path, seed: int) -> None:
    pytest.importorskip("uvicorn")
    pytest.importorskip("tokenizers")
    Api.quick_init(0, "host")
    make_model(tmp_path / "made", "llama", seed=seed)
    command = [str(MPIRUN), "--oversubscribe", "-n", "2", sys.executable, "-m", "uhal", "serve"]
    with subprocess.Popen(
        [*command, str(tmp_path / "made"), "--cpu", "--port", "0", "--context", "64"],
        cwd=ROOT,
        env=variables(),
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stderr is not None
        try:
            line = next(one for one in job.stderr if "http://" in one)
            url = line[line.index("http://") : line.index(" (Ctrl-C")]
            texts = []
            for _ in range(2):
                body = json.dumps({"prompt": "a", "max_tokens": 5, "temperature": 0}).encode()
                kind = {"Content-Type": "application/json"}
                asked = urllib.request.Request(f"{url}v1/completions", body, kind)
                with urllib.request.urlopen(asked, timeout=300) as reply:
                    texts.append(json.load(reply)["choices"][0]["text"])
            assert texts[0] == texts[1]
        finally:
            job.terminate()
            rest = job.stderr.read()
    assert "http://" not in rest, rest


@needs_mpi
@needs_stories
def test_generate_under_a_launcher_writes_one_text() -> None:
    prompt = ("--prompt", "Once upon a time")
    done = run(2, "-m", "uhal", "generate", "--cpu", str(STORIES), "-n", "20", *prompt)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(", there was a little girl named Lily. She loved to")
    assert (done.stdout.count("Lily"), done.stderr.count("tokens generated")) == (1, 1)


def test_a_prompt_on_standard_input_is_refused_under_a_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for prompt in (None, "-"):
        with pytest.raises(ArgumentValueError, match="--prompt: expected a text, because torchrun"):
            Ranks().require_prompt(prompt)
    Ranks().require_prompt("Once")


@pytest.mark.parametrize(
    ("family", "changes", "ranks", "text"),
    [
        ("llama", {}, 3, "expected ranks that divide the 4 heads of llama, got 3 ranks"),
        ("llama", {"num_key_value_heads": 2}, 8, "divide the 4 heads"),
        ("mixtral", {"intermediate_size": 2}, 4, "at most 2 ranks, the blocks of 1"),
        ("rwkv5", {}, 2, "expected a model with attention, got rwkv5, which is recurrent"),
    ],
)
def test_models_that_cannot_be_split_are_refused(
    tmp_path: Path, family: str, changes: dict[str, int], ranks: int, text: str
) -> None:
    pytest.importorskip("tokenizers")
    device = Api.quick_init(0, "host")
    make_model(tmp_path / family, family, changes, seed=1)
    source = open_source(tmp_path / family, device)
    with pytest.raises((ArgumentValueError, NotSupportedError), match=text):
        Loader(source, device, None, None, (0, ranks))


def test_shares_cover_each_part_once(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    device = Api.quick_init(0, "host")
    make_model(tmp_path / "wide", "llama", SIZES, seed=1)
    source = open_source(tmp_path / "wide", device)
    for ranks, kind in ((2, "q4_K"), (4, "q4_0")):
        shares = [Loader(source, device, None, kind, (rank, ranks)).share for rank in range(ranks)]
        for part, length in (("q", 512), ("k", 256), ("gate", 1280), ("output", 512)):
            cuts = [None if share is None else share.cut(f"{part}.weight") for share in shares]
            bounds = [one for cut in cuts if cut is not None for one in cut.ranges]
            assert (bounds[0][0], bounds[-1][1]) == (0, length)
            assert all(one[1] == two[0] for one, two in pairwise(bounds))
    with pytest.raises(ArgumentValueError, match=r"in whole blocks of 256 elements, .* at 128\."):
        Loader(source, device, None, "q4_K", (0, 4))


def test_a_rank_of_two_holds_at_most_55_percent_of_tinyllama(tmp_path: Path) -> None:
    device = Api.quick_init(0, "host")
    make_model(tmp_path / "small", "llama", {"num_hidden_layers": 1}, seed=1)
    config = json.loads((tmp_path / "small" / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, **TINYLLAMA}), "utf-8")
    layer = "model.layers.{}."
    shapes = {"model.embed_tokens": (32000, 2048), "lm_head": (32000, 2048), "model.norm": (2048,)}
    for at in range(22):
        names = layer.format(at)
        shapes |= {f"{names}self_attn.{one}_proj": (2048, 2048) for one in "qo"}
        shapes |= {f"{names}self_attn.{one}_proj": (256, 2048) for one in "kv"}
        shapes |= {f"{names}mlp.{one}_proj": (5632, 2048) for one in ("gate", "up")}
        shapes |= {f"{names}mlp.down_proj": (2048, 5632)}
        shapes |= {f"{names}{one}_layernorm": (2048,) for one in ("input", "post_attention")}
    header: dict[str, object] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * prod(shape)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        # Zeros that take no room on the disk: the loader counts bytes and reads none.
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    source = open_source(tmp_path, device)
    for kind in (None, "q8_0", "q4_0", "Q4_K_M"):
        whole = Loader(source, device, None, kind).nbytes
        own = [Loader(source, device, None, kind, (rank, 2)).nbytes for rank in range(2)]
        assert max(own) <= 0.55 * whole, (kind, own, whole)
        assert sum(own) >= whole


@needs_mpi
def test_a_launcher_that_did_not_start_mpi_is_refused() -> None:
    """Under torchrun each process is MPI's rank 0 of 1; that must not pass for a job of one."""
    program = (
        "import uhal; from uhal.collectives import share, unique_id; "
        "uhal.Api.quick_init(0, 'host'); share(unique_id())"
    )
    told = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    done = run(1, "-c", program, **told)
    assert done.returncode != 0
    assert "expected MPI to have the 2 ranks of torchrun, got rank 0 of 1" in done.stderr


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from uhal.collectives import mpi, share
    from uhal.errors import LibraryNotFoundError

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    mpi._mpi.cache_clear()
    Api.quick_init(0, "host")
    with pytest.raises(LibraryNotFoundError, match=r'pip install "uhal-py\[mpi\]"'):
        share(b"x" * 128)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, (0, 1, 0, "")),
        (
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"},
            (5, 8, 1, "torchrun"),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            },
            (1, 2, 1, "Open MPI"),
        ),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0"},
            (0, 3, 0, "MPICH or Intel MPI"),
        ),
        (
            {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1"},
            (3, 4, 1, "Slurm"),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1, 0, "")),
        (
            {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "RANK": "6", "WORLD_SIZE": "8"},
            (6, 8, 0, "torchrun"),
        ),
        ({"RANK": "5"}, (0, 1, 0, "")),
    ],
)
def test_places_by_launcher(variables: dict[str, str], place: tuple[int, int, int, str]) -> None:
    found = Place.of(variables)
    assert (found.rank, found.ranks, found.local_rank, found.launcher) == place


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "", "²", "9" * 5000])
def test_a_wrong_rank_of_a_launcher_is_refused(text: str) -> None:
    with pytest.raises(ArgumentValueError, match=r"RANK: expected a number from torchrun, got"):
        Place.of({"RANK": text, "WORLD_SIZE": "8"})
    with pytest.raises(ArgumentValueError, match=r"RANK: expected a rank below WORLD_SIZE=8"):
        Place.of({"RANK": "8", "WORLD_SIZE": "8"})
    with pytest.raises(ArgumentValueError, match=r"RANK: expected a rank below WORLD_SIZE=8"):
        Place.of({"RANK": "9", "WORLD_SIZE": "8"})
