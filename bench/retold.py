"""How one failure is told: what changes from letter to letter, from release to release, from host to host.

A change is a function `(random, text) -> text`; one that does not apply returns the text as it was.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

Change = Callable[[Random, str], str]

# --- What varies in a text: ids, times, names ---

_WORDS = ("Ann", "Bob", "Ayşe", "Łukasz", "Mary Ann", "O'Neill", "张伟", "anna-lena", "x", "Müller GmbH")
_WEIRD = ("2026-13-01", "", "yesterday", "12.5", "1'000", "-", "31.02.2026 25:00")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_FILL: Mapping[str, Callable[[Random], str]] = {
    "order": lambda r: str(r.randint(1, 10 ** r.randint(2, 12))),
    "number": lambda r: str(r.randint(1, 99_999)),
    "digit": lambda r: str(r.randint(0, 9)),
    "hex": lambda r: f"{r.getrandbits(32):08x}",
    "uuid": lambda r: "-".join(f"{r.getrandbits(4 * n):0{n}x}" for n in (8, 4, 4, 4, 12)),
    "time": lambda r: r.choice(("2026-11-0{}T03:12:0{}Z", "2026-11-0{} 14:00:1{},123", "1 Nov 202{} 10:0{}:00")).format(r.randint(1, 9), r.randint(0, 9)),
    "name": lambda r: r.choice(_WORDS),
    "weird": lambda r: r.choice(_WEIRD),
    "letter": lambda r: r.choice("<abc}]"),
    "mail": lambda r: f"{r.choice(('ann', 'bob.b', 'c+d'))}@{r.choice(('acme', 'shop'))}.example",
    "host": lambda r: f"{r.choice(('api', 'gate-1', 'gate-2'))}.acme.example",
    "ip": lambda r: ".".join(str(r.randint(0, 255)) for _ in range(4)),
    "token": lambda r: "".join(r.choices(_LETTERS, k=24)),
}  # fmt: skip


def filled(random: Random, failure: Mapping[str, Any], said: str | None = None) -> str:
    """A failure's text with everything in it that varies, and the message in one of its languages."""
    text: str = failure["text"].strip("\n")
    if told := failure.get("said"):
        text = text.replace("«said»", said or told[0])
    return re.sub(r"«(\w+)»", lambda found: _FILL[found[1]](random), text)


# --- Another release of the application ---


def other_lines(random: Random, text: str) -> str:
    """Code above was changed."""
    by = random.randint(1, 40)
    return re.sub(
        r"((?:\.(?:java|kt|scala|cs|go|php|rb)[:(](?:line )?)|(?:\", line ))(\d+)",
        lambda found: found[1] + str(int(found[2]) + by),
        re.sub(r"(\.c?js):(\d+):(\d+)", lambda m: f"{m[1]}:{int(m[2]) + by}:{random.randint(1, 80)}", text),
    )


def other_numbers(random: Random, text: str) -> str:
    """Compilers and runtimes number lambdas, inner classes, proxies and state machines anew."""
    by = random.randint(1, 7)

    def up(found: re.Match[str]) -> str:
        return found[1] + str(int(found[2]) + by)

    for pattern in (
        r"(\$\$Lambda\$)(\d+)", r"(\$Proxy)(\d+)", r"(\$)(\d+)(?=[.$(])", r"(>d__)(\d+)", r"(>b__)(\d+)",
        r"(DisplayClass)(\d+)", r"(\|)(\d+)(?=_)", r"(\.func)(\d+)",
    ):  # fmt: skip
        text = re.sub(pattern, up, text)
    return text


def other_folder(random: Random, text: str) -> str:
    """It was deployed, or built, elsewhere."""
    new = random.choice(("/srv/shop/releases/20261104", "/home/deploy/current", "/opt/acme"))
    for old in ("/home/deploy/releases/20170508150053", "/var/www", "/src", "/app"):
        text = re.sub(rf"(?<![\w/.]){old}/(?!Acme)", f"{new}/", text)
    if "C:\\Source" in text:
        text = text.replace("C:\\Source", random.choice(("D:\\agent\\_work\\7\\s", "C:\\Users\\ann\\repos")))
    return text.replace(" in /src/", " in /home/vsts/9/s/")


