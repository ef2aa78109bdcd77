"""What the files of a batch say of where its inputs lie."""

from __future__ import annotations

import pytest

from xsp.batch.locations import from_batch


@pytest.mark.parametrize(
    ("name", "output", "shown"),
    [
        ("/home/ann/in/a.json", "/home/ann/out", "../in/a.json"),
        ("/home/ann/out/in/a.json", "/home/ann/out", "in/a.json"),
        ("/data/a.json", "/home/ann/out", "a.json"),
        ("/home/ann/in/a.json", "s3://bucket/out", "a.json"),
        ("file:///home/ann/in/a.json", "/home/ann/out", "../in/a.json"),
        ("s3://bucket/in/a?.json", "/home/ann/out", "s3://bucket/in/a?.json"),
        ("https://ann:word@host/in/a.json?signature=secret#part", "/home/ann/out", "https://host/in/a.json"),
        ("sftp://ann:wo@rd@host/in/a.json", "/home/ann/out", "sftp://host/in/a.json"),
    ],
)
def test_an_input_is_named_from_the_batch_without_who_may_read_it(name: str, output: str, shown: str) -> None:
    assert from_batch(name, output) == shown
