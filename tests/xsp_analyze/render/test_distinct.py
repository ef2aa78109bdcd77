"""Labels that are alike get what differs among their rows, or at last a number."""

from __future__ import annotations

from xsp_analyze.classification.labels import distinct_labels
from xsp_analyze.text.units import cut_to_room, number_alike, tell_apart


def test_only_labels_that_are_alike_get_what_differs() -> None:
    details = [["host", "device 0"], ["sync", "device 0"], ["host", "device 1"]]
    assert tell_apart(["a", "a", "b"], details) == ["a (host)", "a (sync)", "b"]
    assert tell_apart(["a", "a", "a"], details) == ["a (host, device 0)", "a (sync, device 0)", "a (host, device 1)"]
    assert tell_apart(["a", "a"], [["-"], ["x"]]) == ["a (-)", "a (x)"]
    assert tell_apart(["a", "a"], [["x"], ["x"]]) == ["a #1", "a #2"]
    assert number_alike(["a", "b"]) == ["a", "b"]


def test_kernels_of_one_label_get_the_part_of_their_names_that_differs() -> None:
    names = [f"sm90_xmma_gemm_f32f32_tf32f32_f32_{order}_n_tilesize128x128x32" for order in ("tn", "nn", "nt")]
    label = "GEMM tf32 128x128x32"
    assert distinct_labels([label] * 3, names) == [f"{label} (tn)", f"{label} (nn)", f"{label} (nt)"]
    assert distinct_labels([label, "other", label], [names[0], "k", names[0]]) == [label, "other", label]
    assert distinct_labels(["x", "x"], ["k_a_b", "k_b_a"]) == ["x: k_a_b", "x: k_b_a"]


def test_the_longest_texts_lose_their_middle_where_all_have_more_than_the_room() -> None:
    texts = ["short", "a" * 60 + "b" * 60, "short", "c" * 40]
    assert cut_to_room(texts, 165) == (texts, None)
    cut, kept = cut_to_room(texts, 125)
    assert (kept, list(map(len, cut))) == (80, [5, 80, 5, 40])
    assert cut[1] == f"{'a' * 53}\N{HORIZONTAL ELLIPSIS}{'b' * 26}"
    assert list(map(len, cut_to_room(["d" * 90, "e" * 30], 2)[0])) == [16, 16]  # less says nothing
