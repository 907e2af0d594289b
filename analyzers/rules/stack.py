"""Stack traces of all languages: from the root cause outwards, frame by frame, and whose a frame is.

A frame's name leaves out what compilers, proxies and runtimes add and number: a lambda of `take`, its proxy,
its coroutine and its state machine are all `take`. So it is the same in the next release, on another
runtime and in another language.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_LONGEST_LINE = 1_000
_MOST_PARTS = 50
_VERBOSE = re.VERBOSE | re.ASCII


class Frame(NamedTuple):
    """One call of a stack."""

    name: str
    """`com.shop.Stock.take`, `prices.py total_of`; a library's as it is printed."""
    is_own: bool
    """Whether it is neither a platform's nor a library's."""


def place(parts: Iterable[str]) -> str | None:
    """Return the first own frame of a trace's parts, the root cause's first.

    A method that only checks or translates for its callers is the place if no other frame is one's own.
    """
    checks = None
    for part in parts:
        for name, is_own in frames(part):
            if is_own and not _is_check(name):
                return name
            checks = checks or (name if is_own else None)
    return checks


_CHECKS = re.compile(
    r"""
    (?: \b | _ )
    (?: Asserts? | Assertions? | Checks? | Ensure | Guard | Preconditions | Require | Throws? | ThrowHelper
      | Validate | Verify )
    \. \w+ \Z
    | \. (?: \w{0,99} Exception | throw\w{0,99} ) \Z      # translateException
    """,
    re.VERBOSE,
)


@lru_cache(4096)
def _is_check(name: str) -> bool:
    return bool(_CHECKS.search(name))


def is_own(frame: str) -> bool:
    """Return whether a frame, a line of a trace without its indentation, is neither a platform's nor a
    library's."""
    return any(found.is_own for found in frames(f"\n  {frame}"))


# --- The text and its parts ---

