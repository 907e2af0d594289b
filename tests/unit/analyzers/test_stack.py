"""Stack traces of all languages: the parts of a trace, its frames, whose they are and what they are called."""

from support.rows import each_row

from dlq.analyzers.rules.stack import Frame, frames, is_own, parts, place, tidy

# a line below the exception -> the frame
LINES: list[tuple[str, Frame | None]] = [
    ("\tat com.shop.Stock.take(Stock.java:42)", Frame("com.shop.Stock.take", True)),
    ("\xa0 \xa0 at com.shop.Stock.take(Stock.java:42)", Frame("com.shop.Stock.take", True)),
    ("\tat java.base/java.util.List.of(List.java:1)", Frame("java.util.List.of", False)),
    ("\tat com.shop.Stock.lambda$take$0(Stock.java:42)", Frame("com.shop.Stock.take", True)),
    ("\tat com.shop.Stock$2.call(Stock.java:42)", Frame("com.shop.Stock.call", True)),
    ("\tat com.shop.Stock$$EnhancerBySpringCGLIB$$1a2b.take(<generated>)", Frame("com.shop.Stock.take", True)),
    ("\tat com.shop.Stock_ClientProxy.take(Unknown Source)", Frame("com.shop.Stock.take", True)),
    ("\tat com.shop.Gateway$charge$2$1.invokeSuspend(Gateway.kt:44)", Frame("com.shop.Gateway.charge", True)),
    ("\tat com.shop.Rates$.$anonfun$of$1(Rates.scala:29)", Frame("com.shop.Rates.of", True)),
    ("   at Shop.Gateway.Call(Order o) in /src/Gateway.cs:line 12", Frame("Shop.Gateway.Call", True)),
    ("   at Shop.Gateway.<Call>d__4.MoveNext() in /src/Gateway.cs:line 12", Frame("Shop.Gateway.Call", True)),
    ("   at Shop.Gateway.<>c__DisplayClass3_0.<<Call>b__1>d.MoveNext()", Frame("Shop.Gateway.Call", True)),
    ("   at Shop.Gateway.<Call>g__Read|4_0(Order o)", Frame("Shop.Gateway.Call", True)),
    ("   bei Shop.Gateway.Call(Order o) in C:\\src\\Gateway.cs:Zeile 12.", Frame("Shop.Gateway.Call", True)),
    ("   場所 Shop.Gateway.Call(Order o)", Frame("Shop.Gateway.Call", True)),
    ("    at takeStock (/app/src/stock.js:10:25)", Frame("stock takeStock", True)),
    ("    at async Object.take [as handler] (file:///app/stock.mjs:10:25)", Frame("stock take", True)),
    ("    at Channel.emit (/app/node_modules/amqplib/lib/channel.js:4:1)", Frame("channel Channel.emit", False)),
    ("    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)", Frame("task_queues process.processTicksAndRejections", False)),
    ('  File "/app/shop/prices.py", line 17, in total_of', Frame("prices.py total_of", True)),
    ('  File "/venv/lib/python3.9/site-packages/x/y.py", line 3, in z', Frame("y.py z", False)),
    ("/app/app/workers/stock.rb:9:in `block (2 levels) in perform'", Frame("stock.rb perform", True)),
    ("/usr/local/bundle/gems/sidekiq-7.2/lib/sidekiq/processor.rb:9:in `call'", Frame("processor.rb call", False)),
    ("\t... 9 more", None),
    ("   --- End of inner exception stack trace ---", None),
]  # fmt: skip


@each_row(("line", "frame"), LINES)
def test_a_frame_is_named_without_what_compilers_add(line: str, frame: Frame | None) -> None:
    assert next(frames(tidy(f"x.E: y\n{line}")), None) == frame


def test_a_frame_of_go_stands_above_its_file() -> None:
    text = (
        "panic: x\n\ngoroutine 7 [running]:\npanic({0x1, 0x2})\n\t/usr/local/go/src/runtime/panic.go:792 +0x132\n"
        "acme.example/shop/orders.(*Handler).Handle.func1(0xc0001, {0x1})\n\t/src/orders/handler.go:44 +0x1d2\n"
        "github.com/x/y.Run\n\t/go/pkg/mod/github.com/x/y@v1/run.go:7"
    )
    assert list(frames(text)) == [("panic", False), ("orders.(*Handler).Handle", True), ("y.Run", False)]


