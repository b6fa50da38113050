"""The API's reference, from the comments in its protos."""

import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

# Each with the title of its page.
PROTOS = {"proto/stackd/v1/stackd.proto": "API: stackd.v1", "proto/stackd/v1/fleet.proto": "API: stackd.v1.Fleet"}
# Numbers of fields in descriptor.proto, which paths of comments are made of.
MESSAGE, ENUM, SERVICE, SYNTAX = 4, 5, 6, 12
FIELD, NESTED_MESSAGE, NESTED_ENUM = 2, 3, 4
METHOD = VALUE = 2


def described(root, proto):
    """A proto as a FileDescriptorProto, with its comments."""
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "set"
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={root}/proto", "--include_source_info", f"--descriptor_set_out={made}",
                        root / proto], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file[0]


def names(message, scope):
    """The full names of a message and of the types in it."""
    own = f".{scope}.{message.name}"
    yield own
    yield from (f"{own}.{enum.name}" for enum in message.enum_type)
    for nested in message.nested_type:
        yield from names(nested, own[1:])


class Reference:

    def __init__(self, file, title):
        self.file = file
        self.title = title
        self.own = {name for message in file.message_type for name in names(message, file.package)}
        self.own |= {f".{file.package}.{enum.name}" for enum in file.enum_type}
        self.comments = {tuple(place.path): place.leading_comments or place.trailing_comments
                         for place in file.source_code_info.location}
        self.lines = []

    def comment(self, *path):
        """Its paragraphs; what is indented in it is code."""
        lines = [line.removeprefix(" ") for line in self.comments.get(path, "").rstrip("\n").split("\n")]
        made = []
        for line in lines:
            indented = line.startswith("  ")
            if indented and made and not made[-1].startswith("    "):
                made.append("")
            made.append(f"    {line}" if indented else line)
        return "\n".join(made)

    def cell(self, *path):
        return self.comment(*path).replace("\n", " ").replace("|", "\\|")

    def heading(self, level, name, *path):
        self.lines += [f"{'#' * level} {name}", "", self.comment(*path), ""]

    def type_of(self, field):
        """A link where the type is one of this file."""
        name = field.type_name.removeprefix(f".{self.file.package}.")
        if not field.type_name:
            name = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        elif field.type_name in self.own:
            name = f"[{name}](#{name.lower().replace('.', '')})"
        else:
            name = name.removeprefix(".")
        return f"repeated {name}" if field.label == field.LABEL_REPEATED else name

    def add_message(self, message, name, path):
        self.heading(3, name, *path)
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        if message.field:
            self.lines += ["| field | type | |", "|---|---|---|"]
        for index, field in enumerate(message.field):
            entry = entries.get(field.type_name.rpartition(".")[2])
            type_name = f"map of {' to '.join(self.type_of(part) for part in entry.field)}" if entry else self.type_of(field)
            self.lines.append(f"| `{field.name}` | {type_name} | {self.cell(*path, FIELD, index)} |")
        self.lines.append("")
        for index, nested in enumerate(message.nested_type):
            if nested.name not in entries:
                self.add_message(nested, f"{name}.{nested.name}", (*path, NESTED_MESSAGE, index))
        for index, nested in enumerate(message.enum_type):
            self.add_enum(nested, f"{name}.{nested.name}", (*path, NESTED_ENUM, index))

    def add_enum(self, enum, name, path):
        self.heading(3, name, *path)
        self.lines += ["| value | |", "|---|---|"]
        for index, value in enumerate(enum.value):
            self.lines.append(f"| `{value.name}` | {self.cell(*path, VALUE, index)} |")
        self.lines.append("")

    def add_service(self, service, path):
        self.heading(2, f"{self.file.package}.{service.name}", *path)
        for index, method in enumerate(service.method):
            asked, answer = (name.rpartition(".")[2] for name in (method.input_type, method.output_type))
            self.heading(3, method.name, *path, METHOD, index)
            stream = "a stream of " if method.server_streaming else ""
            linked = f"[{answer}](#{answer.lower()})" if method.output_type in self.own else answer
            self.lines += [f"Takes [{asked}](#{asked.lower()}), answers with {stream}{linked}.", ""]

    def page(self):
        self.lines += [f"# {self.title}", "", self.comment(SYNTAX), ""]
        for index, service in enumerate(self.file.service):
            self.add_service(service, (SERVICE, index))
        self.lines += ["## Messages", ""]
        for index, message in enumerate(self.file.message_type):
            self.add_message(message, message.name, (MESSAGE, index))
        for index, enum in enumerate(self.file.enum_type):
            self.add_enum(enum, enum.name, (ENUM, index))
        return "\n".join(self.lines)


def page(root, proto):
    return Reference(described(root, proto), PROTOS[proto]).page()
