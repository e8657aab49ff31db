"""Read `runtime.h`, the one place where codes, structs and sizes of the C runtime stand."""

import re
from importlib import resources

import numpy as np

_KINDS_OF_NUMBERS = {"uint8_t": "u1", "uint32_t": "u4", "int32_t": "i4", "double": "f8", "size_t": "u8"}


def read_enums(source: str) -> dict[str, dict[str, int]]:
    """Return the enumerations of a header by name.

    >>> read_enums("enum colours { RED, BLUE = 4, GREEN };")
    {'colours': {'RED': 0, 'BLUE': 4, 'GREEN': 5}}
    """
    enums: dict[str, dict[str, int]] = {}
    for name, body in re.findall(r"enum (\w+) \{(.*?)\}", source, re.DOTALL):
        values: dict[str, int] = {}
        for member, number in re.findall(r"(\w+)(?: = (\d+))?(?:,|\s*$)", body.strip()):
            values[member] = int(number) if number else len(values) and 1 + max(values.values())
        enums[name] = values
    return enums


def read_structs(source: str) -> dict[str, np.dtype]:
    """Return the structs of a header by name; pointers are addresses.

    >>> read_structs("typedef struct { uint8_t a, b; double c[2]; const char *d; } part;")["part"].itemsize
    32
    """
    structs = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", source, re.DOTALL):
        fields: list[tuple[str, str, tuple[int, ...]]] = []
        for kind, members in re.findall(r"(?:const )?(?:unsigned )?(\w+) ([^;]+);", body):
            for member in members.split(","):
                ((pointer, field, sizes),) = re.findall(r"(\*?)(\w+)((?:\[\d+\])*)", member)
                shape = tuple(int(size) for size in re.findall(r"\d+", sizes))
                fields.append((field, "u8" if pointer else _KINDS_OF_NUMBERS[kind], shape))
        structs[name] = np.dtype(fields, align=True)
    return structs


def _read() -> str:
    text = (resources.files("aaren.export") / "runtime.h").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


_SOURCE = _read()
ENUMS = read_enums(_SOURCE)
STRUCTS = read_structs(_SOURCE)
DEFINES = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\s*$", _SOURCE, re.MULTILINE)}
