"""`decode` and `encode` of a whole message."""

from __future__ import annotations

from tools.messages.struct_class import StructWriter


class MethodsWriter:
    """Continues the class that a `StructWriter` has started."""

    def __init__(self, owner: StructWriter) -> None:
        self.owner, self.module, self.schema = owner, owner.module, owner.schema
        self.name, self.has_records = owner.name, owner.has_records

    def write(self) -> None:
        out = self.module.lines
        out += [
            "    @staticmethod",
            f"    def decode(version: int, buffer: ReadBuffer, offset: int = 0) -> {self.name}:",
            '        """Read a body. Raises WireError."""',
        ]
        out += shifted(self.decode_body(), 2)
        out.append("")
        if self.has_records:
            self.module.use("ChunkBuffer")
            out += [
                "    def encode_chunks(self, version: int) -> list[Any]:",
                '        """The body as buffers and file regions. Raises WireError."""',
                *shifted(["out = ChunkBuffer()", *self.encode_body("self"), "return out.finish()"], 2),
                "",
                "    def encode(self, version: int) -> bytes:",
                '        """The body; file regions are read. Raises WireError."""',
                f"        return {self.module.use('join_chunks')}(self.encode_chunks(version))",
                "",
            ]
        else:
            out += ["    def encode(self, version: int) -> bytes:", '        """The body. Raises WireError."""']
            out += shifted(["out = bytearray()", *self.encode_body("self"), "return bytes(out)"], 2)
            out.append("")

    def decode_body(self) -> list[str]:
        buffer = "memoryview(buffer)" if self.has_records else "buffer if type(buffer) is bytes else bytes(buffer)"
        return self.guarded(f"return {self.owner.dispatch('read', f'{buffer}, offset, version')}[0]", "DECODE_ERRORS")

    def encode_body(self, message: str) -> list[str]:
        return self.guarded(self.owner.dispatch("write", f"out, {message}, version"), "ENCODE_ERRORS")

    def guarded(self, statement: str, errors: str) -> list[str]:
        low, high = self.schema.versions.low, self.schema.versions.high
        return [
            f"if not {low} <= version <= {high}:",
            f'    raise WireError(f"{self.name} has no version {{version}}")',
            "try:",
            f"    {statement}",
            f"except {errors} as error:",
            f'    raise WireError(f"{self.name} v{{version}}: {{error}}") from error',
        ]


def shifted(lines: list[str], steps: int) -> list[str]:
    """The lines, further to the right."""
    return ["    " * steps + line for line in lines]