def other_caller(_random: Random, text: str) -> str:
    """A batch job reaches the same place: an own frame further down is another one."""
    begin = max(0, text.rfind("Caused by: "))
    own = list(re.compile(r"\n\s+at (?:com\.acme|Acme)[\w.$<>_`]+\.\w+\([^\n]*").finditer(text, begin))
    own = [found for found in own if "<generated>" not in found[0] and "Unknown Source" not in found[0]]
    if len(own) < 2 or "Check.that" in text:
        return text
    last, dotnet = own[-1], "Acme." in own[-1][0]
    line = (
        "\n   at Acme.Jobs.Nightly.Run() in /src/Acme.Jobs/Nightly.cs:line 9"
        if dotnet
        else "\n\tat com.acme.job.Nightly.run(Nightly.java:19)"
    )
    return text[: last.start()] + line + text[last.end() :]


# --- Another runtime, another framework ---

_REFLECTION = (
    ("jdk.internal.reflect.DirectMethodHandleAccessor.invoke(DirectMethodHandleAccessor.java:103)",),
    ("jdk.internal.reflect.GeneratedMethodAccessor{}.invoke(Unknown Source)", "jdk.internal.reflect.DelegatingMethodAccessorImpl.invoke(DelegatingMethodAccessorImpl.java:43)"),
    ("sun.reflect.NativeMethodAccessorImpl.invoke0(Native Method)", "sun.reflect.NativeMethodAccessorImpl.invoke(NativeMethodAccessorImpl.java:62)"),
)  # fmt: skip


def other_java(random: Random, text: str) -> str:
    """JDK 8, 11, 17 and 21 print modules, reflection and hidden frames differently."""
    how = random.choice(_REFLECTION)
    accessors = re.compile(
        r"(\n\s+at )(?:java\.base/)?(?:jdk\.internal|sun)\.reflect\.[^\n]*(?:\n\s+at (?:java\.base/)?(?:jdk\.internal|sun)\.reflect\.[^\n]*)*"
    )
    modern = random.random() < 0.5
    text = accessors.sub(lambda m: "".join(m[1] + one.format(random.randint(1, 999)) for one in how), text)
    text = re.sub(r"at (?:java\.base/)?(?=(?:java|jdk)\.)", "at java.base/" if modern else "at ", text)
    text = re.sub(
        r"\$\$Lambda\$\d+/0x\w+",
        f"$$Lambda/0x00007f{random.getrandbits(32):08x}"
        if modern
        else f"$$Lambda$7/{random.getrandbits(28)}",
        text,
    )
    return text.replace(
        "jdk.proxy2/jdk.proxy2.$Proxy",
        random.choice(("com.sun.proxy.$Proxy", "jdk.proxy3/jdk.proxy3.$Proxy")),
    )


def packaged(random: Random, text: str) -> str:
    """A logger says of each frame which archive it is from; a class loader names itself."""
    if "~[" in text:
        return re.sub(r" ~?\[[^\]\n]*\](?=\n|\Z)", "", text)
    end = random.choice((" ~[app.jar!/:1.4.2]", " [classes/:na]", " ~[?:?]"))
    text = re.sub(r"(\n\s+at [^\n]*\))", rf"\1{end}", text)
    return re.sub(r"at (?=com\.acme)", "at app//", text) if random.random() < 0.5 else text


_SPRING = (
    "org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer.lambda$executeListener$8(AbstractMessageListenerContainer.java:1725)",
    "io.micrometer.observation.Observation.observe(Observation.java:498)",
    "org.springframework.retry.support.RetryTemplate.doExecute(RetryTemplate.java:344)",
)


def other_framework(random: Random, text: str) -> str:
    """Another version of it takes other ways: one more frame of a library, one less, other proxies."""
    if random.random() < 0.7:
        text = re.sub(r"\$\$EnhancerBySpringCGLIB\$\$\w+", f"$$SpringCGLIB$${random.randint(0, 2)}", text)
        text = re.sub(
            r"\$\$FastClassBySpringCGLIB\$\$\w+", f"$$SpringCGLIB$$FastClass$${random.randint(0, 2)}", text
        )
    text = re.sub(r"(_Subclass\.\w+)\(", r"\1$$superforward(", text)
    frames = list(re.finditer(r"\n(\s+at )org\.(?:springframework|apache|hibernate)[^\n]*", text))
    if not frames:
        return text
    where = random.choice(frames)
    if len(frames) > 2 and random.random() < 0.4:
        return text[: where.start()] + text[where.end() :]
    return text[: where.end()] + f"\n{where[1]}{random.choice(_SPRING)}" + text[where.end() :]


