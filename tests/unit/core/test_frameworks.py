"""A framework is a row: what a rule reads by it, a replay takes away."""

from support.rows import each_row

from dlq.core.failure_headers import restart
from dlq.core.frameworks import FRAMEWORKS, Framework


@each_row("framework", FRAMEWORKS)
def test_whatever_a_row_reads_of_a_failure_does_not_go_out_again(framework: Framework) -> None:
    fields = (framework.classes, framework.messages, framework.stacks, framework.attempts, framework.origin)
    names = {*framework.evidence, *(name for field in fields for name in field.names)}
    taken = restart(dict.fromkeys(names, "1"))
    assert names <= taken.gone | taken.mended.keys(), framework.rule
