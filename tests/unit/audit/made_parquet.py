"""Parquet made by hand: files whose footers and pages say what no writer says."""

from collections.abc import Callable

INT64, TEXT, FIXED = 2, 6, 7
ZSTD = 6
PLAIN, RLE, DELTA_BYTE_ARRAY = 0, 3, 7


def unsigned(value):
    found = b""
    while value > 0x7F:
        value, found = value >> 7, found + bytes([value & 0x7F | 0x80])
    return found + bytes([value])


def signed(value):
    return unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def number(field, value):
    return field, 5, signed(value)


def long(field, value):
    return field, 6, signed(value)


def text(field, value):
    return field, 8, unsigned(len(value)) + value


def items(field, kind, *values):
    return field, 9, bytes([0xF0 | kind]) + unsigned(len(values)) + b"".join(values)


def inner(field, *fields):
    return field, 12, structure(*fields)


def structure(*fields):
    """Return a structure. Each field is written with its whole number, as Thrift allows, not with a difference."""
    return b"".join(bytes([kind]) + signed(field) + value for field, kind, value in fields) + b"\0"


def column(*more, kind=INT64, encodings=(PLAIN,), values=0, unpacked=0, packed=0, at=4, codec=0):
    """A column in a group of rows; `more` are fields after the others."""
    name = items(3, 8, text(0, b"event_id")[2])
    said = (number(1, kind), items(2, 5, *map(signed, encodings)), name, number(4, codec), long(5, values))
    said += (long(6, unpacked), long(7, packed), long(9, at), *more)
    return structure(long(2, at), inner(3, *said))


def group(*columns, rows=0, size=0):
    return structure(items(1, 12, *columns), long(2, size), long(3, rows))


def schema(*more, kind=INT64, optional=0, columns=1):
    root = structure(text(4, b"schema"), number(5, columns))
    leaf = structure(number(1, kind), *more[:1], number(3, optional), text(4, b"event_id"), *more[1:])
    return items(2, 12, root, *[leaf] * columns)


def footer(*groups, of=None, rows=0, more=()):
    return structure(number(1, 2), of or schema(), long(3, rows), items(4, 12, *groups), *more)


def parquet(said, pages=bytes(64)):
    return b"PAR1" + pages + said + len(said).to_bytes(4, "little") + b"PAR1"


def page(values, body=b"", *more, encoding=PLAIN, packed=None):
    size = len(body) if packed is None else packed
    data = inner(5, number(1, values), number(2, encoding), number(3, RLE), number(4, RLE))
    return structure(number(1, 0), number(2, len(body)), number(3, size), data, *more) + body


def nulls(count):
    """Return the levels of `count` nulls."""
    run = unsigned(count << 1) + b"\0"
    return len(run).to_bytes(4, "little") + run


def short_bounds(*fields, more=()):
    """A file with bounds of one byte for numbers of eight bytes."""
    return parquet(footer(group(column(inner(12, *(text(field, b"a") for field in fields)))), more=more))


def second_schema():
    """A file with two schemas. Together they have two columns, and some readers take the last column."""
    both = items(2, 12, structure(text(4, b"schema"), number(5, 2)), LEAF), schema()
    return parquet(structure(number(1, 2), *both, long(3, 0), items(4, 12, group(column(), column()))))


def with_more(*fields, before=()):
    """An empty file whose footer has more fields."""
    return parquet(structure(*before, number(1, 2), schema(), long(3, 0), items(4, 12), *fields))


def wide_field():
    """A page that has ten bytes. For readers that take only the last 16 bits of a field's number, it has a billion."""
    pages = page(3, bytes(10), (65_538, 5, signed(1_500_000_000)))
    said = footer(group(column(values=3, unpacked=100, packed=len(pages), codec=ZSTD), rows=3), rows=3)
    return parquet(said, pages)


def page_of(*fields):
    """A page with these fields instead of those of a page."""
    pages = structure(*fields)
    return parquet(footer(group(column(unpacked=100, packed=len(pages)))), pages)