def proxied(random: Random, text: str) -> str:
    """A service got an aspect: a proxy's frames stand below its own."""
    own = list(re.finditer(r"\n(\s+)at (com\.acme[\w.]+)\.(\w+)\(\w+\.java:\d+\)[^\n]*", text))
    if not own:
        return text
    found = random.choice(own)
    spring6 = random.random() < 0.5
    hexed = f"{random.getrandbits(32):x}"
    first, second = (
        ("$$SpringCGLIB$$FastClass$$1", "$$SpringCGLIB$$0")
        if spring6
        else (f"$$FastClassBySpringCGLIB$${hexed}", f"$$EnhancerBySpringCGLIB$${hexed}")
    )
    lines = (
        f"{found[2]}{first}.invoke(<generated>)",
        "org.springframework.cglib.proxy.MethodProxy.invoke(MethodProxy.java:218)",
        "org.springframework.aop.framework.CglibAopProxy$DynamicAdvisedInterceptor.intercept(CglibAopProxy.java:708)",
        f"{found[2]}{second}.{found[3]}(<generated>)",
    )
    return text[: found.end()] + "".join(f"\n{found[1]}at {line}" for line in lines) + text[found.end() :]


def recovered(random: Random, text: str) -> str:
    """Coroutines' debug mode throws a copy whose cause is the exception as it was."""
    head, _, frames = text.partition("\n")
    boundary = random.choice(("_COROUTINE._BOUNDARY._(CoroutineDebugging.kt:46)", "(Coroutine boundary)"))
    first = frames.split("\n")[0]
    return f"{head}\n{first}\n\tat {boundary}\n\tat com.acme.pay.Main$main$2.invokeSuspend(Main.kt:12)\nCaused by: {head}\n{frames}"


_STATE_MACHINE = re.compile(r"\.<(\w+)>d__\d+\.MoveNext\(\)")
_END = re.compile(
    r"\n--- End of stack trace from previous location[^\n]*(?:\n   at System\.Runtime\.(?:CompilerServices|ExceptionServices)\.[^\n]*)*"
)


def other_dotnet(random: Random, text: str) -> str:
    """.NET Framework, Core and 8 name state machines and the joints of a trace differently."""
    new, old = (
        "\n--- End of stack trace from previous location ---",
        (
            "\n--- End of stack trace from previous location where exception was thrown ---"
            "\n   at System.Runtime.ExceptionServices.ExceptionDispatchInfo.Throw()"
            "\n   at System.Runtime.CompilerServices.TaskAwaiter.HandleNonSuccessAndDebuggerNotification(Task task)"
        ),
    )
    modern = random.random() < 0.5
    text = _END.sub(lambda _: new if modern else old, text)
    if modern:
        text = _STATE_MACHINE.sub(lambda m: f".{m[1]}(Order order, CancellationToken token)", text)
    return text if random.random() < 0.7 else re.sub(r" in [^\n]*:line \d+", "", text)


_AT = (
    ("bei", "in {}:Zeile {}.", "Ende der Stapelüberwachung vom vorhergehenden Ort, an dem die Ausnahme ausgelöst wurde", "Ende der internen Ausnahmestapelüberwachung"),
    ("à", "dans {}:ligne {}", "Fin de la trace de la pile à partir de l'emplacement précédent au niveau duquel l'exception s'est produite", "Fin de la trace de la pile d'exception interne"),
    ("в", "в {}:строка {}", "Конец трассировка стека из предыдущего расположения, где возникло исключение", "Конец трассировки внутреннего стека исключений"),
    ("在", "位置 {}:行号 {}", "引发异常的上一位置中堆栈跟踪的末尾", "内部异常堆栈跟踪的结尾"),
    ("en", "en {}:línea {}", "Fin del seguimiento de la pila desde la ubicación anterior donde se produjo la excepción", "Fin del seguimiento de la pila de la excepción interna"),
    ("場所", "場所 {}:行 {}", "直前に例外がスローされた場所からのスタック トレースの終わり", "内部例外スタック トレースの終わり"),
)  # fmt: skip


