"""Letters that still lie in their dead-letter queues, though the archive holds them: a replay does not take
them out.

They were copied, or a drain had captured them and the broker never said that they are gone. The next drain
recognises them, archives nothing twice, and settles their manifests. Whether somebody else has taken them
meanwhile, no pull has seen. Some brokers remove no letter, however it is pulled.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dlq.archive import manifests
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import Store
from dlq.archive.views import Queued
from dlq.core.brokers import plugin_of
from dlq.core.settings import Settings

if TYPE_CHECKING:
    from dlq.replay.plans.planfile import Header


def is_left(manifest: Manifest, settings: Settings) -> bool:
    """Return whether letters of this segment may lie in their queue still; `settled_ids` of them do not. A
    place that is read from where the last pull ended, such as a stream, keeps them always."""
    if manifest.settled or manifest.checkpoint or manifest.mode == manifests.BY_IMPORT:
        return False
    source = settings.sources.get(manifest.source)
    if source is None:  # a file that was imported is a copy, too, and lies in no queue
        return manifest.mode == "drain"
    return not plugin_of(settings.brokers[source.broker].kind).keeps_letters


def find_queued(store: Store, settings: Settings) -> Queued:
    """Return the segments with such letters, and which of their letters are out."""
    return {
        manifest.stem: frozenset(manifest.settled_ids)
        for manifest in manifests.list_committed(store)
        if is_left(manifest, settings)
    }


def of_plan(store: Store, settings: Settings, header: "Header") -> dict[str, int]:
    """Return source -> letters of the plan that lie in its queue still."""
    from dlq.replay.plans import planfile

    gone: dict[str, frozenset[str]] = {}
    source_of: dict[str, str] = {}
    for manifest in manifests.list_committed(store):
        if is_left(manifest, settings):
            for stem in {manifest.stem, *manifest.replaces} & header.segments.keys():
                gone[stem], source_of[stem] = frozenset(manifest.settled_ids), manifest.source
    letters = planfile.letters(store, header.plan) if gone else ()
    return dict(
        Counter(
            source_of[letter.segment]
            for letter in letters
            if letter.segment in gone and letter.record_id not in gone[letter.segment]
        )
    )


def in_words(settings: Settings, counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield what to say of each source, and the command that takes its letters out."""
    for source, count in counts.items():
        known = settings.sources.get(source)
        place = known.queue if known else f"the queue of source {source}, which is not configured any more"
        yield (
            f"{count:,} still lie in {place}: no pull has taken them out",
            f"dlq pull {shlex.quote(source)} --mode drain",
        )
