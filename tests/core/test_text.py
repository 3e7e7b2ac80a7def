"""Seams: alignment is exact or says that it is not, cuts are safe, stops hold over any chunking."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.text import (
    StopScanner,
    align,
    align_draft,
    closes_thoughts,
    join_continuation,
    looks_special,
    opens_thoughts,
    pieces,
    safe_cut,
    special_cut,
)

Entry = tuple[str, bytes | None, float | None]

# --- align -------------------------------------------------------------------------------------


def test_clean_surfaces_end_where_they_stand() -> None:
    """Tokens that are whole text have their ends in characters, not bytes."""
    assert align(["Zür", "ich", " 家", "!"], "Zürich 家!") == (3, 6, 8, 9)
    assert align([], "") == ()


def test_bytes_surfaces_are_exact() -> None:
    """A token that ends inside a character has no end; the next one that completes it has."""
    bird = " 🦤".encode()
    assert align([b"a", bird[:3], bird[3:], "b"], "a 🦤b") == (1, None, 3, 4)
    assert align([bird[:3], bird[3:4]], " 🦤") is None


@pytest.mark.parametrize(
    "surfaces", [["ab"], ["a", "b", "d"], ["a", "b", "c", "d"], [b"ab\xff"], ["a", "b\ufffd"], ["x\ufffd", "bc"]]
)
def test_surfaces_that_do_not_join_to_the_text_have_no_ends(surfaces: list[bytes | str]) -> None:
    """Too short, too long, different: the whole alignment is refused."""
    assert align(surfaces, "abc") is None


def test_b50_b_parts_of_characters_are_pinned_by_what_follows() -> None:
    """In a run of unknown bytes only the end of the run is certain: the next clean token or the end pins it."""
    surfaces = ["awesome", " \ufffd\ufffd", "\ufffd", "\ufffd", "\ufffd\ufffd", "\ufffd", "\ufffd", " ok"]
    assert align(surfaces, "awesome 🦤🪿 ok") == (7, None, None, None, None, None, 10, 13)
    assert align(surfaces[:-1], "awesome 🦤🪿") == (7, None, None, None, None, None, 10)


def test_clean_wide_tokens_around_parts_of_characters() -> None:
    """A clean token after a run keeps its end, one between two runs has none, since the runs' ends may differ."""
    assert align(["\ufffd", "\ufffd", "家", " x"], "野家 x") == (None, 1, 2, 4)
    assert align(["\ufffd\ufffd", "家", "\ufffd\ufffd", "."], "𠮷家🦤.") == (None, None, 3, 4)
    assert align(["é\ufffd", "\ufffd家!"], "é野家!") == (None, 4)
    assert align([b"a", "\ufffd", "野".encode()[2:], "b"], "a野b") == (1, None, 2, 3)


@pytest.mark.parametrize(
    ("surfaces", "text"),
    [
        (["\ufffd", "x"], "x"),  # nothing there for the unknown bytes
        (["\ufffd", "x"], "🦤🦤x"),  # more than three bytes a mark
        (["\ufffd家", "x"], "🦤x"),  # other wide text than shown
        (["\ufffda\ufffd"], "éaé"),  # ASCII between two parts of characters in one token
        (["é\ufffd"], "ü🦤"),  # other text before the mark
    ],
)
def test_runs_of_unknown_bytes_that_cannot_fit_are_refused(surfaces: list[str], text: str) -> None:
    """Unknown bytes stand for one to three bytes each, outside ASCII, with the shown text around them."""
    assert align(surfaces, text) is None


def test_an_empty_surface_has_no_certain_end() -> None:
    """Some servers show the parts of a character as empty strings until its last token."""
    assert align(["a", "", "🦤", ""], "a🦤") == (1, None, 2, None)


