"""List every backend, its devices, or the reason why it is unusable.

No backend has to be installed; the line of a missing backend says how to install it.
"""

import argparse

from uhal import Api, Device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="show only this one")
    chosen = parser.parse_args().backend

    for record in Api.backends():
        if chosen not in (None, record.name):
            continue
        print(f"{record.name:<5} {record.verdict:<8} {record.reason}")
        if record.next_step:
            print(f"{'':14} -> {record.next_step}")
        for summary in record.devices:
            describe(Device(summary.ordinal, backend=record.name))


def describe(device: Device) -> None:
    free, total = device.memory_info()
    limits = device.limits
    print(f"  {device.backend}:{device.ordinal}  {device.name}")
    print(f"    uuid           {device.uuid}")
    print(f"    memory         {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    print(f"    processors     {limits.processors}")
    print(f"    block          at most {limits.max_threads_per_block} threads, {limits.max_block}")
    print(f"    grid           at most {limits.max_grid}")
    print(f"    shared memory  {limits.max_shared_bytes_per_block} bytes a block")


if __name__ == "__main__":
    main()
