"""The conformance suite: what every backend of uhal must do, run on a device of yours.

`python -m uhal conformance --backend NAME` runs it. The tests lie in `suite/`, in a checkout in
`tests/conformance/`, where `make test` runs the same files on simulated devices.

    command.py         the command
    running.py         one run of the tests, and what came of each
    report.py          the report: a table, and JSON to send
    row.py             a device under test
    images.py          kernels of the suite, compiled for a backend
    gaps.py            what a backend cannot do, for good, with the reason
    fixtures.py        what the tests are given, with the modules not named here
    seeds.py           random inputs that a printed seed repeats; sampling.py: how often
"""