def test_alignment_is_linear_in_adversarial_input() -> None:
    """Five thousand tokens of unknown bytes, with clean wide tokens between them, are no problem."""
    surfaces = ["\ufffd", "\ufffd", "野"] * 1700
    ends = align([*surfaces, "."], "🦤野" * 1700 + ".")
    assert ends is not None
    assert ends[-2:] == (3400, 3401) and set(ends[:-3]) == {None}
    assert align([*surfaces, "!"], "🦤野" * 1700 + ".") is None


@given(st.text(max_size=40), st.lists(st.integers(0, 160), max_size=12), st.booleans())
def test_alignment_of_any_cut_of_any_text(text: str, cuts: list[int], lossy: bool) -> None:
    """However the bytes of a text are cut into tokens, every end that is given is the true one; exact bytes
    give an end for every token that ends between characters."""
    data = text.encode()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [data[left:right] for left, right in itertools.pairwise(edges)]
    surfaces: list[bytes | str] = [part.decode("utf-8", "replace") if lossy else part for part in parts]
    true: list[int | None] = []
    for edge in edges[1:]:
        try:
            true.append(len(data[:edge].decode()))
        except UnicodeDecodeError:
            true.append(None)
    ends = align(surfaces, text)
    if not lossy:
        assert ends == tuple(true)
    elif ends is not None:
        assert all(end is None or end == real for end, real in zip(ends, true, strict=True))


# --- align_draft -------------------------------------------------------------------------------


def told(*entries: tuple[str, float | None] | Entry) -> list[Entry]:
    """Entries as a server sends them: with the bytes of the text it shows."""
    return [(entry[0], entry[0].encode(), entry[1]) if len(entry) == 2 else entry for entry in entries]


def test_entries_become_tokens_with_their_confidence() -> None:
    """Entries that fit the text one by one keep their log-probabilities; bytes may be missing."""
    entries: list[Entry] = [(" three", b" three", -0.1), (",", None, -0.2), (" four", b" four", None)]
    assert align_draft(entries, " three, four") == (
        DraftToken(" three", -0.1),
        DraftToken(",", -0.2),
        DraftToken(" four"),
    )


def test_b50_c_an_entry_of_several_tokens_gives_no_confidence() -> None:
    """Ollama 0.33 holds back a partial stop string and then sends two tokens as one entry."""
    tokens = align_draft(told((" three", -0.03), (", four", -0.05)), " three, four")
    assert tokens == (DraftToken(" three", -0.03), DraftToken(", four"))


@pytest.mark.parametrize(
    ("token", "sure"),
    [
        (" word", True), ("word", True), ("(foo", True), ("12", True), (").\n", True), ("\n\n", True), (" é", True),
        ("世界", True), ("x1", True), (" 🦤", False), ("ꙮ", False), ("a b", False), ("one,", False),
        ("...\n\nNext", False),
    ],
)  # fmt: skip
def test_b50_b_which_entries_may_be_several_tokens(token: str, sure: bool) -> None:
    """What no common tokenizer has as one token, and lone characters of many bytes, have unknown confidence."""
    assert align_draft(told((token, -0.5)), token) == (DraftToken(token, -0.5 if sure else None),)


def test_b50_b_parts_of_characters_become_one_token_without_confidence() -> None:
    """Ollama 0.24 shows U+FFFD for parts of characters: the text comes from the reply, the confidence is unknown."""
    entries = told(
        ("awesome", -3.9), (" \ufffd\ufffd", -2.0), ("\ufffd", -0.8), ("\ufffd", -0.1), ("\ufffd\ufffd", -0.4),
        ("\ufffd", -0.1), ("\ufffd", -0.1), (" \ufffd", -1.0), ("\ufffd", -0.1), ("\ufffd", -0.1),
    )  # fmt: skip
    assert align_draft(entries, "awesome 🦤🪿 ꙮ") == (
        DraftToken("awesome", -3.9),
        DraftToken(" 🦤🪿"),
        DraftToken(" ꙮ"),
    )


