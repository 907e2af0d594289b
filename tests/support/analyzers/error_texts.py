"""Error texts as letters bring them, real-looking and hostile: made from a seed, the same every time."""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple


class Case(NamedTuple):
    """What a fingerprint is made of: a verdict's error fields, cause and place of death."""

    error_class: str | None
    error_message: str | None
    error_text: str | None
    cause: str
    mechanism: str | None
    origin: str | None
    dead_letter_queue: str | None


CLASSES = (
    "com.shop.StockException", "java.lang.IllegalStateException", "java.net.ConnectException",
    "org.shop.a.B$C", "java.sql.SQLException", "java.lang.NullPointerException",
    "java.util.concurrent.TimeoutException", "Exception", "Error",
    "org.springframework.amqp.ListenerExecutionFailedException",
    "com.fasterxml.jackson.core.JsonParseException", "org.springframework.dao.DuplicateKeyException",
    "com.shop.ValidationException", "a.b.c.Foo", "Foo", "shop/Rejected",
    "jakarta.validation.ConstraintViolationException", "com.shop.ArgumentMissingInOrderException",
    "com.shop.Überfall", "System.TimeoutException", "System.UnauthorizedAccessException",
    "Shop.DbException", "Microsoft.Data.SqlException", "Npgsql.PostgresException", "KeyError",
    "ValueError", "requests.exceptions.ReadTimeout", "builtins.RuntimeWarning", "TypeError",
    "shop.errors.RateLimitError", "_Private+InnerFault", "$Weird9Throwable", "9Exception",
    "com.shop.ÉtatException", "com.shop.TIMEOUTException", "com.shop.ConnectTimeout", "SqlGoneError",
    "kotlin.KotlinNothingValueException", "x.SystemExit", "com.shop.FormatPanic", "HTTP504Error",
    "com.shop.Gateway504Error", "Node.AbortError", "com..Error", ".Exception", "Error.", "a.",
    "com.shop.OrderException$Kind",
)  # fmt: skip
MESSAGES = (
    "stock of article 17 is -3",
    "order 4711 of 'Ann' at 2026-11-02T03:12:09Z failed: 7f3a9c1e",
    "user anna.b+c@shop.example.com wrote to 1,2ab@c.de and a@b+c@d",
    "id 123e4567-e89b-12d3-a456-426614174000 is unknown, see https://shop.example.com/a/b?c=1 for more",
    "HTTP/1.1 504 from the gateway",
    "status code: 503, try later",
    "504",
    "429 Too Many Requests",
    "code\t\t404",
    "no stock of article 504",
    "Violation of UNIQUE constraint \"orders_pk\" in [dbo].[orders]",
    "Unexpected character ('}' (code 125)): was expecting double-quote",
    "Cannot read properties of undefined (reading 'id')",
    "connect ECONNREFUSED 10.0.0.7:5672",
    "Connection reset by peer",
    "rate\nlimit", "rate\u2028limit", "rate\x85limit", "rate-limit", "rate🚀limit",
    "access\rtoken", "Read timed out", "Deadline exceeded", "deadline\texceeded",
    "der Auftrag 4711 für Größe 42½ fehlt — «ungültig»", "订单1234abcd 失败", "注文が見つかりません: 00aa11bb",
    "café1234abcd is no hex, 1234abcd is", "ſocket and Kelvin K: ſql", "ÜSQL", "sql", "xsql", "É504", "http é 504",
    "null", "", " ", "x", "'", "\"", "[", "['a', \"b\"] [c", "it's 5 o'clock", "\"a'b\" 'c\"d'",
    "١٢٣ orders", "a\tb", "line one\nline two\r\nline three", "see\x0b\x0cbelow",
    "a.B: x; com.shop.InnerException: y", "(java.io.IOException: broken pipe)", "x: y: z", "Note: nothing",
    "caught java.lang.Error: deep", "java.lang.Error:no blank", "nested java.sql.SQLException: no table",
    "Foo.BarTimeout: late Foo.BazError: later", "<script>alert(1)</script>", "\x00\x01 nul", "100% of C:\\temp\\x",
    "deadbeef cafebabe 12 1234567 abcdef abcdef1 0x1234abcd 1234abcdg", "1.2.3.4:80 12,5 7T+Z-", "$$x $1 \\1",
    "😀 4711", "schema of avro", "must not be null", "keyerror", "validation failed: missing field 'a'",
    "argument of exception", "IllegalArgument", "argumentNullException", "ARGUMENT_x_EXCEPTION",
    "the order is already processed", "unauthorised", "Forbidden", "quota of 5 exceeded", "a" * 310 + "sql",
    "b" * 299 + "12345", "ab" * 160 + "@x", "[" * 20, "@" * 20, "a.b-c+d_e@x-y.z", "@x", "x@", "1@2", "1,@2",
)  # fmt: skip
JVM_FRAMES = (
    "com.shop.Stock.take(Stock.java:42)", "java.util.List.of(List.java:1)", "com.shop.Order.book(Order.java:7)",
    "org.springframework.A.b(A.java:1)", "java.base/java.util.ArrayList.get(ArrayList.java:427)",
    "app//com.shop.Main.main(Main.java:3)", "app//java.util.X.y(X.java)", "loader/mod@1.2/com.shop.Mod.run(Mod.java:1)",
    "a/b/c/com.shop.Deep.run(D.java:1)", "app/java.util.List.x(L.java)", "com.shop.Svc$$EnhancerBySpringCGLIB$$1a2b.go(<generated>)",
    "com.shop.Svc$$Lambda$14/0x0000000800c03000.run(Unknown Source)", "com.shop.Lam.lambda$x$0(Lam.java:9)",
    "com.shop.Größe.messen(G.java:1)", "jdk.internal.reflect.GeneratedMethodAccessor12.invoke(Unknown Source)",
    "kotlin.coroutines.x(K.kt:1)", "com.google.common.X.y(X.java:1)", "com.googly.X.y(X.java:1)", "1.2(x)", "$$(x)",
)  # fmt: skip
NET_FRAMES = (
    "Shop.Gateway.Call(Order o) in /src/Gateway.cs:line 12", "System.Threading.Tasks.Task.Wait()",
    "Shop.Handler.<Handle>d__4.MoveNext() in C:\\src\\H.cs:line 9", "MassTransit.X.Y()", "Shop.List`1.Add[T](T item)",
    "Microsoft.Data.SqlClient.SqlCommand.Run()", "Rebus.X.Y()", "Rebusx.Y()",
)  # fmt: skip
NODE_FRAMES = (
    "takeStock (/app/stock.js:10:5)", "node:internal/x:1:2", "async Shop.pay (/app/pay.js:2:1)",
    "Object.<anonymous> (/app/node_modules/x/y.js:3:4)", "lib (/app/node_modules/a.js:1:1)", "async (x)",
    "new Stock (/app/s.js:1:1)", "Module._compile (node:internal/modules/cjs/loader:1105:14)", "/app/x.js:3:1",
    "go (/app/a.js:1:1)\rnode_modules", "process.processTicksAndRejections (node:internal/process/task_queues:96:5)",
    "go2$ (/app/b.js:2:2)\u2028node_modules",
)  # fmt: skip
PYTHON_FILES = (
    "/app/shop/work.py", "/venv/site-packages/x/y.py", "/usr/lib/python3.11/json/decoder.py", "<stdin>",
    "<frozen importlib._bootstrap>", "work.py", "C:\\app\\work2.py", "/app/ünï/größe.py", "/app/", "a\rb.py", "/app/x$$y.py",
)  # fmt: skip
PYTHON_FUNCTIONS = ("pay", "<module>", "Shop.pay", "<lambda>", "pay_2", "größe", "x$y")
STATUSES = ("401", "403", "404", "429", "500", "502", "503", "504", "5040", "1504")
PIECES = (
    *MESSAGES, *CLASSES, "Caused by: ", "Caused by:", "nested exception is ", " ---> ", "--->", "(Inner Exception #0) ",
    "Traceback (most recent call last):", "Traceback (", "\n", "\r\n", "\r", "\t", " ", "  ", "\n\tat ", "\n   at ",
    "\n    ... 3 more", "\n   --- End", "\n---", "\n \n\n at ", "\n\tat com.shop.A.b(", "at com.shop.First.line(",
    '\n  File "/app/a.py", line 3, in go', "\n  File \"", "(", ")", ":", ": ", ".", "\u2028", "\u2029", "\x85", "\xa0",
    "\u3000", "\x1c", "\x0b", "é", "😀", "\n    raise", "KeyError: 'x'", "at async f (x)", "\n at async g (y)",
)  # fmt: skip
NASTY = (
    *"\n\r\t :./\\'\"()[]<>$@#?*+-_,;09aZéßſK٣中😀\x00\x0b\x0c\x1c\x85\xa0\u2028\u2029\u3000", "\r\n", "  ", "\n\t",
)  # fmt: skip
BLANKS = ("", "", "", " ", "\n", "\r\n", "\t", " \n\t ", "\n ", " \n", "\xa0", "\x0b", "\u3000", "\x85")
SPACES = ("\t", "    ", "   ", " ", "", "         ")


