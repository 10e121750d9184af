"""Graphs built node by node, changed, cloned, nested and captured, through cuda.bindings.

Arguments: a PTX file with `activationf32`, a seed.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import driver

CU = driver.CUresult
Type = driver.CUgraphNodeType


def done(answer: tuple) -> object:
    """Check the status, the first element, and return the other elements."""
    result, *values = answer
    assert result == CU.CUDA_SUCCESS, result
    return values[0] if len(values) == 1 else values


image, seed = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
rng = np.random.default_rng(seed)
count = int(rng.integers(40, 200))
size = 4 * count

done(driver.cuInit(0))
context = done(driver.cuDevicePrimaryCtxRetain(0))
done(driver.cuCtxSetCurrent(context))
stream = done(driver.cuStreamCreate(1))
relu = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(image)), b"activationf32"))
data, other = (done(driver.cuMemAlloc(size)) for _ in range(2))
source, found = (rng.standard_normal(count, dtype=np.float32) for _ in range(2))


def copying(to: object, what: object) -> object:
    """Return a copy of `size` bytes between host arrays and device addresses."""
    copy = driver.CUDA_MEMCPY3D()
    copy.WidthInBytes, copy.Height, copy.Depth = size, 1, 1
    for prefix, side in (("src", what), ("dst", to)):
        kind = "HOST" if isinstance(side, np.ndarray) else "DEVICE"
        memory = getattr(driver.CUmemorytype, f"CU_MEMORYTYPE_{kind}")
        setattr(copy, f"{prefix}MemoryType", memory)
        pointer = side.ctypes.data if isinstance(side, np.ndarray) else side
        setattr(copy, f"{prefix}{kind.title()}", pointer)
    return copy


def filling(to: object, value: int, elements: int, element_size: int = 4) -> object:
    fill = driver.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.value, fill.elementSize, fill.width, fill.height = (
        *(to, value, element_size, elements),
        1,
    )
    return fill


# Return pointers to parameters; a node copies the parameters when it is created.
arguments = (ctypes.c_uint64(int(data)), ctypes.c_uint32(1), ctypes.c_uint32(count))
arguments = (*arguments, ctypes.c_int32(0))
pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(one) for one in arguments))


def launching() -> object:
    launch = driver.CUDA_KERNEL_NODE_PARAMS()
    launch.func = relu
    launch.gridDimX = launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1
    launch.blockDimX = 256
    launch.kernelParams = ctypes.addressof(pointers)
    return launch


def run(graph: object) -> None:
    """Instantiate a graph, launch it, wait and destroy it."""
    executable = done(driver.cuGraphInstantiate(graph, 0))
    launch(executable)
    done(driver.cuGraphExecDestroy(executable))


def launch(executable: object) -> None:
    found[:] = np.nan
    done(driver.cuGraphLaunch(executable, stream))
    done(driver.cuStreamSynchronize(stream))


def handles(nodes: object) -> list[int]:
    return sorted(int(node) for node in nodes)


# A chain has one node of each kind.
seen: list[int] = []
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda given: seen.append(given))
event = done(driver.cuEventCreate(0))
host = driver.CUDA_HOST_NODE_PARAMS()
host.fn, host.userData = ctypes.cast(call, ctypes.c_void_p).value, 77

graph = done(driver.cuGraphCreate(0))
up = done(driver.cuGraphAddMemcpyNode(graph, None, 0, copying(data, source), context))
kernel = done(driver.cuGraphAddKernelNode(graph, [up], 1, launching()))
few = int(rng.integers(1, count))
filled = int(rng.integers(1, 1 << 30))
fill = done(driver.cuGraphAddMemsetNode(graph, [kernel], 1, filling(data, filled, few), context))
record = done(driver.cuGraphAddEventRecordNode(graph, [fill], 1, event))
wait = done(driver.cuGraphAddEventWaitNode(graph, [record], 1, event))
calls = done(driver.cuGraphAddHostNode(graph, [wait], 1, host))
empty = done(driver.cuGraphAddEmptyNode(graph, [calls], 1))
down = done(driver.cuGraphAddMemcpyNode(graph, [empty], 1, copying(found, data), context))
chain = [up, kernel, fill, record, wait, calls, empty, down]
kinds = "MEMCPY KERNEL MEMSET EVENT_RECORD WAIT_EVENT HOST EMPTY MEMCPY"
assert [done(driver.cuGraphNodeGetType(node)) for node in chain] == [
    getattr(Type, f"CU_GRAPH_NODE_TYPE_{kind}") for kind in kinds.split()
]


def expected(fill: int = filled, elements: int = few) -> np.ndarray:
    clipped = np.maximum(source, 0)
    clipped[:elements].view(np.uint32)[:] = fill
    return clipped


run(graph)
assert np.array_equal(found, expected())
assert seen == [77]
assert driver.cuEventQuery(event)[0] == CU.CUDA_SUCCESS

# The driver lists the graph's nodes and edges.
nodes, number = done(driver.cuGraphGetNodes(graph, len(chain)))
assert (handles(nodes), number) == (handles(chain), len(chain))
assert done(driver.cuGraphGetNodes(graph))[1] == len(chain)
roots, number = done(driver.cuGraphGetRootNodes(graph, 5))
assert number == 1 and int(roots[0]) == int(up)
ends = done(driver.cuGraphGetEdges(graph, 20))
assert ends[3] == len(chain) - 1
assert [int(node) for node in ends[0][: ends[3]]] == [int(node) for node in chain[:-1]]
assert [int(node) for node in ends[1][: ends[3]]] == [int(node) for node in chain[1:]]
later = done(driver.cuGraphNodeGetDependentNodes(kernel, 3))
assert later[2] == 1 and int(later[0][0]) == int(fill)
asked = done(driver.cuGraphMemcpyNodeGetParams(up))
assert (asked.srcHost, int(asked.dstDevice)) == (source.ctypes.data, int(data))
assert asked.WidthInBytes == size
asked = done(driver.cuGraphMemsetNodeGetParams(fill))
assert (int(asked.dst), asked.value, asked.width) == (int(data), filled, few)
assert done(driver.cuGraphHostNodeGetParams(calls)).userData == 77
assert int(done(driver.cuGraphEventRecordNodeGetEvent(record))) == int(event)
assert int(done(driver.cuGraphNodeGetContainingGraph(kernel))) == int(graph)
assert done(driver.cuGraphNodeGetParams(fill)).memset.value == filled
assert int(done(driver.cuGraphNodeGetParams(kernel)).kernel.func) == int(relu)

# Changes to an executable graph and to its source graph are independent.
executable = done(driver.cuGraphInstantiate(graph, 0))
again = int(rng.integers(1, 1 << 30))
changed = filling(data, again, count)
done(driver.cuGraphExecMemsetNodeSetParams(executable, fill, changed, context))
launch(executable)
assert np.array_equal(found, expected(again, count))
done(driver.cuGraphNodeSetEnabled(executable, fill, 0))
assert done(driver.cuGraphNodeGetEnabled(executable, fill)) == 0
launch(executable)
assert np.array_equal(found, np.maximum(source, 0))
assert driver.cuGraphNodeSetEnabled(executable, empty, 0)[0] == CU.CUDA_ERROR_INVALID_VALUE
done(driver.cuGraphNodeSetEnabled(executable, fill, 1))
run(graph)
assert np.array_equal(found, expected())
done(driver.cuGraphMemsetNodeSetParams(fill, filling(data, again, few)))
run(graph)
assert np.array_equal(found, expected(again))
done(driver.cuGraphExecUpdate(executable, graph))
launch(executable)
assert np.array_equal(found, expected(again))
wrong = driver.cuGraphExecMemsetNodeSetParams(executable, up, changed, context)[0]
assert wrong == CU.CUDA_ERROR_INVALID_VALUE

# A clone is a separate graph; its nodes can be found by the original's nodes.
clone = done(driver.cuGraphClone(graph))
twin = done(driver.cuGraphNodeFindInClone(fill, clone))
assert int(twin) != int(fill)
done(driver.cuGraphMemsetNodeSetParams(twin, filling(data, filled, few)))
run(clone)
assert np.array_equal(found, expected())
run(graph)
assert np.array_equal(found, expected(again))
done(driver.cuGraphDestroyNode(twin))
run(clone)  # the copy back has no dependencies any more, but still runs
missing = driver.cuGraphNodeFindInClone(fill, clone)[0]
assert missing == CU.CUDA_ERROR_INVALID_VALUE
done(driver.cuGraphDestroy(clone))

# A child graph is a copy, which can be changed in its parent.
outer = done(driver.cuGraphCreate(0))
inner = done(driver.cuGraphAddChildGraphNode(outer, None, 0, graph))
embedded = done(driver.cuGraphChildGraphNodeGetGraph(inner))
assert int(embedded) != int(graph)
assert driver.cuGraphDestroy(embedded)[0] == CU.CUDA_ERROR_INVALID_VALUE
done(driver.cuGraphAddMemcpyNode(outer, [inner], 1, copying(other, data), context))
done(driver.cuGraphDestroy(graph))
for value in (again, filled):
    run(outer)
    assert np.array_equal(found, expected(value))
    inside = done(driver.cuGraphGetNodes(embedded, len(chain)))[0]
    filler = next(
        node
        for node in inside
        if done(driver.cuGraphNodeGetType(node)) == Type.CU_GRAPH_NODE_TYPE_MEMSET
    )
    done(driver.cuGraphMemsetNodeSetParams(filler, filling(data, filled, few)))
copied = np.full(count, np.nan, np.float32)
done(driver.cuMemcpyDtoH(copied.ctypes.data, other, size))
assert np.array_equal(copied, expected())
done(driver.cuGraphDestroy(outer))
assert driver.cuGraphGetNodes(embedded)[0] == CU.CUDA_ERROR_INVALID_VALUE

# Dependencies can be added and removed; a graph with a cycle cannot run.
graph = done(driver.cuGraphCreate(0))


def adding(after: list, kind: str, **parameters: object) -> object:
    """One call creates nodes of all kinds."""
    node = driver.CUgraphNodeParams()
    node.type = getattr(Type, f"CU_GRAPH_NODE_TYPE_{kind.upper()}")
    for name, value in parameters.items():
        setattr(node, name, value)
    return done(driver.cuGraphAddNode(graph, after, None, len(after), node))


def filled_with(value: int) -> object:
    fill = driver.CUDA_MEMSET_NODE_PARAMS_v2()
    fill.dst, fill.value, fill.elementSize, fill.width, fill.height = data, value, 4, count, 1
    fill.ctx = context
    return fill


copy = driver.CUDA_MEMCPY_NODE_PARAMS()
copy.copyCtx, copy.copyParams = context, copying(found, data)
first = adding([], "memset", memset=filled_with(1))
second = adding([], "memset", memset=filled_with(2))
last = adding([], "memcpy", memcpy=copy)
done(driver.cuGraphAddDependencies(graph, [first, second], [second, last], None, 2))
run(graph)
assert (found.view(np.uint32) == 2).all()
repeated = driver.cuGraphAddDependencies(graph, [first], [second], None, 1)[0]
assert repeated == CU.CUDA_ERROR_INVALID_VALUE
done(driver.cuGraphAddDependencies(graph, [last], [first], None, 1))
assert driver.cuGraphInstantiate(graph, 0)[0] == CU.CUDA_ERROR_INVALID_VALUE
done(driver.cuGraphRemoveDependencies(graph, [last, first], [first, second], None, 2))
done(driver.cuGraphAddDependencies(graph, [second], [first], None, 1))
done(driver.cuGraphAddDependencies(graph, [first], [last], None, 1))
run(graph)
assert (found.view(np.uint32) == 1).all()

# A capture continues an existing graph after its nodes.
tail = driver.cuStreamBeginCaptureToGraph(
    *(stream, graph, [last], None, 1),
    driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED,
)
done(tail)
done(driver.cuMemsetD32Async(data, 5, count, stream))
assert driver.cuGraphInstantiate(graph, 0)[0] == CU.CUDA_ERROR_INVALID_VALUE
status, _, capturing, *_ = done(driver.cuStreamGetCaptureInfo(stream))
assert int(capturing) == int(graph)
aside = done(driver.cuGraphAddEmptyNode(graph, None, 0))
add, replace = (
    getattr(
        driver.CUstreamUpdateCaptureDependencies_flags, f"CU_STREAM_{name}_CAPTURE_DEPENDENCIES"
    )
    for name in ("ADD", "SET")
)
done(driver.cuStreamUpdateCaptureDependencies(stream, [aside], None, 1, add))
assert done(driver.cuStreamGetCaptureInfo(stream))[5] == 2
done(driver.cuMemcpyDtoHAsync(found.ctypes.data, data, size, stream))
done(driver.cuStreamUpdateCaptureDependencies(stream, [aside], None, 1, replace))
assert int(done(driver.cuStreamEndCapture(stream))) == int(graph)
late = driver.cuStreamUpdateCaptureDependencies(stream, [aside], None, 1, add)[0]
assert late == CU.CUDA_ERROR_ILLEGAL_STATE
run(graph)
assert (found.view(np.uint32) == 5).all()
done(driver.cuGraphDestroy(graph))
