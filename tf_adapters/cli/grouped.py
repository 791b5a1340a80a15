"""Lets commands share options: a parameter whose type is a dataclass stands for the options that are its fields."""

import dataclasses
import functools
import inspect


def grouped(command):
    """The command as Typer is to see it, with the fields of its dataclass parameters in their places."""
    signature, groups, parameters = inspect.signature(command), {}, []
    for parameter in signature.parameters.values():
        if not dataclasses.is_dataclass(parameter.annotation):
            parameters.append(parameter)
            continue
        groups[parameter.name] = parameter.annotation
        parameters += [
            inspect.Parameter(field.name, parameter.kind, default=field.default, annotation=field.type)
            for field in dataclasses.fields(parameter.annotation)
        ]

    @functools.wraps(command)
    def run(**values):
        built = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        return command(**values, **built)

    run.__signature__ = signature.replace(parameters=parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
