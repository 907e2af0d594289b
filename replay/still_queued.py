"""Letters that were copied and still lie in their dead-letter queues: a replay does not take them out.

A drain afterwards recognises them, archives nothing twice, and settles their manifests. Whether somebody else
has taken them meanwhile, no pull has seen. Some brokers remove no letter, however it is pulled.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from dlq.archive import manifests
from dlq.archive.manifests import Manifest
from dlq.archive.store import Store
from dlq.core.brokers import kind_of
from dlq.core.settings import Settings
from dlq.replay import planfile
from dlq.replay.planfile import Header


def is_left(manifest: Manifest, settings: Settings) -> bool:
    """Whether letters of this segment may lie in their queue still; `settled_ids` of them do not."""
    source = settings.sources.get(manifest.source)
    if manifest.mode != "copy" or manifest.settled or source is None:
        return False
    return not kind_of(settings.brokers[source.broker].kind).keeps_letters


def of_plan(store: Store, settings: Settings, header: Header) -> dict[str, int]:
    """Source -> letters of the plan that lie in its queue still."""
    gone: dict[str, Collection[str]] = {}
    source_of: dict[str, str] = {}
    for manifest in manifests.every(store):
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
    """What to say of each source, and the command that takes its letters out."""
    for source, count in counts.items():
        queue = settings.sources[source].queue
        yield f"{count:,} still lie in {queue}: they were copied", f"dlq pull {source} --mode drain"
