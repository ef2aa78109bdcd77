"""The id of a request that is no JSON."""

from __future__ import annotations

import json
import time

import pytest

from xsp.agents.server import id_in

_DEEP = "[" * 3_000 + "]" * 3_000


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        (r'{"jsonrpc":"2.0","id":3,"method":"a\ud800"}', 3),
        (r'{"method":"\ud800","params":{"id":9,"a":[{"id":8}]},"id":"mine"}', "mine"),
        (f'{{"params":{{"id":9,"a":{_DEEP}}},"id":4}}', 4),
        (r'{"id":"\ud800","method":"a"}', None),
        (r'{"id":"a\u00e9\"b","method":"\ud800"}', 'a\u00e9"b'),
        (r'{"note":"\"id\":5","method":"\ud800"}', None),
        ('{"params":["id",5]', None),
        ('[{"id":5}', None),
        ('{"id":5.5,', 5.5),
        ('{"id":0.5e1,', 5),
        ('{"id":1e400,', None),
        ('{"id":NaN,', None),
        ('{"id":true,', None),
        ('{"id":{"id":5},', None),
        (f'{{"id":{"9" * 10_000},', None),
        ('{"id":7,"method":"cut off', 7),
        ("", None),
        ('no json "id":5', None),
    ],
)
def test_the_id_is_that_of_the_request(line: str, request_id: object) -> None:
    assert id_in(line) == request_id


def test_what_is_found_can_be_said() -> None:
    assert json.dumps(id_in(r'{"id":"x\\","method":"\ud800"}')) == r'"x\\"'


def test_a_long_line_that_is_cut_off_takes_no_time() -> None:
    began = time.process_time()
    assert id_in('{"id":1,"a":"' + '\\"' * 200_000) == 1
    assert time.process_time() - began < 5
