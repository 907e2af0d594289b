"""Stack traces as people read them: the root cause first, one's own code marked."""

import json
from base64 import b64encode

import pytest
from support.rows import each_row

from dlq.reports.letters import stack

JAVA = """java.lang.IllegalStateException: order refused
\tat com.shop.Orders.take(Orders.java:42)
\tat org.springframework.amqp.Foo.invoke(Foo.java:1)
\tat org.springframework.amqp.Bar.invoke(Bar.java:1)
Caused by: java.net.SocketTimeoutException: pay-gw did not answer
\tat java.net.Socket.read(Socket.java:1)
\tat java.net.Socket.fill(Socket.java:2)
\tat com.shop.Gateway.call(Gateway.java:17)
\t... 12 more"""
DOTNET = """Shop.OrderException: order refused ---> System.TimeoutException: pay-gw did not answer
   at System.Net.Sockets.Read()
   at Shop.Gateway.Call() in /src/Gateway.cs:line 17
   --- End of inner exception stack trace ---
   at Shop.Orders.Take() in /src/Orders.cs:line 42"""
PYTHON = """Traceback (most recent call last):
  File "/srv/shop/gateway.py", line 17, in call
    return ask()
  File "/usr/lib/python3.11/socket.py", line 1, in read
    raise TimeoutError
TimeoutError: pay-gw did not answer

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/shop/orders.py", line 42, in take
    gateway.call()
shop.OrderError: order refused"""
NODE = """Error: pay-gw did not answer
    at Gateway.call (/srv/shop/gateway.js:17:3)
    at next (/srv/shop/node_modules/koa/index.js:1:1)"""


READ = {
    JAVA: """\
head: Caused by: java.net.SocketTimeoutException: pay-gw did not answer
library: at java.net.Socket.read(Socket.java:1)
folded: … 1 of libraries
own: at com.shop.Gateway.call(Gateway.java:17)
head: java.lang.IllegalStateException: order refused
own: at com.shop.Orders.take(Orders.java:42)
folded: … 2 of libraries""",
    DOTNET: """\
head: System.TimeoutException: pay-gw did not answer
library: at System.Net.Sockets.Read()
own: at Shop.Gateway.Call() in /src/Gateway.cs:line 17
head: Shop.OrderException: order refused
own: at Shop.Orders.Take() in /src/Orders.cs:line 42""",
    PYTHON: """\
head: shop.OrderError: order refused
own: File "/srv/shop/orders.py", line 42, in take: gateway.call()
head: TimeoutError: pay-gw did not answer
library: File "/usr/lib/python3.11/socket.py", line 1, in read: raise TimeoutError
own: File "/srv/shop/gateway.py", line 17, in call: return ask()""",
    NODE: """\
head: Error: pay-gw did not answer
own: at Gateway.call (/srv/shop/gateway.js:17:3)
folded: … 1 of libraries""",
}


@each_row(("text", "lines"), READ.items())
def test_a_trace_is_read_from_its_root_cause(text: str, lines: str) -> None:
    for given in (text, text.replace("\n", "\r\n")):
        assert "\n".join(f"{kind}: {line}" for kind, line in stack.read(given)) == lines


@pytest.mark.parametrize("place", ["headers", "properties", "failure_text"])
def test_a_letters_trace_is_found_wherever_it_is(place: str) -> None:
    letter = {"headers": {"a": "no trace"}, "properties": None, "failure_text": "at the end of\nthe day"}
    held = JAVA if place == "failure_text" else {"x": JAVA, "n": 7}
    assert stack.trace_of({**letter, place: held}) == JAVA
    assert stack.trace_of(letter) is None


def test_a_trace_without_end_is_cut_and_what_is_none_is_no_error() -> None:
    lines = stack.read("a: b" + "\n\tat com.shop.A.b(A.java:1)" * 100_000)
    assert len(lines) == stack.MOST_LINES + 1
    assert lines[-1].text.endswith("more lines")
    assert stack.read("x" * 10**6)[0].text == "x" * 400
    ends = (" ---> \n   --- End of inner", "Traceback (most recent call last)", "Caused by: ")
    for text in ("", "\n", "\n\tat ", *ends):
        assert isinstance(stack.read(text), list)


def test_the_traceback_in_a_message_of_dramatiq_is_a_trace() -> None:
    frame = '  File "/srv/app/pay.py", line 3, in pay'
    trace = f"Traceback (most recent call last):\n{frame}\n    charge()\nValueError: no"
    body = b64encode(json.dumps({"actor_name": "pay", "options": {"traceback": trace}}).encode()).decode()
    letter = {"headers": {}, "properties": {}, "failure_text": None, "body_base64": body}
    assert stack.trace_of(letter) == trace
    assert stack.trace_of({**letter, "body_base64": "bm8="}) is None
