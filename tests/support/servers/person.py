"""Somebody at a browser, as a proxy has signed them in."""

import re

from support.servers.chromium import Page
from support.waiting import eventually

_CLICK = """(() => {{
    const found = [...document.querySelectorAll("a, button")].find(
        (one) => one.innerText.trim() === {text!r} && !one.disabled);
    found?.click();
    return Boolean(found);
}})()"""

_FOCUSED = "(document.activeElement?.innerText || document.activeElement?.name || '').trim()"
"""While a page is still coming nothing has the focus."""


class Person:
    """Somebody whom a proxy has signed in, at the browser."""

    def __init__(self, browser: Page, port: int) -> None:
        self.browser, self._base = browser, f"http://127.0.0.1:{port}"

    def sign_in(self, name: str) -> None:
        self.browser.call("Network.setExtraHTTPHeaders", headers={"X-Forwarded-User": name})

    def open(self, path: str, *size: int, **media: str) -> str:
        """The text of a page."""
        self.browser.open(self._base + path, *size, **media)
        return self.text

    @property
    def text(self) -> str:
        return str(self.browser.run("document.body.innerText"))

    @property
    def place(self) -> str:
        return str(self.browser.run("location.pathname"))

    def click(self, text: str, leads_to: str) -> None:
        """Click what says this; the page whose address holds `leads_to` comes."""
        self.browser.run("document.body.dataset.before = 'yes'")
        assert self.browser.run(_CLICK.format(text=text)), f"nothing says {text!r}:\n{self.text}"
        came = "document.readyState === 'complete' && !document.body.dataset.before && location.pathname"
        eventually(lambda: re.match(leads_to, str(self.browser.shows(came))))

    def until(self, expression: str) -> None:
        """Wait until an expression of JavaScript is true."""
        eventually(lambda: self.browser.shows(expression))

    def tab_to(self, text: str) -> int:
        """Tab until what says this has the focus; how often."""
        for times in range(1, 201):
            self.browser.press("Tab")
            if self.browser.shows(_FOCUSED) == text:
                return times
        raise AssertionError(f"no way by keyboard to {text!r}")

    def find_link(self, path: str) -> str:
        """What the first link of the page says that leads below `path`."""
        return str(self.browser.run(f"document.querySelector('main a[href^=\"{path}\"]').innerText.trim()"))

    def fill(self, name: str, text: str, form: str = "") -> None:
        """Write into a field, of the form whose address ends so."""
        of_form = f'form[action$="{form}"] ' if form else ""
        self.browser.run(f"document.querySelector('{of_form}input[name={name}]').value = {text!r}")

    def tick(self, name: str, on: bool = True) -> None:
        self.browser.run(f"document.querySelector('input[name={name}]').checked = {str(on).lower()}")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """What the page shows in the end, by itself."""
        found: list[re.Match[str]] = []

        def looks() -> bool:
            text = str(self.browser.shows("document.body.innerText"))
            found.extend(one for one in [re.search(pattern, text)] if one)
            return bool(found)

        eventually(looks)
        return found[0]
