"""The conformance suite for backends of uhal, run on a device of yours.

`python -m uhal conformance --backend NAME` runs it. The tests lie in `suite/`. In a checkout, they
lie in `tests/conformance/`, and `make test` runs them on simulated devices.

* command.py: the command.
* running.py: one run of the tests, and the outcome of each.
* report.py: the report: a table, and JSON to send.
* row.py: a device under test.
* images.py: kernels of the suite, compiled for a backend.
* gaps.py: permanent gaps of a backend, with reasons.
* fixtures.py: the tests' fixtures, with the modules not named here.
* seeds.py: random inputs that a printed seed repeats; sampling.py: how often.
"""
