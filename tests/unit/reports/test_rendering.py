"""The report in its formats, and what must not get into them."""

import html as html_text
import io
import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from rich.console import Console
from support.archives import write_analysis
from support.reporting import CANARY, EARLIER, HOSTILE, LATEST, rendered, store
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Mask
from dlq.reports import report
from dlq.reports.formats import terminal
from dlq.reports.formats.html import script_data, visible
from dlq.reports.formats.markdown import escape

__all__ = ["store"]


@pytest.mark.parametrize("name", report.FORMATS)
def test_every_format_renders_a_comparison_and_an_empty_archive_masked_if_wanted_and_steers_no_terminal(
    tmp_path: Path, store: LocalStore, name: str
) -> None:
    empty = LocalStore(str(tmp_path / "empty"))
    write_analysis(empty, LATEST, [])
    assert "application_error" in rendered(name, store, before=EARLIER)
    assert rendered(name, empty)
    plain, masked = rendered(name, store), rendered(name, store, mask=Mask())
    assert name == "json" or not {"\x1b", "\u202e"} & set(plain)
    assert CANARY in plain.replace("\\", "").replace("\u2060", "")
    assert CANARY not in masked.replace("\\", "").replace("\u2060", "")


def test_markdown_of_strangers_is_inert() -> None:
    escaped = escape(HOSTILE + " *b* _i_ snake_case ~s~ <b> &amp; www.evil.com\n# h")
    assert escaped == (
        "\\\\x1b\\[31m&lt;img src=x onerror=alert(1)>\\`\\|\\[x\\](http:\u2060//evil)\\\\u202e \\@\u2060all"
        " \\*b\\* \\_i\\_ snake_case \\~\u2060s\\~ &lt;b> &amp;\u2060amp; www\\.\u2060evil.com\\\\n\\# h"
    )


@each_row("live", [
    "@all", "\\@user", "#12", "\\#12", "org/repo#12", "!12", "$12", "%12", "~bug", "&12", "GH-12", "gh-7",
    "https://evil.example", "www.evil.example", "a@evil.example", "user@0123abc",
])  # fmt: skip
def test_no_site_finds_a_mention_or_a_link_in_what_markdown_shows(live: str) -> None:
    shown = re.sub(r"\\(\W|_)", r"\1", html_text.unescape(escape(f"see {live}.")))
    assert not re.search(r"[@#!%$~&]\w|GH-\d|://|www\.\w", shown, re.IGNORECASE)
    assert shown.replace("\u2060", "") == f"see {live}."


def test_html_of_strangers_is_text() -> None:
    """What a browser makes of it is tested in one, with the services."""
    document = {"a": "</script><img src=x onerror=alert(1)>", "b": ["\u2028 & <!--"]}
    data = script_data(document)
    assert not {"<", ">", "&", "\u2028"} & set(data)
    assert json.loads(data) == document


def test_no_element_of_a_report_is_made_by_strangers(store: LocalStore) -> None:
    shown = rendered("html", store).split("<script")[0]
    assert "<img" not in shown
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown


def test_the_content_security_policy_names_the_script_and_the_style_by_their_hashes(
    store: LocalStore,
) -> None:
    text = rendered("html", store)
    policy = html_text.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0])
    styles, scripts = (re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("style", "script"))
    assert "default-src 'none'" in policy
    for body in (*styles, *scripts):
        assert b64encode(sha256(body.encode()).digest()).decode() in policy
    assert (len(styles), len(scripts)) == (1, 2)
    assert not re.findall(r"<[^>]*\s(?:on\w+|style)=", text.split("<script")[0])


def test_a_table_of_markdown_keeps_its_columns_whatever_the_names(store: LocalStore) -> None:
    text = rendered("markdown", store)
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    for lines in tables:
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1


def test_the_report_fits_eighty_columns_but_for_what_is_copied(store: LocalStore) -> None:
    document = report.make(store, before=EARLIER)
    console = Console(file=io.StringIO(), width=80)
    terminal.render(console, document)
    lines = console.file.getvalue().split("\nNext\n")[0].splitlines()  # type: ignore[attr-defined]  # StringIO
    assert max(map(len, lines)) <= 80
    causes = lines[lines.index("Causes") + 2 : lines.index("When") - 1]
    assert [line for line in causes if not line[2:3].strip()] == []  # no date goes on in the next line


def test_a_header_of_several_lines_keeps_them_in_the_page(store: LocalStore) -> None:
    trace = "x.YException: z\n\tat a.B.c(D.java:1)"
    story = {"headers": {"x-note": trace, "x\ny": "a"}, "evidence": trace, "source": "a\nb"}
    lines = "x.YException: z\n    at a.B.c(D.java:1)"
    shown = {"headers": {"x-note": lines, "x\\ny": "a"}, "evidence": lines, "source": "a\\nb"}
    assert visible({"stories": [story]}) == {"stories": [shown]}
    assert "#letter dd { white-space: pre-wrap;" in rendered("html", store)