def _frames(random: Random, frames: tuple[str, ...], indents: tuple[str, ...], most: int = 9) -> list[str]:
    indent = random.choice(indents)
    return [f"{indent}at {random.choice(frames)}" for _ in range(random.randint(0, most))]


def _head(random: Random) -> str:
    name, message = random.choice(CLASSES), random.choice(MESSAGES)
    return random.choices((f"{name}: {message}", name, f"{name}:", message), (8, 1, 1, 1))[0]


def java(random: Random) -> str:
    """Causes and frames, suppressed ones, Spring's "nested exception is"."""
    head = _head(random)
    if random.random() < 0.2:
        head += f"; nested exception is {_head(random)}"
    lines = [head, *_frames(random, JVM_FRAMES, SPACES)]
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        lines += [f"Caused by: {_head(random)}", *_frames(random, JVM_FRAMES, SPACES[:4])]
        lines += ["\t... 9 more"] if random.random() < 0.6 else []
    if random.random() < 0.1:
        lines += [f"\tSuppressed: {_head(random)}", *_frames(random, JVM_FRAMES, ("\t\t",))]
    return "\n".join(lines)


def dotnet(random: Random) -> str:
    """Inner exceptions behind arrows, those of an AggregateException numbered."""
    lines = [_head(random)]
    for number in range(random.choice((0, 1, 1, 2))):
        inner = f"(Inner Exception #{number}) " if random.random() < 0.4 else ""
        lines += [f" ---> {inner}{_head(random)}", *_frames(random, NET_FRAMES, ("   ",), 4)]
        lines += ["   --- End of inner exception stack trace ---"]
    return random.choice(("\r\n", "\n")).join(lines + _frames(random, NET_FRAMES, ("   ",), 4))


