"""The package as it is installed."""

import importlib.metadata
import pathlib
import sys

import vmachine


def test_the_package_is_the_installed_wheel_with_its_types() -> None:
    folder = pathlib.Path(vmachine.__file__).parent
    assert folder.is_relative_to(sys.prefix)
    assert (folder / "py.typed").is_file() and (folder / "_vmachine.pyi").is_file()
    assert importlib.metadata.version("vmachine") == vmachine.__version__
    assert [file.name for file in folder.glob("*.so")] == ["_vmachine.abi3.so"]


def test_every_exception_is_an_error_of_the_package_and_is_documented() -> None:
    errors = [it for it in vars(vmachine.errors).values() if isinstance(it, type)]
    errors = [it for it in errors if it.__module__ == "vmachine.errors" and it.__name__[0] != "_"]
    assert len(errors) > 20
    for error in errors:
        assert issubclass(error, vmachine.Error) and error.__doc__
        assert getattr(vmachine, error.__name__) is error
        assert error.__name__ in str(vmachine.errors.__doc__)