TRACEBACK = "Traceback (most recent call last)"
_GROUP = "+ Exception Group Traceback"
_GROUPED = re.compile(r"^[ ]+ [|+] (?: [-+|\d ]*+ $ | [ ]? )", re.VERBOSE | re.MULTILINE)
_SUPPRESSED = re.compile(
    r"""
    \n (?P<indent> [ \t]++ ) Suppressed:[ ] [^\n]*+
    (?: \n (?P=indent) (?: [ \t]+ | Caused[ ]by:[ ] | \.\.\.[ ] ) [^\n]*+ )*+
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\n (?: \\t | [ ]{1,12} \S | Stack[ ]trace: | Caused[ ]by:[ ] | / )", re.VERBOSE)
"""Two characters where a line break was, before what begins a line of a trace."""
_DIRECT_CAUSE = "\n\nThe above exception was the direct cause of the following exception:\n\n"
_ANOTHER = "\n\nDuring handling of the above exception, another exception occurred:\n\n"


def tidy(text: str) -> str:
    """Return a trace whose line breaks are some, without what failed beside it (Java's Suppressed), and of a
    group of exceptions (Python's) the last one."""
    if "\n" not in text and _ESCAPED.search(text):
        text = text.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t")
    text = text.replace("\r\n", "\n").replace("\xa0", " ")  # web pages indent with these
    if "Suppressed: " in text:
        text = _SUPPRESSED.sub("", text)
    if _GROUP in text:
        text = TRACEBACK + _GROUPED.sub("", text).rpartition(TRACEBACK)[2]
    return text


_WRAPPERS_FOLLOW = ("\nWrapped by: ", "\n\nNext ")  # Logback's %rEx, PHP
_CAUSES_FOLLOW = ("Caused by: ", "[cause]: ", "\ncaused by: ")  # Java, Node, its loggers
CHAINS = (*_CAUSES_FOLLOW, _DIRECT_CAUSE.strip(), *_WRAPPERS_FOLLOW)
"""What stands between the exceptions of a chain."""


def parts(text: str) -> list[str]:
    """Return a tidied trace's exceptions with their frames, the root cause first, what wraps it after it."""
    if TRACEBACK in text:
        return text.rpartition(_ANOTHER)[2].split(_DIRECT_CAUSE, _MOST_PARTS)
    for mark in _WRAPPERS_FOLLOW:
        if mark in text:
            return text.split(mark, _MOST_PARTS)
    for mark in _CAUSES_FOLLOW:
        if mark in text:
            return text.rsplit(mark, _MOST_PARTS)[::-1]
    return [text]


_AT_OF_NET_FRAMEWORK = (
    "bei | à | в | en | in | em | w | v | bij | vid | ved | 在 | 於 | 場所 | 위치: | konum:"
)
_FIRST_FRAME = re.compile(
    rf"""
    \n (?:
        [ \t]{{1,12}} (?: at[ ] | --- | \.\.\.[ ]\d | File[ ]" )            # Java, .NET, Node; Python
      | [ ]{{3}} (?: {_AT_OF_NET_FRAMEWORK} ) [ ]
      | Stack[ ]trace:\n | \# \d{{1,4}} [ ]                                 # PHP
      | \S{{1,300}} : \d{{1,6}} :in[ ] [`']                                 # Ruby
      | goroutine[ ]\d | [^\n]{{1,300}} \n \s{{1,8}} / \S{{1,300}} \.go:    # Go
    )
    """,
    re.VERBOSE,
)


STACK_FOLLOWS = ", stacktrace:"
"""What a Go program puts between a panic's words and its goroutine."""


def before_frames(part: str) -> str:
    """Return what a part says before its first frame."""
    part = part.partition(STACK_FOLLOWS)[0]
    found = _FIRST_FRAME.search(part)
    return part[: found.start()] if found else part


# --- Frames ---


def frames(part: str) -> Iterator[Frame]:
    """Return the frames of one part, the innermost first."""
    read = next((read for mark, read in _READERS if mark in part), None)
    return iter(()) if read is None else read(part.split("\n"))


_AT = re.compile(
    rf"""
    \A (?: [ \t]{{0,12}} at | [ ]{{3}} (?: {_AT_OF_NET_FRAMEWORK} ) ) [ ]++ (?: async[ ] )? (?P<call> .+ )
    """,
    re.VERBOSE,
)
_CALL = re.compile(
    r"""
    \A (?: [\w.@-]{0,99}+ / ){0,2}          # a class loader, a module
    (?P<name> [\w$<] [^\s(]++ ) [ ]? \(
    """,
    re.VERBOSE,
)
_NODE_PATH = r"file:// | node: | internal/ | webpack | / | [A-Za-z]:\\"
_NODE_CALL = re.compile(
    rf"""
    \A (?: new[ ] )? (?P<name> [^\s(]++ ) (?: [ ] \[as[ ] [^\]]*+ \] )? [ ]
    \( (?P<where> (?: {_NODE_PATH} | <anonymous> | native | index[ ]\d ) [^)]*+ ) \)
    """,
    re.VERBOSE,
)
_NODE_ADDRESS = re.compile(rf"\A (?P<name>) (?P<where> (?: {_NODE_PATH} ) [^\s()]* : \d+ ) \Z", re.VERBOSE)


_FIRST_OF_FRAMES = (" ", "\t", "a")
"""Other lines, like the exception's own, differ in each trace."""


def _java(lines: Sequence[str]) -> Iterator[Frame]:
    """Return the frames of Java and its kin, of .NET, and of Node."""
    framed = (line[:_LONGEST_LINE] for line in lines if line[:1] in _FIRST_OF_FRAMES)
    return (found for line in framed if (found := _frame_at(line)))


@lru_cache(4096)
def _frame_at(line: str) -> Frame | None:
    """Read the frame in a line, if any: traces differ in their first lines, and share most of the others."""
    found = _AT.match(line)
    if not found:
        return None
    call = found["call"].rstrip()
    may_be_node = " (" in call or call[-1:].isdigit()
    if may_be_node and (node := _NODE_ADDRESS.match(call) or _NODE_CALL.match(call)):
        return _node(node["name"], node["where"])
    named = _CALL.match(call)
    return _build_frame(named["name"]) if named else None


_NODE_LIBRARIES = re.compile(
    r"node_modules [/\\] | \A (?: node: | internal/ | <anonymous> | native | index[ ] )", re.VERBOSE
)
_NODE_OBJECT = re.compile(
    r"\A (?: Object | Module | exports | module\.exports | Function | _this ) \. | \.? <anonymous>",
    re.VERBOSE,
)
_POSITION = re.compile(r"(?: : \d{1,9} ){1,2} \Z", re.VERBOSE)


def _node(name: str, where: str) -> Frame:
    file = _file(_POSITION.sub("", where)).rsplit(".", 1)[0]
    return Frame(f"{file} {_NODE_OBJECT.sub('', name)}".strip(), not _NODE_LIBRARIES.search(where))


def _file(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


# --- The JVM's and .NET's names ---

_NAMES = """
_COROUTINE akka antlr bitronix brave cats clojure dagger feign freemarker groovy jakarta java javassist
javax jdk kotlin kotlinx liquibase ognl okhttp okhttp3 okio oracle play reactor retrofit2 rx scala sun
weblogic zio
ch.qos cn.hutool datadog.trace net.bytebuddy net.sf.cglib redis.clients software.amazon
org.aopalliance org.apache org.aspectj org.bouncycastle org.bson org.codehaus org.eclipse.core
org.eclipse.jdt org.eclipse.jetty org.eclipse.microprofile org.eclipse.persistence org.elasticsearch
org.flywaydb org.glassfish org.gradle org.hibernate org.jboss org.jdbi org.jetbrains org.jooq
org.json org.junit org.mariadb org.mockito org.mongodb org.mybatis org.opensearch org.postgresql org.quartz
org.reactivestreams org.redisson org.slf4j org.springframework org.testcontainers org.thymeleaf org.w3c
org.wildfly org.xml
com.alibaba com.aliyun com.amazonaws com.atomikos com.auth0 com.azure com.baomidou com.datadog com.datastax
com.dynatrace com.fasterxml com.github.benmanes com.github.pagehelper com.google com.graphql
com.hazelcast com.ibm com.jayway com.lightbend com.lmax com.mchange com.microsoft com.mongodb com.mysql
com.netflix com.newrelic com.nimbusds com.oracle com.querydsl com.rabbitmq com.squareup com.sun
com.thoughtworks com.typesafe com.zaxxer
io.awspring io.confluent io.debezium io.dropwizard io.github.resilience4j io.grpc io.jaegertracing
io.jsonwebtoken io.ktor io.lettuce io.micrometer io.micronaut io.netty io.opentelemetry io.opentracing
io.projectreactor io.quarkus io.r2dbc io.reactivex io.seata io.sentry io.smallrye io.swagger io.undertow
io.vertx
ActiveMQ Akka Amazon Amqp Apache AutoMapper Autofac Azure Castle Confluent Dapper DotNetCore.CAP EasyNetQ
FluentValidation GreenPipes Grpc Hangfire JasperFx Marten MassTransit MediatR Microsoft MongoDB Mono Moq
MySql MySqlConnector NHibernate NLog NServiceBus NUnit Newtonsoft Npgsql OpenTelemetry Orleans Paramore
Polly Quartz RabbitMQ Rebus Refit RestSharp Sentry Serilog StackExchange System Wolverine Xunit
"""
_LIBRARIES = frozenset(_NAMES.split())
"""What the names of platforms and libraries begin with, up to three parts."""
_GENERATED = re.compile(
    r"""
    \A [^$]*+ (?:
        \$Proxy \d                               # a proxy stands beside what it calls,
      | \$\$ (?: SpringCGLIB \$\$ )? (?: Lambda | FastClass )      # and so do these, if they are shown
    )
    """,
    re.VERBOSE,
)
_NET = re.compile(
    r"""
    (?: \.<>c (?: __DisplayClass [\d_]++ )? (?: `\d++ )? )?         # what a lambda holds
    \. <++ (?P<method> [\w.-]++ ) > [^.]*+ (?: \.MoveNext )? \Z     # lambda, local function, state machine
    """,
    re.VERBOSE,
)
_KOTLIN = re.compile(
    r"""
    \A (?P<class> [\w.]*+ (?: \$ [A-Z] \w*+ )*+ ) \$ (?P<method> [a-z] \w*+ ) (?: \$ \w* )*
    \. (?: invoke\w* | doResume | emit | call | run | apply ) \Z
    """,
    _VERBOSE,
)
_CLUTTER = re.compile(
    r"""
      \$\$ (?: Enhancer | SpringCGLIB | _javassist | _jvst | _Weld | HibernateProxy | superforward ) [^.]*+
    | _ (?: ClientProxy | Subclass ) (?= \. )                       # Quarkus
    | \$ (?: ByteBuddy | HibernateProxy | MockitoMock ) \$ [^.]*+
    | (?<=\.) (?: lambda\$ | \$anonfun\$ | access\$ )               # whose it is follows
    | \$ (?: suspendImpl | default ) \b
    | \$ \d++ (?= [.$] | \Z )                                       # anonymous classes, lambdas
    | \$ (?= \. | \Z )                                              # Scala's objects
    | (?<= \w ) - [\w-]{7} \Z                                       # Kotlin's inline classes
    | ` \d++ | \[ [^\]]{0,300}+ \]                                  # .NET's generics
    """,
    re.VERBOSE,
)


def _is_library(name: str) -> bool:
    one, _, rest = name.partition(".")
    two, _, rest = rest.partition(".")
    three = rest.partition(".")[0]
    return one in _LIBRARIES or f"{one}.{two}" in _LIBRARIES or f"{one}.{two}.{three}" in _LIBRARIES


def _build_frame(name: str) -> Frame:
    is_own = not (_is_library(name) or ("$" in name and _GENERATED.match(name)))
    return Frame(_plain(name) if is_own else name, is_own)


def _plain(name: str) -> str:
    if "<" in name:
        name = _NET.sub(r".\g<method>", name)
    if "$" in name:
        name = _KOTLIN.sub(r"\g<class>.\g<method>", name)
    return _CLUTTER.sub("", name)


# --- Languages whose frames name files ---

_PYTHON = re.compile(
    r"""
    \A [ \t]{0,8} File[ ]" (?P<path> [^"]*+ ) ",[ ]line[ ]\d++,[ ]in[ ] (?P<function> \S++ )
    """,
    re.VERBOSE,
)
_PYTHON_LIBRARIES = re.compile(
    r"(?: site | dist )-packages | lib (?:64)? [/\\] python | [/\\] Lib [/\\] | \A <", re.VERBOSE
)
_COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
"""Since Python 3.12 most of them have no frame of their own."""


def _python(lines: Sequence[str]) -> Iterator[Frame]:
    for line in reversed(lines):
        found = _PYTHON.match(line[:_LONGEST_LINE])
        if found and (file := _file(found["path"])):
            is_library = _PYTHON_LIBRARIES.search(found["path"]) or found["function"] in _COMPREHENSIONS
            yield Frame(f"{file} {found['function']}".rstrip(":"), not is_library)


_RUBY = re.compile(
    r"""
    \A \s{0,8} (?: from[ ] )? (?P<path> [^\s:]++ ) : \d++ :in[ ] [`']
    (?: (?: block | rescue | ensure ) [ ] (?: \( [^)]*+ \) [ ] )? in[ ] )*+
    (?: [\w:]++ [#.] )? (?P<function> [^'\s]++ ) '
    """,
    re.VERBOSE,
)
_RUBY_LIBRARIES = re.compile(r"/gems/ | /lib/ruby/ | \A <", re.VERBOSE)


def _ruby(lines: Sequence[str]) -> Iterator[Frame]:
    for line in lines:
        if found := _RUBY.match(line[:_LONGEST_LINE]):
            name = f"{_file(found['path'])} {found['function']}"
            yield Frame(name, not _RUBY_LIBRARIES.search(found["path"]))


_GO = re.compile(r"\A \s{1,8} (?P<path> \S+ \.go ) : \d", re.VERBOSE)
_GO_LIBRARIES = re.compile(
    r"/pkg/mod/ | /vendor/ | \A /usr/ (?: local/ | lib/ )? go | /src/runtime/", re.VERBOSE
)
_GO_CLUTTER = re.compile(
    r"""
      \A (?: created[ ]by[ ] )?+ (?: [^\s/(]{0,99}+ / ){0,20}+          # the package's path
    | [ ] in[ ]goroutine[ ] \d+ \Z
    | (?: \.func \d+ (?: \. \d+ )*+ )++ | \( (?! \* ) .* \Z              # closures, arguments
    """,
    re.VERBOSE,
)


def _go(lines: Sequence[str]) -> Iterator[Frame]:
    """Yield the frames of a trace of Go: a line names the function, and the one below it where it is."""
    for line, below in pairwise(lines):
        found = _GO.match(below[:_LONGEST_LINE])
        if found and line and not line[0].isspace():
            is_library = _GO_LIBRARIES.search(found["path"]) or line.startswith(("panic(", "runtime"))
            yield Frame(_GO_CLUTTER.sub("", line[:_LONGEST_LINE]), not is_library)


_PHP = re.compile(r"\A \# \d++ [ ] (?P<path> [^\s(]++ ) \( \d++ \):[ ] (?P<called> [^\s(]++ )", re.VERBOSE)
_PHP_THROWN = re.compile(
    r"\A .{0,800}? [ ]in[ ] (?P<path> (?: / | [A-Za-z]:\\ ) .{0,300}? \.php ) :", re.VERBOSE
)
_PHP_NAMES = re.compile(r"-> | :: | \\", re.VERBOSE)


def _php(lines: Sequence[str]) -> Iterator[Frame]:
    """Yield the frames of a trace of PHP: a line names a call's place, and the next line its function."""
    calls = [
        (found["path"], found["called"]) for line in lines if (found := _PHP.match(line[:_LONGEST_LINE]))
    ]
    if thrown := next(filter(None, (_PHP_THROWN.match(line[:_LONGEST_LINE]) for line in lines[:20])), None):
        calls.insert(0, (thrown["path"], ""))
    for (path, _), (_, function) in pairwise([*calls, ("", "")]):
        name = f"{_file(path)} {_PHP_NAMES.split(function)[-1]}"
        yield Frame(name.strip(), "/vendor/" not in path.replace("\\", "/"))


_READERS: tuple[tuple[str, Callable[[Sequence[str]], Iterator[Frame]]], ...] = (
    ('File "', _python),
    ("\n#0 ", _php),
    (".go:", _go),
    (":in `", _ruby),
    (":in '", _ruby),
    ("\n", _java),
)
"""What a trace has that one of this language always has, and how its frames are read."""