def python(random: Random) -> str:
    """Tracebacks, also those that follow one another."""
    parts = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        lines = ["Traceback (most recent call last):"]
        for _ in range(random.randint(0, 5)):
            file, name = random.choice(PYTHON_FILES), random.choice(PYTHON_FUNCTIONS)
            lines += [f'  File "{file}", line {random.randint(1, 999)}, in {name}', "    send()"]
            lines += ["    ^^^^^^"] if random.random() < 0.3 else []
        parts.append("\n".join([*lines, _head(random)]))
    between = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    return between.join(parts) + random.choice(("", "\n", "\n  and a note", "\n\nmore"))


def node(random: Random) -> str:
    return "\n".join([_head(random), *_frames(random, NODE_FRAMES, ("    ",), 6)])


def words(random: Random) -> str:
    """No class: a message, a status, an id."""
    start = random.choice(
        ("", "HTTP ", "status=", "Status code: ", "code ", "http  status-code ", "HTTP/1.1 ", "x ")
    )
    status = start + random.choice(STATUSES) + random.choice(("", " ", "x", ":", "é"))
    some = f"{random.getrandbits(32):08x} {random.getrandbits(20)} {random.choice(CLASSES)}"
    return random.choice(
        (random.choice(MESSAGES), status, some, " ".join(random.choices(MESSAGES, k=3)), _head(random))
    )


def hostile(random: Random) -> str:
    """Pieces that patterns look for, in no order."""
    return "".join(random.choices(PIECES, k=random.randint(1, 25)))


def cut(random: Random) -> str:
    """Somewhere a header or a body ended."""
    text = random.choice((java, dotnet, python, node))(random)
    return text[random.randint(0, 20) if random.random() < 0.3 else 0 : random.randint(1, max(2, len(text)))]


def mutated(random: Random) -> str:
    """A text with a few characters lost, doubled or changed."""
    letters = list(random.choice((java, dotnet, python, node, words))(random) or "x")
    for _ in range(random.randint(1, 12)):
        letters[random.randrange(len(letters))] = random.choice(
            ("", "", random.choice(letters), random.choice(NASTY))
        )
    return "".join(letters)


def huge(random: Random) -> str:
    """More than is read: 70 KiB, one piece or one text again and again."""
    piece = random.choice(
        (random.choice(PIECES) or "x", java(random) + "\n", python(random) + "\n", "ü", "😀 ")
    )
    ended = piece * (71_680 // len(piece) + 1)
    return random.choice(
        (ended, _head(random) + "\n" + ended, ended[:9_000] + _head(random), "  " + ended + " ")
    )


KINDS: tuple[tuple[Callable[[Random], str], int], ...] = (
    (java, 30), (dotnet, 14), (python, 16), (node, 10), (words, 20), (hostile, 25), (cut, 12), (mutated, 25),
)  # fmt: skip


def _text(random: Random) -> str | None:
    made = random.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0](random)
    if random.random() < 0.15:
        made = made.replace("\n", "\r\n")
    made = random.choice(BLANKS) + made + random.choice(BLANKS)
    return random.choices((made, None, "", "   ", "\n\t"), (92, 4, 1, 2, 1))[0]


def _case(random: Random, text: str | None) -> Case:
    return Case(
        error_class=random.choice((None, None, None, "", random.choice(CLASSES))),
        error_message=random.choice(
            (None, None, "", "  ", random.choice(MESSAGES), _head(random), java(random))
        ),
        error_text=text,
        cause=random.choice(("application_error", "poison_ack", "unknown")),
        mechanism=random.choice(("framework", "none", None)),
        origin=random.choice((None, "orders", "")),
        dead_letter_queue=random.choice(("orders.dlq", "größe.dlq", None)),
    )


def cases(count: int, seed: int = 1, huge_ones: int = 0) -> Iterator[Case]:
    """`count` cases, the last `huge_ones` of them with a text of 70 KiB."""
    random = Random(seed)
    for number in range(count):
        yield _case(random, huge(random) if number >= count - huge_ones else _text(random))