def localized(random: Random, text: str) -> str:
    """.NET Framework speaks the language of its Windows, in frames, too."""
    at, line, joint, inner = random.choice(_AT)
    text = re.sub(r" in ([^\n]*):line (\d+)", lambda m: " " + line.format(m[1], m[2]), text)
    text = text.replace("\n   at ", f"\n   {at} ")
    text = re.sub(
        r"End of stack trace from previous location(?: where exception was thrown)?", lambda _: joint, text
    )
    return text.replace("End of inner exception stack trace", inner)


def other_python(random: Random, text: str) -> str:
    """Up to 3.10 nothing is underlined; libraries lie in another place."""
    text = re.sub(r"\n +[~^]+(?=\n)", "", text)
    return text.replace(
        "/usr/local/lib/python3.11/",
        random.choice(("/venv/lib/python3.9/", "/opt/pypoetry/.venv/lib64/python3.12/")),
    )


def other_node(random: Random, text: str) -> str:
    """Older versions name internal files differently; modules of the new kind are addresses."""
    text = text.replace(
        "process.processTicksAndRejections (node:internal/process/task_queues:95:5)",
        random.choice(
            (
                "processTicksAndRejections (internal/process/task_queues.js:97:5)",
                "process._tickCallback (internal/process/next_tick.js:68:7)",
                "runMicrotasks (<anonymous>)",
            )
        ),
    )
    if random.random() < 0.5:
        text = re.sub(r"(?<=[( ])/app/", "file:///app/", text)
    return text.replace("at async ", "at ") if random.random() < 0.3 else text


def other_go(random: Random, text: str) -> str:
    """Addresses and arguments are others each time; Go 1.21 names the goroutine that created one."""
    text = re.sub(r"0x[0-9a-f]+", lambda _: f"0x{random.getrandbits(40):x}", text)
    text = re.sub(r"goroutine \d+", lambda _: f"goroutine {random.randint(1, 99_999)}", text)
    return re.sub(r"(created by [^\n(]+)", rf"\1 in goroutine {random.randint(1, 99)}", text)


def other_ruby(_random: Random, text: str) -> str:
    """3.4 quotes straight."""
    return re.sub(r"`([^'\n]*)'", r"'\1'", text)


# --- Around it ---

_JAVA_OUTER = (
    "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener method 'on' threw exception\n\tat org.springframework.amqp.rabbit.listener.adapter.MessagingMessageListenerAdapter.invokeHandler(MessagingMessageListenerAdapter.java:198)\n\tat java.lang.Thread.run(Thread.java:748)",
    "java.lang.RuntimeException: cannot handle it\n\tat com.acme.core.Handlers.call(Handlers.java:18)\n\tat org.springframework.jms.listener.AbstractMessageListenerContainer.onMessage(AbstractMessageListenerContainer.java:1)",
    "java.lang.reflect.InvocationTargetException: null\n\tat sun.reflect.NativeMethodAccessorImpl.invoke0(Native Method)\n\tat com.acme.core.Handlers.call(Handlers.java:18)",
)  # fmt: skip


def wrapped_java(random: Random, text: str) -> str:
    """Somebody catches it and throws his own."""
    if "\nWrapped by: " in text:
        return text
    return f"{random.choice(_JAVA_OUTER)}\nCaused by: {text}"


def suppressed(_random: Random, text: str) -> str:
    """Closing failed, too."""
    more = (
        "\n\tSuppressed: java.io.IOException: cannot close\n\t\tat com.acme.core.Files.close(Files.java:9)\n\t\tat java.lang.Thread.run(Thread.java:748)"
        "\n\tCaused by: java.net.SocketException: Socket closed\n\t\tat java.net.Socket.close(Socket.java:9)\n\t\t... 3 more"
    )
    place = re.search(r"\n\s*\.\.\. \d+", text[text.rfind("Caused by: ") + 1 :])
    at = len(text) if place is None else text.rfind("Caused by: ") + 1 + place.start()
    return text[:at] + more + text[at:]


def root_first(_random: Random, text: str) -> str:
    """Logback's %rEx tells the root cause first."""
    if text.count("\nCaused by: ") != 1:
        return text
    outer, _, root = text.partition("\nCaused by: ")
    return f"{root}\nWrapped by: {outer}"