def test_b50_b_a_draft_never_ends_in_half_a_character() -> None:
    """A dangling entry of a cut character is dropped, and so is U+FFFD at the end of the text."""
    entries = told(("awesome", -3.9), (" \ufffd\ufffd", -2.0))
    assert align_draft(entries, "awesome ") == (DraftToken("awesome", -3.9), DraftToken(" "))
    assert align_draft(entries, "awesome \ufffd") == (DraftToken("awesome", -3.9), DraftToken(" "))


def test_exact_bytes_of_parts_of_characters_are_used() -> None:
    """llama.cpp gives the real bytes of a part of a character along with U+FFFD as its text."""
    bird = " 🦤".encode()
    entries: list[Entry] = [(" \ufffd", bird[:3], -0.3), ("\ufffd", bird[3:], -0.1), (" x", b" x", -0.2)]
    assert align_draft(entries, " 🦤 x") == (DraftToken(" 🦤"), DraftToken(" x", -0.2))


def test_b25_entries_that_do_not_line_up_keep_the_text_without_confidence() -> None:
    """Missing, different or late entries never change the text; entries past the end are dropped."""
    assert align_draft([], "Hello there.") == (DraftToken("Hello"), DraftToken(" there"), DraftToken("."))
    tokens = align_draft(told(("Hello", -0.1), (" world", -0.1), ("", -9999.0)), "Hello there")
    assert tokens == (DraftToken("Hello", -0.1), DraftToken(" there"))
    assert align_draft(told((" four", -0.1), (" five", -0.1)), " four") == (DraftToken(" four", -0.1),)
    assert align_draft(told((" four", -0.1), (" five", -0.1)), "") == ()


def test_b25_a_entries_of_thoughts_are_skipped() -> None:
    """Entries join to thoughts, answer and end mark; the content is the answer only."""
    entries = told(("<think>", -0.1), ("x", -0.1), ("</think>", -0.1), ("Paris", -0.4), ("<|im_end|>", -0.1))
    assert align_draft(entries, "Paris") == (DraftToken("Paris", -0.4),)
    inside = told(("xParis", -0.1), ("!", -0.1))
    assert align_draft(inside, "Paris") == (DraftToken("Paris"),)


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), -9999.0])
def test_b20_an_unusable_number_is_no_confidence(number: float) -> None:
    """What is no log-probability becomes unknown."""
    assert align_draft(told(("a", number)), "a") == (DraftToken("a"),)


@given(
    st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4), st.none() | st.floats()), max_size=8),
    st.text(max_size=20),
)
def test_a_draft_always_spells_the_text(entries: list[Entry], text: str) -> None:
    """Whatever the entries are, nothing is raised and the tokens join to the text without half a character."""
    assert "".join(token.text for token in align_draft(entries, text)) == text.rstrip("\ufffd")


@given(st.text(max_size=60))
def test_pieces_join_to_the_text(text: str) -> None:
    """No character is lost, and no piece is empty."""
    assert "".join(pieces(text)) == text and "" not in pieces(text)