def test_a_call_of_php_is_in_the_function_that_the_next_line_names() -> None:
    text = (
        "PDOException: x in /app/vendor/dbal/Driver.php:62\nStack trace:\n"
        "#0 /app/vendor/dbal/Connection.php(19): Dbal\\Driver->convert()\n"
        "#1 /app/src/OrderHandler.php(38): Dbal\\Connection->flush()\n"
        "#2 /app/vendor/messenger/Middleware.php(15): App\\OrderHandler->__invoke(Object(App\\Order))\n#3 {main}"
    )
    assert place([text]) == "OrderHandler.php __invoke"


# a text, and the first words of its parts
PARTS = [
    ("a.B: x\n\tat a.B.c(B.java:1)\nCaused by: a.C: y\nCaused by: a.D: z", ["a.D:", "a.C:", "a.B:"]),
    ("a.D: z\n\tat a.B.c(B.java:1)\nWrapped by: a.C: y", ["a.D:", "a.C:"]),
    ("a.B: x\n\tat a.B.c(B.java:1)\n\tSuppressed: a.C: y\n\t\tat a.C.d(C.java:1)\n\tCaused by: a.D: z\n\tat a.E.f(E.java:1)", ["a.B:"]),
    ("Error: x\n    at a (/b.js:1:1) {\n  [cause]: TypeError: y\n      at c (/d.js:1:1)\n}", ["TypeError:", "Error:"]),
    ("A\\B: x in /a.php:1\nStack trace:\n#0 {main}\n\nNext A\\C: y in /b.php:2", ["A\\B:", "A\\C:"]),
    ("a.B: x\\n\\tat a.B.c(B.java:1)\\nCaused by: a.C: y", ["a.C:", "a.B:"]),
    ("a.B: x\r\n\tat a.B.c(B.java:1)\r\nCaused by: a.C: y", ["a.C:", "a.B:"]),
]  # fmt: skip


@each_row(("text", "words"), PARTS)
def test_the_root_cause_is_the_first_part(text: str, words: list[str]) -> None:
    assert [part.split(" ")[0] for part in parts(tidy(text))] == words


def test_a_group_of_exceptions_is_read_as_its_last_one() -> None:
    text = (
        "  + Exception Group Traceback (most recent call last):\n  |   File \"/app/a.py\", line 1, in f\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n    |   File \"/app/b.py\", line 2, in g\n    | KeyError: 'x'\n"
        "    +------------------------------------"
    )  # fmt: skip
    assert place(parts(tidy(text))) == "b.py g"


def test_a_method_that_checks_for_others_is_no_place_where_another_is() -> None:
    check, caller = "\n\tat com.shop.Check.that(C.java:1)", "\n\tat com.shop.Orders.read(O.java:1)"
    assert place([f"a.B: x{check}{caller}"]) == "com.shop.Orders.read"
    assert place([f"a.B: x{check}"]) == "com.shop.Check.that"
    translated = "\n\tat com.shop.Errors.translateException(E.java:1)"
    assert place([f"a.B: x{translated}{caller}"]) == "com.shop.Orders.read"


def test_whose_a_single_frame_is() -> None:
    assert is_own("at com.shop.Stock.take(Stock.java:42)")
    assert is_own('File "/app/shop/prices.py", line 17, in total_of: return x')
    strangers = ("at org.springframework.amqp.A.b(A.java:1)", "at emit (node:events:518:28)", "... 12 more")
    assert not any(map(is_own, strangers))
    beside = [frame.name for frame in frames(tidy(PARTS[2][0]))]
    assert beside == ["a.B.c", "a.E.f"], "what failed beside the exception is no frame of it"


def test_a_backslash_before_an_n_is_a_line_break_only_before_a_line_of_a_trace() -> None:
    assert tidy(r"no such file: C:\new\notes (2)") == r"no such file: C:\new\notes (2)"
    assert tidy(r"x: y\r\n\tat a.B.c(B.java:1)") == "x: y\n\tat a.B.c(B.java:1)"
