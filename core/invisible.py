"""Characters that nobody sees, and where a script or an emoji cannot do without them.

Elsewhere they make two texts look alike that are not: `orders` and `or\\u200dders`.
"""

import re

INVISIBLE = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u3164\uffa0"
    r"\ufe00-\ufe0f\U000e0080-\U000e0fff\ufff0-\ufff8\u2800"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
)
"""The inside of a regular expression's class."""

# Scripts whose letters change as they join: Arabic and its kin, those of India, Myanmar, Khmer, Mongolian.
_JOINING = r"\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af\ua840-\ua877"
_IDEOGRAPHS = r"\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PICTURES = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    r"\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_NEEDED = re.compile(
    rf"(?<=[{_JOINING}])\u200c(?=[{_JOINING}])"
    rf"|(?<=[{_JOINING}])\u200d"
    rf"|(?<=[{_PICTURES}\ufe0f])\u200d(?=[{_PICTURES}])"
    rf"|(?<=[{_PICTURES}])[\ufe0e\ufe0f]"
    rf"|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    r"|(?<=[\u2801-\u28ff])\u2800(?=[\u2801-\u28ff])"
    r"|(?<=[\U00013000-\U0001342f])[\U00013430-\U0001343f]"
    rf"|(?<=[{_IDEOGRAPHS}])[\ufe00-\ufe0d\U000e0100-\U000e01ef]"
    r"|(?<=[\u1820-\u18af])[\u180b-\u180f]"
    r"|\u115f(?=[\u1160-\u11a7])"
    r"|(?<=[\u1100-\u115f])\u1160"
)


def is_needed(text: str, position: int) -> bool:
    """Return whether the invisible character there is part of a script or an emoji that needs it."""
    return _NEEDED.match(text, position) is not None