def large_size():
    """A page of so many bytes that no file has a place after it."""
    size = (1 << 63) - 28
    pages = structure(number(1, 0), number(2, 0), (3, 5, unsigned(size << 1)), inner(5, number(1, 0)))
    return parquet(footer(group(column(packed=(1 << 63) - 1))), pages)


def same_pages():
    """Twenty groups of rows that have the same pages."""
    pages = page(0) * 100
    return parquet(footer(*[group(column(packed=len(pages)))] * 20), pages)


def small_pages():
    """More pages than their file could have of any rows."""
    pages = structure(number(2, 0), number(3, 0)) * 1_000
    return parquet(footer(group(column(packed=len(pages)))), pages)


def few_at_a_time():
    """Two million texts. Each of them could be longer than may be read at once."""
    count = 2_000_000
    pages = page(count, nulls(count) + bytes([0x80, 1, 4, 0, 0]) * 2, encoding=DELTA_BYTE_ARRAY)
    said = column(kind=TEXT, encodings=(DELTA_BYTE_ARRAY, RLE), values=count, unpacked=40 << 20, packed=len(pages))
    return parquet(footer(group(said, rows=count), of=schema(kind=TEXT, optional=1), rows=count), pages)


def negative_count():
    """A group of rows with a negative count. In a sum of all groups, it lowers the count of the next group."""
    pages = page(65_536, nulls(65_536), encoding=PLAIN)
    fixed = {"kind": FIXED, "encodings": (PLAIN, RLE)}
    whole = column(**fixed, values=65_536, unpacked=200, packed=len(pages))
    of = schema(number(2, 2_000), kind=FIXED, optional=1)
    return parquet(footer(group(column(**fixed, values=-1 << 40)), group(whole, rows=65_536), of=of), pages)


LEAF = structure(number(1, INT64), number(3, 0), text(4, b"event_id"))
ORDERS = (items(7, 12, structure((1, 12, b"\0"))),)
MADE: dict[str, Callable[[], bytes]] = {
    "bounds of other orders": lambda: short_bounds(5, 6, more=ORDERS),
    "bounds": lambda: short_bounds(5, 6),
    "old bounds": lambda: short_bounds(1, 2),
    "one bound": lambda: short_bounds(5, more=ORDERS),
    "fields that wrap": lambda: parquet(footer(group(column((65_548, 12, structure(text(5, b"a"), text(6, b"a"))))))),
    "a field twice": second_schema,
    "fields that fall": lambda: with_more(long(3, 0)),
    "field 0": lambda: with_more(before=[number(0, 1)]),
    "a number of 33 bits": lambda: parquet(structure((1, 5, unsigned(1 << 33)), schema(), long(3, 0), items(4, 12))),
    "a number of 70 bits": lambda: parquet(
        structure(number(1, 2), schema(), (3, 6, b"\xff" * 9 + b"\x7e"), items(4, 12))
    ),
    "a set": lambda: with_more((99, 10, items(0, 5, signed(1))[2])),
    "another kind": lambda: with_more(number(6, 1)),
    "lists in lists": lambda: parquet(b"\xf9" + b"\x19" * 5_000),
    "a page's field that wraps": wide_field,
    "a page's field twice": lambda: page_of(number(1, 0), number(2, 0), number(2, 9), number(3, 0)),
    "a page's number of 63 bits": large_size,
    "a page's negative count": lambda: page_of(number(1, 0), number(2, 0), number(3, 0), inner(5, number(1, -9))),
    "the same pages": same_pages,
    "small pages": small_pages,
    "a few at a time": few_at_a_time,
    "a negative count": negative_count,
    "a negative size": lambda: parquet(footer(group(column(), size=-1))),
    "a negative place": lambda: parquet(footer(group(column(long(10, 0), long(11, -9))))),
    "negative rows": lambda: parquet(footer(rows=-1)),
}
"""Files that mislead their readers, by what is wrong with them."""