def wrapped_dotnet(random: Random, text: str) -> str:
    """Tasks collect exceptions; frameworks add their own."""
    outer, number = random.choice(
        (
            ("System.AggregateException: One or more errors occurred.", "(Inner Exception #0) "),
            ("System.AggregateException: One or more errors occurred. (see inside)", ""),
            ("Acme.Core.HandlerException: cannot handle it", ""),
        )
    )
    return f"{outer}\n ---> {number}{text}\n   --- End of inner exception stack trace ---\n   at Acme.Core.Handlers.Call(Func`1 call) in /src/Acme.Core/Handlers.cs:line 12\n   at System.Threading.Tasks.Task.Wait()"


def wrapped_python(random: Random, text: str) -> str:
    """`raise … from …`, or a group of exceptions."""
    if random.random() < 0.5:
        return (
            f"{text.rstrip()}\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
            '  File "/app/shop/core.py", line 12, in guarded\n    raise HandlerError("cannot handle it") from error\nshop.core.HandlerError: cannot handle it\n'
        )
    inside = "".join(f"    | {line}\n" for line in text.rstrip().split("\n"))
    return (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/usr/local/lib/python3.11/asyncio/taskgroups.py", line 145, in __aexit__\n  |     raise me from None\n'
        f"  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n{inside}    +------------------------------------\n"
    )


def wrapped_node(_random: Random, text: str) -> str:
    """`new Error(…, { cause })`, as util.inspect shows it."""
    inside = text.replace("\n", "\n  ")
    return f"Error: cannot handle it\n    at guarded (/app/src/core.js:9:11)\n    at process.processTicksAndRejections (node:internal/process/task_queues:95:5) {{\n  [cause]: {inside}\n}}"


def wrapped_php(_random: Random, text: str) -> str:
    """PHP tells what wraps an exception after it."""
    return f"{text}\n\nNext Symfony\\Component\\Messenger\\Exception\\HandlerFailedException: Handling failed in /app/vendor/symfony/messenger/Middleware/HandleMessageMiddleware.php:130\nStack trace:\n#0 /app/vendor/symfony/messenger/MessageBus.php(70): Symfony\\Component\\Messenger\\Middleware\\TraceableMiddleware->handle()\n#1 {{main}}"


# --- On its way ---


def cut_in_frames(random: Random, text: str) -> str:
    """A header or a column ends in the frames: the last ones are lost."""
    lines = text.split("\n")
    return "\n".join([*lines[:-2], lines[-2][: random.randint(8, 40)]]) if len(lines) > 8 else text


def cut_at_1000(_random: Random, text: str) -> str:
    """It may end anywhere."""
    return text[:1_000]


def with_returns(_random: Random, text: str) -> str:
    """Windows."""
    return text.replace("\n", "\r\n")


def escaped(_random: Random, text: str) -> str:
    """A text of JSON in a text of JSON: line breaks are two characters."""
    return json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"')


_JVM = ("java", "kotlin", "scala")
CHANGES: Mapping[str, Sequence[tuple[tuple[str, ...] | None, Change]]] = {
    "other lines": ((None, other_lines),),
    "other generated names": ((None, other_numbers),),
    "other folder": ((None, other_folder),),
    "other caller": ((None, other_caller),),
    "other runtime": (
        (_JVM, other_java), (("dotnet",), other_dotnet), (("python",), other_python), (("node",), other_node),
        (("go",), other_go), (("ruby",), other_ruby),
    ),
    "other framework": ((_JVM, other_framework),),
    "packaging data": ((_JVM, packaged),),
    "proxies added": ((("java",), proxied),),
    "coroutines recovered": ((("kotlin",), recovered),),
    "frames in another language": ((("dotnet",), localized),),
    "wrapped": (
        (_JVM, wrapped_java), (("dotnet",), wrapped_dotnet), (("python",), wrapped_python),
        (("node",), wrapped_node), (("php",), wrapped_php),
    ),
    "suppressed added": ((_JVM, suppressed),),
    "root first": ((_JVM, root_first),),
    "cut in its frames": ((None, cut_in_frames),),
    "cut at 1,000": ((None, cut_at_1000),),
    "line breaks": ((None, with_returns), (None, escaped)),
}  # fmt: skip
"""Name -> for which kinds of trace (None: all), and the change."""


def changes_for(kind: str) -> dict[str, list[Change]]:
    """The changes that a kind of trace can undergo, by name."""
    found = {
        name: [change for kinds, change in all_ if kinds is None or kind in kinds]
        for name, all_ in CHANGES.items()
    }
    return {name: some for name, some in found.items() if some}