# --- cuts and joins ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("see https:", "see"),  # (a) the next token would be //
        ("Hello", ""),  # (b) what follows a last word is unknown
        ("Hello world", "Hello"),
        ("It is 12", "It is"),  # (c) 12|34
        ("It is 3.1415 or", "It is 3.1415"),
        ("def f():\n    ret", "def f():\n    ret"[:3]),  # (d) never in an indent
        ("Steps are:\n\n", "Steps"),  # (e) right before a blank line
        ("a family 👨\u200d👩", "a family"),  # (f) joiner
        ("a thumb 👍🏽 here", "a thumb 👍🏽"),
        ("a heart ❤\ufe0f", "a heart"),
        ("go \u0301x", ""),  # the accent belongs to the space
        ("go 🇩🇪 now", "go 🇩🇪"),
        ("go 🇩🇪", "go"),
        ("go\u200d now", ""),
        ("two  spaces", ""),
        ("你好。再见", "你好"),
        ("。。", ""),
        (" lead", ""),
        ("\n lead", ""),
        ("trailing ", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_b28_the_cut_backs_up_to_a_safe_edge(text: str, kept: str) -> None:
    """A target goes on by text only where a new piece is known to begin, never inside what could merge."""
    assert text[: safe_cut(text)] == kept


@given(st.text(alphabet="ab 1.\n\u200d👍🏽é。", max_size=30))
def test_b28_a_cut_is_at_a_single_space_or_a_full_width_mark(text: str) -> None:
    """Wherever the cut falls, the text before it ends visibly and the text after it begins a new piece."""
    cut = safe_cut(text)
    if cut:
        assert not text[cut - 1].isspace()
        assert text[cut] == "。" or (text[cut] == " " and not text[cut + 1].isspace())


@pytest.mark.parametrize(
    ("prefix", "continuation", "joined"),
    [
        ("The answer is: ", " 42", "The answer is: 42"),
        ("The answer is: ", "42", "The answer is: 42"),
        ("Steps:\n\n", "\n\n1.", "Steps:\n\n1."),
        ("Steps:\n\n", "\n1.", "Steps:\n\n1."),
        ("Steps:\n\n", "1.", "Steps:\n\n1."),
        ("  ", "Hi", "  Hi"),
        ("", "  Hi", "  Hi"),
        ("Hello", " world", "Hello world"),
        ("https:", "//x", "https://x"),
        ("if x:\n   ", "     y", "if x:\n   y"),
    ],
)
def test_b26_the_separator_stands_exactly_once(prefix: str, continuation: str, joined: str) -> None:
    """A prefix whose trailing whitespace was trimmed for the wire is joined without losing or doubling it; without
    such whitespace the join is byte-equal."""
    assert join_continuation(prefix, continuation) == joined


def test_b27_b_a_repeated_prefix_is_removed() -> None:
    """The server said the whole prefix again."""
    assert join_continuation("One, two, three,", "One, two, three, four") == "One, two, three, four"
    assert join_continuation("One, two, three, ", " One, two, three, four") == "One, two, three, four"


def test_b27_c_a_repeated_last_sentence_is_removed() -> None:
    """The server began with the last sentence, finished or not."""
    prefix = "Paris is big. It lies on the Seine"
    assert join_continuation(prefix, "It lies on the Seine. Yes.") == prefix + ". Yes."


@pytest.mark.parametrize(
    ("prefix", "continuation"),
    [
        ("4", "42 is the answer"),
        ("The", "The end"),
        ("ha ha ha ha ha ha", "ha ha ha ha ha ha ha"),
        ("Stop. Wait. No", "No, go on"),
        ("First it rains a lot", " it rains a lot"),
    ],
)
def test_b27_d_what_only_looks_like_a_repetition_stays(prefix: str, continuation: str) -> None:
    """Short or periodic text may be a genuine continuation."""
    assert join_continuation(prefix, continuation) == prefix + continuation


def test_b27_what_is_known_about_the_server_decides() -> None:
    """A server known to echo has even a short prefix removed, one known not to keeps everything."""
    assert join_continuation("4", "42", echoed=True) == "42"
    assert join_continuation("4", "2", echoed=True) == "42"
    twice = "One, two, three,"
    assert join_continuation(twice, twice + " four", echoed=False) == twice + twice + " four"


# --- stop strings ------------------------------------------------------------------------------


def scan(stops: Sequence[str], chunks: Sequence[str]) -> tuple[str, bool]:
    scanner = StopScanner(stops)
    shown, hit = "", False
    for chunk in chunks:
        text, hit = scanner.feed(chunk)
        shown += text
    return shown + scanner.flush(), hit


def test_b18_a_stop_string_over_a_chunk_edge() -> None:
    """Its first half is held back, and nothing of it or after it is shown."""
    scanner = StopScanner(["\nUser:"])
    assert scanner.feed("ok\nUs") == ("ok", False)
    assert scanner.feed("er: hi") == ("", True)
    assert scanner.feed("more") == ("", True)
    assert scanner.flush() == ""


def test_b18_held_back_text_is_released_when_harmless() -> None:
    """Text that only began like a stop string is shown as soon as that is known, or at the end."""
    scanner = StopScanner(["\nUser:"])
    assert scanner.feed("ok\nUs") == ("ok", False)
    assert scanner.feed("ed") == ("\nUsed", False)
    assert scanner.feed("\nU") == ("", False)
    assert scanner.flush() == "\nU"


def test_b18_overlapping_beginnings_of_a_stop_string() -> None:
    """A failed match may contain the beginning of the real one."""
    assert scan(["abac"], ["ab", "aba", "cx"]) == ("ab", True)
    assert scan(["aab"], ["aaab"]) == ("a", True)
    assert scan(["ababac"], ["abababac"]) == ("ab", True)


def test_several_stop_strings() -> None:
    """The one that is complete first counts; of two that end together, the longer one."""
    assert scan(["lo", "hello"], ["oh hello"]) == ("oh ", True)
    assert scan(["hello there", "lo"], ["hello there"]) == ("hel", True)
    assert scan(["", "x"], ["ab"]) == ("ab", False)
    assert scan([], ["ab", "c"]) == ("abc", False)


@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.text(alphabet="abc", max_size=4), max_size=12),
)
def test_b18_any_chunking_gives_the_same_text(stops: list[str], chunks: list[str]) -> None:
    """The text shown is that before the stop string which is complete first, whatever the chunks."""
    text = "".join(chunks)
    ends = [(text.index(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    wanted = text[: sum(min(ends))] if ends else text
    assert scan(stops, chunks) == (wanted, bool(ends)) == scan(stops, text)


# --- special tokens and thoughts ---------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        "<|im_end|>", "<|endoftext|>", "<|im_", "<s>", "</s>", "<think>", "</think>", "<start_of_turn>",
        "<end_of_turn>",
        "[INST]", "[/INST]", "<<SYS>>", "<｜end▁of▁sentence｜>", "<fim_prefix>", "<file_sep>", "<unused12>",
        "[TOOL_CALLS]",
        "<eos>", "<extra_id_0>", "<tool_call>",
    ],
)  # fmt: skip
def test_a_draft_is_cut_before_a_special_token(token: str) -> None:
    """Raw endpoints parse such text as control tokens."""
    assert special_cut(f"Explain {token} please") == len("Explain ")
    assert looks_special(token)


@pytest.mark.parametrize(
    "text", ["a < b", "x <| f", "<b>bold</b>", "[1]", "List<String>", "s > t", "<strong>", "array[INSTANCE]"]
)
def test_ordinary_text_is_not_special(text: str) -> None:
    """Comparisons, tags and indices stay in the draft."""
    assert special_cut(text) == len(text)
    assert not looks_special(text)


def test_b43_special_token_text_in_a_users_words_is_found_without_raising() -> None:
    """The first of several counts; an empty token is no text either."""
    assert special_cut("Explain <|endoftext|> and <|im_start|>") == len("Explain ")
    assert looks_special("")


@pytest.mark.parametrize(
    ("text", "opens", "closes"),
    [
        ("<|im_start|>assistant\n<think>\n", True, False),
        ("<think>", True, False),
        ("[THINK]", True, False),
        ("<|start|>assistant<|channel|>", True, False),
        ("<|channel>", True, False),
        ("<think>\n\n</think>\n\n", False, True),
        ("[/THINK]", False, True),
        ("<think>\na", False, False),
        ("<|im_start|>assistant\n", False, False),
        ("a <thinker>", False, False),
        ("", False, False),
    ],
)
def test_b29_the_end_of_a_text_opens_or_closes_thoughts(text: str, opens: bool, closes: bool) -> None:
    """The mark must be the last thing but white space."""
    assert (opens_thoughts(text), closes_thoughts(text)) == (opens, closes)
