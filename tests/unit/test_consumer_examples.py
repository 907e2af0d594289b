"""The examples of docs/for-consumers.md do in each language what the page says, where its runtime is there.

Each program gets four deliveries: a new order, a replay, the same replay again, and a third lap.
"""

import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.jvm import QUICK

from dlq.core import provenance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "for-consumers.md").read_text(encoding="utf-8")
TOLD = "True True True False\nbooked 1 2\nmailed 1\n"
"""What the deliveries return, the orders that were booked, and those of which a mail went out."""


def example(language: str) -> str:
    """The one block of a language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def needs(*programs: str) -> pytest.MarkDecorator:
    """A test that runs where these programs are installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def printed(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_names_each_mark_that_a_replay_leaves() -> None:
    for name in (provenance.REPLAY_ID, provenance.REPLAY_LAP, provenance.REPLAY_OF):
        assert f"| `{name}` |" in PAGE
        assert f"`{name}`" in (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_python() -> None:
    known: dict[str, Any] = {}
    exec(compile(example("python"), "for-consumers.md", "exec"), known)
    database, mailed, answers = sqlite3.connect(":memory:"), [], []
    database.execute("CREATE TABLE done (id TEXT PRIMARY KEY)")
    database.execute("CREATE TABLE bookings (id TEXT, amount INTEGER)")
    on_message = known["consumer"](database, mailed.append)
    channel = SimpleNamespace(
        basic_ack=lambda _tag: answers.append(True),
        basic_reject=lambda _tag, requeue: answers.append(requeue),
    )
    for headers, number in ((None, 1), ({"dlq_replay_lap": "1"}, 2), ({"dlq_replay_lap": "1"}, 2),
                            ({"dlq_replay_lap": "3"}, 3)):  # fmt: skip
        body = b'{"id": "%d", "amount": 5}' % number
        on_message(channel, SimpleNamespace(delivery_tag=1), SimpleNamespace(headers=headers), body)
    assert answers == [True, True, True, False]
    assert [row[0] for row in database.execute("SELECT id FROM bookings")] == ["1", "2"]
    assert mailed == ["1"]


JAVA = {
    "Component": "package org.springframework.stereotype; public @interface Component {}",
    "RabbitListener": "package org.springframework.amqp.rabbit.annotation;"
    "public @interface RabbitListener { String[] queues(); }",
    "Header": "package org.springframework.messaging.handler.annotation;"
    'public @interface Header { String name(); String defaultValue() default ""; }',
    "AmqpRejectAndDontRequeueException": "package org.springframework.amqp;"
    "public class AmqpRejectAndDontRequeueException extends RuntimeException {"
    "    public AmqpRejectAndDontRequeueException(String message) { super(message); } }",
    "Orders": """
import java.util.*;
record Order(String id, int amount) {}
class Orders {
    final Set<String> booked = new TreeSet<>();
    boolean bookOnce(Order order) { return booked.add(order.id()); }
}
class Mail {
    final List<String> sent = new ArrayList<>();
    void confirm(Order order) { sent.add(order.id()); }
}""",
    "Main": """
class Main {
    static String handle(OrderListener listener, String id, int lap) {
        try {
            listener.handle(new Order(id, 5), lap);
            return "True";
        } catch (org.springframework.amqp.AmqpRejectAndDontRequeueException refused) {
            return "False";
        }
    }
    public static void main(String[] words) {
        var orders = new Orders();
        var mail = new Mail();
        var listener = new OrderListener(orders, mail);
        System.out.println(String.join(" ", handle(listener, "1", 0), handle(listener, "2", 1),
            handle(listener, "2", 1), handle(listener, "3", 3)));
        System.out.println("booked " + String.join(" ", orders.booked));
        System.out.println("mailed " + String.join(" ", mail.sent));
    }
}""",
}
"""The few names of Spring that the example uses, and a program around it."""
IMPORTS = """import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.stereotype.Component;
"""


@needs("java", "javac")
def test_java(tmp_path: Path) -> None:
    for name, text in {**JAVA, "OrderListener": IMPORTS + example("java")}.items():
        (tmp_path / f"{name}.java").write_text(text)
    sources = [path.name for path in tmp_path.glob("*.java")]
    printed(tmp_path, "javac", *(f"-J{option}" for option in QUICK), "-d", "classes", *sources)
    assert printed(tmp_path, "java", *QUICK, "-cp", "classes", "Main") == TOLD


GO = """
type shop struct{ booked, mailed []string }

func (s *shop) BookOnce(order Order) (bool, error) {
	for _, id := range s.booked {
		if id == order.ID {
			return false, nil
		}
	}
	s.booked = append(s.booked, order.ID)
	return true, nil
}

func (s *shop) Confirm(order Order) { s.mailed = append(s.mailed, order.ID) }

func main() {
	s := &shop{}
	word := map[bool]string{true: "True", false: "False"}
	var said []string
	for _, one := range []struct{ id, lap string }{{"1", ""}, {"2", "1"}, {"2", "1"}, {"3", "3"}} {
		headers := map[string]any{}
		if one.lap != "" {
			headers["dlq_replay_lap"] = one.lap
		}
		isDone, _ := Handle(headers, Order{one.id, 5}, s)
		said = append(said, word[isDone])
	}
	os.Stdout.WriteString(strings.Join(said, " ") + "\\nbooked " + strings.Join(s.booked, " ") +
		"\\nmailed " + strings.Join(s.mailed, " ") + "\\n")
}
"""


@needs("go")
def test_go(tmp_path: Path) -> None:
    imports = 'package main\n\nimport (\n\t"os"\n\t"strconv"\n\t"strings"\n)\n\n'
    (tmp_path / "main.go").write_text(imports + example("go") + GO)
    assert printed(tmp_path, "go", "run", "main.go") == TOLD


NODE = """
(async () => {
  const booked = [], mailed = [], said = [];
  const shop = {
    bookOnce: async (order) => !booked.includes(order.id) && booked.push(order.id) > 0,
    confirm: async (order) => mailed.push(order.id),
  };
  for (const [id, headers] of [["1"], ["2", {dlq_replay_lap: "1"}], ["2", {dlq_replay_lap: "1"}],
                               ["3", {dlq_replay_lap: "3"}]]) {
    said.push((await handle(headers, {id, amount: 5}, shop)) ? "True" : "False");
  }
  console.log([said.join(" "), "booked " + booked.join(" "), "mailed " + mailed.join(" ")].join("\\n"));
})();
"""


@needs("node")
def test_node(tmp_path: Path) -> None:
    (tmp_path / "main.js").write_text(example("js") + NODE)
    assert printed(tmp_path, "node", "main.js") == TOLD


CSHARP = """
class Shop : IShop
{
    public readonly List<string> Booked = new(), Mailed = new();
    public bool BookOnce(Order order)
    {
        if (Booked.Contains(order.Id)) return false;
        Booked.Add(order.Id);
        return true;
    }

    public void Confirm(Order order) => Mailed.Add(order.Id);
}

static class Program
{
    static void Main()
    {
        var shop = new Shop();
        var said = new List<string>();
        foreach (var (id, lap) in new[] { ("1", ""), ("2", "1"), ("2", "1"), ("3", "3") })
        {
            var headers = lap == "" ? null
                : new Dictionary<string, object?> { ["dlq_replay_lap"] = Encoding.UTF8.GetBytes(lap) };
            said.Add(Consumer.Handle(headers, new Order(id, 5), shop) ? "True" : "False");
        }
        Console.WriteLine(string.Join(" ", said));
        Console.WriteLine("booked " + string.Join(" ", shop.Booked));
        Console.WriteLine("mailed " + string.Join(" ", shop.Mailed));
    }
}
"""
PROJECT = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup>
<OutputType>Exe</OutputType><Nullable>enable</Nullable>
<TargetFramework>net8.0</TargetFramework><RollForward>LatestMajor</RollForward>
</PropertyGroup></Project>"""


@needs("dotnet")
def test_csharp(tmp_path: Path) -> None:
    imports = "using System;\nusing System.Collections.Generic;\nusing System.Text;\n\n"
    (tmp_path / "Main.cs").write_text(imports + example("csharp") + CSHARP)
    (tmp_path / "Main.csproj").write_text(PROJECT)
    assert printed(tmp_path, "dotnet", "run") == TOLD
