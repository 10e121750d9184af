"""Chat templates: transformers' results, and limits of an untrusted template."""

from __future__ import annotations

import datetime
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from ubridge.models.text import render, templates
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

pytest.importorskip("jinja2")

HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "Be kind"},
    {"role": "user", "content": 'Is 1 < 2 & "so"? ß'},
    {"role": "assistant", "content": "Yes"},
    {"role": "user", "content": "Why?\n"},
]
IM = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def test_messages_become_a_prompt() -> None:
    assert render(IM, TALK) == (
        "<|im_start|>system\nBe kind<|im_end|>\n"
        '<|im_start|>user\nIs 1 < 2 & "so"? ß<|im_end|>\n'
        "<|im_start|>assistant\nYes<|im_end|>\n"
        "<|im_start|>user\nWhy?\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render(IM, HELLO, add_generation_prompt=False).endswith("Hello<|im_end|>\n")


def test_names_and_filters_that_templates_use() -> None:
    template = "{{ bos_token }}{{ tools | tojson }}{{ strftime_now('%Y') }}{{ documents is none }}"
    given = render(template, HELLO, bos_token="<s>", tools=[{"ä": "<x>"}])
    assert given == '<s>[{"ä": "<x>"}]' + f"{datetime.datetime.now():%Y}" + "True"
    loop = (
        "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
        "{{ m.role }} {% endfor %}"
    )
    assert render(loop, TALK) == "system user "
    marked = "{% generation %}{{ messages[0].content }}{% endgeneration %}!"
    assert render(marked, HELLO) == "Hello!"
    assert json.loads(render("{{ messages | tojson(indent=2) }}", HELLO)) == HELLO


def test_an_answer_of_calls_alone_has_no_text() -> None:
    calls = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}]
    template = (
        "{% for m in messages %}[{{ m.content }}{{ m.content is none }}"
        "{{ m.tool_calls | tojson if m.tool_calls }}{{ m.content | tojson }}]{% endfor %}"
    )
    assert render(template, calls) == '[HelloFalse"Hello"][True[{"name": "f"}]null]'


def test_blocks_leave_no_lines_of_their_own() -> None:
    template = "a\n  {% if true %}\nb\n  {% endif %}\nc\n"
    assert render(template, HELLO) == "a\nb\nc"


def test_a_template_may_refuse() -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ArgumentValueError, match="refuses these messages: roles must alternate"):
        render(template, HELLO)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ ''.__class__.__mro__ }}", "a forbidden operation"),
        ("{{ messages.append(1) }}", "a forbidden operation"),
        ("{{ messages[0].update(role='x') }}", "a forbidden operation"),
        ("line\n{% for x in %}", r"mistake in line 2: .*'\{% for x in %\}'"),
        ("{{ messages[0].content + 1 }}", "failed on these messages: TypeError"),
        ("{{ messages[7].content.x }}", "failed on these messages: UndefinedError"),
    ],
)
def test_what_a_template_must_not_do(template: str, says: str) -> None:
    with pytest.raises(ArgumentValueError, match=says):
        render(template, [dict(one) for one in HELLO])
    assert HELLO == [{"role": "user", "content": "Hello"}]


TIME, MEMORY = "2 seconds of processor time", "64 MB of memory"
DEPTH = f"{MEMORY}|RecursionError"
GREEDY = {
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": TIME,
    "{% set n = 9999 %}{{ n ** (n ** n) }}": TIME,
    "{{ lipsum(n=10**8) }}": f"{TIME}|{MEMORY}",
    "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% endfor %}{{ ns.a }}": f"{TIME}|{MEMORY}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}": DEPTH,
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": DEPTH,
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
    "{% endfor %}{{ ns.s }}": MEMORY,
    "{{ messages | tojson(indent=10**9) }}": MEMORY,
    "{{ 'a' | center(10**9) }}": MEMORY,
    "{{ '%1000000000d' % 1 }}": MEMORY,
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("template", GREEDY)
def test_a_template_takes_bounded_time_and_memory(template: str) -> None:
    with pytest.raises(ArgumentValueError, match=f"the chat template .*({GREEDY[template]})"):
        render(template, HELLO)
    assert render(IM, HELLO).startswith("<|im_start|>user")


def test_long_messages_are_no_templates_memory() -> None:
    long = [{"role": "user", "content": "ä" * (8 << 20)}]
    assert len(render(IM, long)) > 8 << 20


def test_messages_of_any_mappings_are_told() -> None:
    message = MappingProxyType({"role": "user", "content": ({"n": np.float64(0.5)}, True, 7)})
    messages: Any = [message]
    told = render("{{ messages[0].content[0].n }} {{ messages[0].content[1:] }} {{ x }}", messages)
    assert told == "0.5 [True, 7] "
    wrong: Any = [{"role": "user", "content": [datetime.datetime.now()]}]
    with pytest.raises(ArgumentTypeError, match=r"messages: expected texts, .* got datetime"):
        render(IM, wrong)
    wrong[0]["content"] = wrong
    with pytest.raises(ArgumentValueError, match=r"messages: expected at most \d+ levels"):
        render(IM, wrong)


def test_threads_and_forked_processes_render() -> None:
    def one(number: int) -> bool:
        return render("{{ n }}", HELLO, n=number) == str(number)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))
    child = os.fork()
    if not child:
        os._exit(0 if one(5) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert one(6)


def test_without_a_process_a_template_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/nowhere/python", "/bin/true", ""):
        monkeypatch.setattr(templates, "_process", templates._Process())
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(NotSupportedError, match="chat templates run in a process of Python"):
            render(IM, HELLO)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ("Hello", r"expected a list such as \[.*got str"),
        (HELLO[0], "expected a list"),
        ([], "at least one"),
        ([{"content": "x"}], r"messages\[0\]: expected a mapping with the texts role"),
        ([*HELLO, {"role": "user"}], r"messages\[1\]: expected a content"),
        ([*HELLO, {"role": "user", "content": None}], r"messages\[1\]: expected a content"),
        ([{"role": "user", "content": None, "tool_calls": []}], r"messages\[0\]: expected a cont"),
    ],
)
def test_what_is_no_list_of_messages(messages: Any, says: str) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=says):
        render(IM, messages)


@pytest.mark.parametrize("generation_prompt", [True, False])
def test_transformers_makes_the_same(generation_prompt: bool) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    for messages in (HELLO, TALK):
        expected, _ = utils.render_jinja_template(
            [messages], chat_template=IM, add_generation_prompt=generation_prompt
        )
        assert render(IM, messages, add_generation_prompt=generation_prompt) == expected[0]
