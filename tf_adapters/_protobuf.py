"""Messages of protocol buffers whose classes no package exports that is needed anyway."""

import re

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def message_class(package, messages, name, *, dependency=()):
    """The class of a message. Fields that are not described are kept as they are read.

    Args:
        package: str, which other descriptions do not have.
        messages: dict from a message's name to its fields, as a `.proto` file has them.
        name: str, one of these messages.
        dependency: names of files whose messages they have.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, dependency=dependency)
    for message, fields in messages.items():
        made = file.message_type.add(name=message)
        for label, kind, field, number in re.findall(r"(\w+) ([\w.]+) (\w+) = (\d+)", fields):
            about = {"type": f"TYPE_{kind.upper()}"} if kind.islower() else {"type_name": kind}
            made.field.add(name=field, number=int(number), label=f"LABEL_{label.upper()}", **about)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
